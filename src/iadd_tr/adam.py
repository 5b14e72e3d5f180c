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


def descend_in_turn(
    value: Trained, moments: Any, gradient: Trained, rate: Float[Array, ""], like: Trained
) -> tuple[Trained, optax.OptState, Trained]:
    """The same step array by array, last ones first, as their gradients come, and the value again, rounded as `like`
    is. XLA would join the steps of all arrays of one shape, which then wait for the last gradient."""
    state: Any
    given = (jax.tree.leaves(tree) for tree in (value, moments.mu, moments.nu, gradient, like))
    made = []
    for number, mean, square, slope, copy in reversed(list(zip(*given, strict=True))):
        moved, state = descend(number, moments._replace(mu=mean, nu=square), slope, rate)
        new, rate = jax.lax.optimization_barrier(((moved, state.mu, state.nu, moved.astype(copy.dtype)), rate))
        made.append(new)
    structure = jax.tree.structure(value)
    moved, mean, square, copy = (jax.tree.unflatten(structure, leaves) for leaves in zip(*reversed(made), strict=True))
    return moved, moments._replace(count=optax.safe_increment(moments.count), mu=mean, nu=square), copy


def clip_norm(gradient: Trained, limit: float) -> Trained:
    """The gradient, shortened to a norm of `limit` where it is longer."""
    factor = jnp.minimum(1.0, limit / (optax.tree.norm(gradient) + 1e-6))
    return jax.tree.map(lambda g: g * factor, gradient)
