"""Adam with a rate that may be traced, so that runs of one batch can differ in it."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
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


def clip_norm(gradient: Trained, limit: float) -> Trained:
    """The gradient, shortened to a norm of `limit` where it is longer."""
    factor = jnp.minimum(1.0, limit / (optax.tree.norm(gradient) + 1e-6))
    return jax.tree.map(lambda g: g * factor, gradient)
