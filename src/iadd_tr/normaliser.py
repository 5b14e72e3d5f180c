"""Running mean and variance, and numbers brought to their scale."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Moments(eqx.Module):
    """Mean and variance of everything seen so far."""

    mean: Float[Array, "*D"]
    variance: Float[Array, "*D"]
    count: Float[Array, ""]


def init(*shape: int) -> Moments:
    """Nothing seen: numbers stay as they are."""
    return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.array(1e-4))


def update(moments: Moments, values: Float[Array, "B *D"]) -> Moments:
    """The moments of the old and the new together."""
    size, mean, variance = values.shape[0], values.mean(0), values.var(0)
    total = moments.count + size
    shift = mean - moments.mean
    spread = moments.variance * moments.count + variance * size + shift**2 * (moments.count * size / total)
    return Moments(moments.mean + shift * (size / total), spread / total, total)


def standardise(moments: Moments, values: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Zero mean and unit variance, clipped at ten."""
    mean, unit = (jnp.broadcast_to(x, values.shape) for x in (moments.mean, deviation(moments.variance)))
    return jnp.clip((values - mean) / unit, -10.0, 10.0)


def deviation(variance: Float[Array, "*D"]) -> Float[Array, "*D"]:
    """Its root, never quite zero."""
    return jnp.sqrt(variance + 1e-8)
