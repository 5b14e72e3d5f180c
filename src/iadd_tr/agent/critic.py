"""Twin critics, stacked along a leading axis of two."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp, twin_values
from iadd_tr.types import PRNGKey


def init(key: PRNGKey, observations: int, actions: int, hidden: int) -> MLP:
    """Two independent networks from state and action to a value."""

    def one(key: PRNGKey) -> MLP:
        return mlp(key, [observations + actions, hidden, hidden, 1], jax.nn.relu, GLOROT_UNIFORM)

    return jax.vmap(one)(jax.random.split(key))


def values(critics: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, "2 B"]:
    """Q of both twins."""
    return twin_values(critics, jnp.concatenate([observation, action], axis=-1))


def bellman_target(
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_values: Float[Array, "2 B"],
    entropy_bonus: Float[Array, " B"],
) -> Float[Array, " B"]:
    """r + gamma (min of the twins + entropy bonus), Eqs. 12 and 18; `discount` already holds gamma."""
    return reward + discount * (jnp.min(next_values, axis=0) + entropy_bonus)


def td_loss(
    critics: MLP,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    target: Float[Array, " B"],
) -> tuple[Float[Array, ""], Float[Array, "2 B"]]:
    """Half the mean squared TD error, summed over the twins (Eq. 11), and the values."""
    value = values(critics, observation, action)
    return 0.5 * jnp.sum(jnp.mean((value - target[None]) ** 2, axis=1)), value
