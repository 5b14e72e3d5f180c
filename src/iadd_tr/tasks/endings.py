"""Termination functions on predicted next observations, one per environment id."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from iadd_tr.types import Ending

ENDINGS: dict[str, Ending] = {}


def register_ending(environment: str, ending: Ending) -> None:
    """Tell when an environment ends, so that the model need not learn it: [B, O] next observations to [B] flags."""
    ENDINGS[environment] = ending


def never(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """HalfCheetah, Swimmer, Reacher, Pusher: only the time limit ends an episode."""
    return jnp.zeros(observation.shape[0], bool)


def hopper(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """Upright between ±0.2 rad above 0.7, every other coordinate finite and below 100."""
    height, angle, rest = observation[:, 0], observation[:, 1], observation[:, 1:]
    sane = jnp.all(jnp.isfinite(observation), axis=-1) & jnp.all(jnp.abs(rest) < 100.0, axis=-1)
    return ~(sane & (height > 0.7) & (jnp.abs(angle) < 0.2))


def walker2d(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """Torso between 0.8 and 2, angle below 1 rad."""
    height, angle = observation[:, 0], observation[:, 1]
    return ~((height > 0.8) & (height < 2.0) & (jnp.abs(angle) < 1.0))


def ant(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """Finite, torso between 0.2 and 1."""
    height = observation[:, 0]
    return ~(jnp.all(jnp.isfinite(observation), axis=-1) & (height >= 0.2) & (height <= 1.0))


def humanoid(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """Torso between 1 and 2."""
    height = observation[:, 0]
    return ~((height > 1.0) & (height < 2.0))


def inverted_pendulum(observation: Float[Array, "B O"]) -> Bool[Array, " B"]:
    """Finite, pole within 0.2 rad."""
    return ~(jnp.all(jnp.isfinite(observation), axis=-1) & (jnp.abs(observation[:, 1]) <= 0.2))


for _environment, _ending in {
    "HalfCheetah-v5": never,
    "Swimmer-v5": never,
    "Reacher-v5": never,
    "Pusher-v5": never,
    "Pendulum-v1": never,
    "Hopper-v5": hopper,
    "Walker2d-v5": walker2d,
    "Ant-v5": ant,
    "Humanoid-v5": humanoid,
    "InvertedPendulum-v5": inverted_pendulum,
}.items():
    register_ending(_environment, _ending)
