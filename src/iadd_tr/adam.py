"""Adam with a rate that may be traced, so that runs of one batch can differ in it."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

MEAN_DECAY, SQUARE_DECAY, LEAST = 0.9, 0.999, 1e-8
ADAM = optax.scale_by_adam(MEAN_DECAY, SQUARE_DECAY, LEAST)
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


def pace(count: Any, rate: Float[Array, ""]) -> Float[Array, " 3"]:
    """What the step after `count` others has in common for all numbers: its rate, and the moments' shares so far."""
    decays = jnp.array([MEAN_DECAY, SQUARE_DECAY])
    return jnp.append(rate, 1.0 - decays ** (count + 1.0))


def moved(value: Any, mean: Any, square: Any, gradient: Any, rate: Any, mean_share: Any, square_share: Any) -> Any:
    """The same step for one array: its new numbers and moments."""
    mean = MEAN_DECAY * mean + (1.0 - MEAN_DECAY) * gradient
    square = SQUARE_DECAY * square + (1.0 - SQUARE_DECAY) * gradient**2
    return value - rate * (mean / mean_share) / (jnp.sqrt(square / square_share) + LEAST), mean, square


def clip_norm(gradient: Trained, limit: float) -> Trained:
    """The gradient, shortened to a norm of `limit` where it is longer."""
    factor = jnp.minimum(1.0, limit / (optax.tree.norm(gradient) + 1e-6))
    return jax.tree.map(lambda g: g * factor, gradient)
