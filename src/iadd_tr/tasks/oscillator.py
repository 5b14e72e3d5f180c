"""The two-stage oscillator of Appendix B: an action kicks the velocity, then the system evolves by itself."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.types import PRNGKey

KICK = 0.8  # kappa_a
FREQUENCY = 1.2  # Omega
DAMPING = 0.25  # kappa_d
INTERVAL = 0.15
SUBSTEPS = 8
EXTENT = (2.0, 1.5)  # states are drawn from [-2, 2] x [-1.5, 1.5]


def draw_states(key: PRNGKey, count: int) -> Float[Array, "N 2"]:
    """Uniform positions and velocities."""
    return jax.random.uniform(key, (count, 2), minval=-1.0, maxval=1.0) * jnp.broadcast_to(
        jnp.array(EXTENT), (count, 2)
    )


def behave(key: PRNGKey, state: Float[Array, "N 2"]) -> Float[Array, "N 1"]:
    """The behaviour policy, whose actions depend on the state."""
    noise = 0.25 * jax.random.normal(key, (state.shape[0],))
    return jnp.clip(jnp.tanh(1.1 * state[:, 0] - 0.7 * state[:, 1] + noise), -1.0, 1.0)[:, None]


def intervene(state: Float[Array, "N 2"], action: Float[Array, "N 1"]) -> Float[Array, "N 2"]:
    """The post-intervention state: the action moves the velocity alone, and not at all when it is zero."""
    return state.at[:, 1].add(KICK * jnp.tanh(action[:, 0]))


def evolve(state: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
    """The passive flow over one interval: fourth-order Runge-Kutta in eight substeps."""
    step = INTERVAL / SUBSTEPS

    def slope(state: Float[Array, "N 2"]) -> Float[Array, "N 2"]:
        position, velocity = state[:, 0], state[:, 1]
        return jnp.stack([velocity, -(FREQUENCY**2) * position - DAMPING * velocity], axis=1)

    for _ in range(SUBSTEPS):
        first = slope(state)
        second = slope(state + 0.5 * step * first)
        third = slope(state + 0.5 * step * second)
        fourth = slope(state + step * third)
        state = state + step / 6 * (first + 2 * second + 2 * third + fourth)
    return state
