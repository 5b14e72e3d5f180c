"""Targeted regularization: a density-scaled correction for each critic, fitted with the critic fixed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp, zero_last
from iadd_tr.types import PRNGKey


def init(key: PRNGKey, actions: int, hidden: int) -> MLP:
    """Two networks from action to correction, zero before they are trained."""

    def one(key: PRNGKey) -> MLP:
        return zero_last(mlp(key, [actions, hidden, hidden, 1], jax.nn.relu, GLOROT_UNIFORM))

    return jax.vmap(one)(jax.random.split(key))


def correction(
    epsilon: MLP,
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
) -> Float[Array, "2 B"]:
    """epsilon(a) / max(e, floor) for both twins."""
    inverse = jnp.exp(-jnp.maximum(log_density, log_floor))
    return jax.vmap(lambda net: net(action)[..., 0])(epsilon) * inverse[None]


def adjust(
    epsilon: MLP | None,
    values: Float[Array, "2 B"],
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
) -> Float[Array, "2 B"]:
    """The adjusted twins of Eq. 17; the twins themselves where there is no correction."""
    if epsilon is None:
        return values
    return values + correction(epsilon, action, log_density, log_floor)


def loss(
    epsilon: MLP,
    values: Float[Array, "2 B"],
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
    target: Float[Array, " B"],
) -> tuple[Float[Array, ""], Float[Array, "2 B"]]:
    """Mean squared adjusted TD error with the critic's values given, Eq. 19, and the correction."""
    shift = correction(epsilon, action, log_density, log_floor)
    return jnp.sum(jnp.mean((values + shift - target[None]) ** 2, axis=1)), shift
