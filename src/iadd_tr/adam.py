"""Adam with a rate that may be traced, so that runs of one batch can differ in it."""

from typing import Any, TypeVar

import jax
import optax
from jaxtyping import Array, Float

ADAM = optax.scale_by_adam()
Trained = TypeVar("Trained")


def init(value: Any) -> optax.OptState:
    """Moments of a thing about to be trained."""
    return ADAM.init(value)


def descend(
    value: Trained, moments: optax.OptState, gradient: Any, rate: Float[Array, ""]
) -> tuple[Trained, optax.OptState]:
    """One step."""
    direction, moments = ADAM.update(gradient, moments)
    return jax.tree.map(lambda p, d: p - rate * d, value, direction), moments
