"""The squashed Gaussian policy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.gaussian import squash, squashed_log_density
from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp
from iadd_tr.types import PRNGKey


def init(key: PRNGKey, observations: int, actions: int, hidden: int) -> MLP:
    """A network from observation to the mean and log-deviation of the action before tanh."""
    return mlp(key, [observations, hidden, hidden, 2 * actions], jax.nn.relu, GLOROT_UNIFORM)


def distribution(policy: MLP, observation: Float[Array, "*B O"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
    """Mean and log-deviation, the latter clipped to [-20, 2]."""
    mean, log_std = jnp.split(policy(observation), 2, axis=-1)
    return mean, jnp.clip(log_std, -20.0, 2.0)


def sample(
    key: PRNGKey, policy: MLP, observation: Float[Array, "*B O"]
) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
    """An action and its log-density, Eqs. 3 and 4."""
    mean, log_std = distribution(policy, observation)
    return squash(jax.random.normal(key, mean.shape), mean, log_std)


def respond(
    noise: Float[Array, "*B A"], policy: MLP, observation: Float[Array, "*B O"]
) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
    """The action that given standard noise leads to, and its log-density."""
    return squash(noise, *distribution(policy, observation))


def log_density(policy: MLP, observation: Float[Array, "*B O"], action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """Log-density of a given action."""
    return squashed_log_density(action, *distribution(policy, observation))
