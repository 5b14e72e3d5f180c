"""Gaussian densities: the squashed policy's, and the dynamics model's with its soft variance bounds."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.devices import on_cpu

LOG_TWO_PI = 1.8378770664093453


def squash(
    noise: Float[Array, "*B A"], mean: Float[Array, "*B A"], log_std: Float[Array, "*B A"]
) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
    """An action tanh(mean + std noise) and its log-density on [-1, 1]^A where the noise is standard normal."""
    latent = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * LOG_TWO_PI
    return jnp.tanh(latent), jnp.sum(normal - log_tanh_slope(latent), axis=-1)


def squashed_log_density(
    action: Float[Array, "*B A"], mean: Float[Array, "*B A"], log_std: Float[Array, "*B A"]
) -> Float[Array, "*B"]:
    """Log-density of a given action; actions on the boundary are read as the nearest float inside it."""
    latent = jnp.arctanh(jnp.clip(action, -1 + 1e-7, 1 - 1e-7))
    noise = (latent - mean) * jnp.exp(-log_std)
    normal = -0.5 * noise**2 - log_std - 0.5 * LOG_TWO_PI
    return jnp.sum(normal - log_tanh_slope(latent), axis=-1)


def log_tanh_slope(latent: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log(1 - tanh(u)^2) without cancellation."""
    return 2.0 * (jnp.log(2.0) - latent - jax.nn.softplus(-2.0 * latent))


def uniform_log_density(actions: int) -> float:
    """Log-density of a uniform action on [-1, 1]^A."""
    return -actions * math.log(2.0)


def soft_bound(
    value: Float[Array, "*B D"], lower: Float[Array, " D"], upper: Float[Array, " D"]
) -> Float[Array, "*B D"]:
    """Softplus clamp of log-variances between learned bounds."""
    value, lower, upper = (side_by_side(jnp.broadcast_to(x, value.shape)) for x in (value, lower, upper))
    value = upper - jax.nn.softplus(upper - value)
    return side_by_side(lower + jax.nn.softplus(value - lower))


def gaussian_nll(
    mean: Float[Array, "*B D"], log_variance: Float[Array, "*B D"], target: Float[Array, "*B D"]
) -> Float[Array, ""]:
    """Mean of (mu - y)^2 exp(-log var) + log var: twice the negative log-likelihood, up to a constant."""
    mean, log_variance, target = (side_by_side(x) for x in (mean, log_variance, target))
    return jnp.mean((mean - target) ** 2 * jnp.exp(-log_variance) + log_variance)


def side_by_side(x: Float[Array, "*B D"]) -> Float[Array, "..."]:
    """Rows as columns, and back, on a CPU: it computes exponentials of sixteen neighbours at once, but a row has no
    sixteen numbers."""
    return jnp.swapaxes(x, -1, -2) if on_cpu() and x.ndim > 1 else x
