"""The Gaussian policy of the on-policy algorithms: clipped, not squashed, its deviation the same in every state."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.gaussian import LOG_TWO_PI
from iadd_tr.nets import MLP
from iadd_tr.types import PRNGKey


class Policy(eqx.Module):
    actor: MLP
    log_std: Float[Array, " A"]


def sample(key: PRNGKey, policy: Policy, observation: Float[Array, "*B O"]) -> Float[Array, "*B A"]:
    """An action before it is clipped to the task's bounds."""
    mean = policy.actor(observation)
    return mean + jnp.broadcast_to(jnp.exp(policy.log_std), mean.shape) * jax.random.normal(key, mean.shape)


def log_density(policy: Policy, observation: Float[Array, "*B O"], action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """Its log-density."""
    mean = policy.actor(observation)
    log_std = jnp.broadcast_to(policy.log_std, mean.shape)
    return jnp.sum(-0.5 * ((action - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * LOG_TWO_PI, axis=-1)
