"""Proximal policy optimisation: generalised advantages, a clipped surrogate, clipped values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from iadd_tr import adam
from iadd_tr.agent.gaussian_policy import Policy, log_density
from iadd_tr.gaussian import LOG_TWO_PI
from iadd_tr.nets import MLP, orthogonal
from iadd_tr.settings import Ppo
from iadd_tr.types import PRNGKey

INITIAL_LOG_STD = -0.5  # from 0 a third of the actions is clipped, and HalfCheetah learns later


class Networks(eqx.Module):
    policy: Policy
    critic: MLP


class State(eqx.Module):
    networks: Networks
    moments: optax.OptState


class Trajectory(eqx.Module):
    """T steps of N environments: what was seen, done and earned, observations and rewards already normalised."""

    observation: Float[Array, "*T N O"]
    action: Float[Array, "*T N A"]
    log_density: Float[Array, "*T N"]
    value: Float[Array, "*T N"]
    reward: Float[Array, "*T N"]
    next_observation: Float[Array, "*T N O"]
    discount: Float[Array, "*T N"]
    last: Bool[Array, "*T N"]


class Batch(eqx.Module):
    """Rows of an improvement."""

    observation: Float[Array, "*B O"]
    action: Float[Array, "*B A"]
    log_density: Float[Array, "*B"]
    value: Float[Array, "*B"]
    advantage: Float[Array, "*B"]
    goal: Float[Array, "*B"]


class Info(eqx.Module):
    """Means over an improvement."""

    policy_loss: Float[Array, ""]
    value_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    divergence: Float[Array, ""]  # of the new policy from the one that acted
    clipped: Float[Array, ""]  # share of rows whose ratio left the clip range


def init(key: PRNGKey, observations: int, actions: int, ppo: Ppo) -> State:
    """Orthogonal weights; the policy's last layer is small, so that it starts without a preference."""
    actor_key, critic_key = jax.random.split(key)
    inner = [ppo.ppo_hidden, ppo.ppo_hidden]
    log_std = jnp.full(actions, INITIAL_LOG_STD)
    networks = Networks(
        Policy(orthogonal(actor_key, [observations, *inner, actions], jnp.tanh, 0.01), log_std),
        orthogonal(critic_key, [observations, *inner, 1], jnp.tanh, 1.0),
    )
    return State(networks, adam.init(networks))


def values(networks: Networks, observation: Float[Array, "*B O"]) -> Float[Array, "*B"]:
    """What the critic expects."""
    return networks.critic(observation)[..., 0]


def advantages(
    trajectory: Trajectory, next_value: Float[Array, "T N"], gamma: float, decay: float
) -> Float[Array, "T N"]:
    """Generalised advantages; a time limit stops the sum but keeps the value behind it."""
    surprise = trajectory.reward + gamma * trajectory.discount * next_value - trajectory.value
    carry_on = gamma * decay * jnp.where(trajectory.last, 0.0, 1.0)

    def step(later: Float[Array, " N"], now: tuple[Float[Array, " N"], Float[Array, " N"]]):
        total = now[0] + now[1] * later
        return total, total

    return jax.lax.scan(step, jnp.zeros(surprise.shape[1]), (surprise, carry_on), reverse=True)[1]


def improve(
    key: PRNGKey, state: State, trajectory: Trajectory, rate: Float[Array, ""], gamma: float, ppo: Ppo
) -> tuple[State, Info]:
    """Several passes over a trajectory in shuffled minibatches."""
    next_value = values(state.networks, trajectory.next_observation)
    advantage = advantages(trajectory, next_value, gamma, ppo.gae)
    rows = Batch(
        trajectory.observation, trajectory.action, trajectory.log_density, trajectory.value, advantage,
        advantage + trajectory.value,
    )  # fmt: skip
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

    def one_pass(state: State, key: PRNGKey) -> tuple[State, Info]:
        order = jax.random.permutation(key, rows.value.size).reshape(ppo.minibatches, -1)
        return jax.lax.scan(lambda s, i: update(s, jax.tree.map(lambda x: x[i], rows), rate, ppo), state, order)

    state, info = jax.lax.scan(one_pass, state, jax.random.split(key, ppo.passes))
    return state, jax.tree.map(jnp.mean, info)


def update(state: State, rows: Batch, rate: Float[Array, ""], ppo: Ppo) -> tuple[State, Info]:
    """One step of Adam on one minibatch, the gradient's norm clipped."""
    gradient, info = jax.grad(loss, has_aux=True)(state.networks, rows, ppo)
    gradient = adam.clip_norm(gradient, ppo.gradient_norm)
    return State(*adam.descend(state.networks, state.moments, gradient, rate)), info


def loss(networks: Networks, rows: Batch, ppo: Ppo) -> tuple[Float[Array, ""], Info]:
    """The clipped surrogate, the clipped value error and the entropy."""
    change = log_density(networks.policy, rows.observation, rows.action) - rows.log_density
    ratio = jnp.exp(change)
    advantage = (rows.advantage - rows.advantage.mean()) / (rows.advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - ppo.clip, 1.0 + ppo.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    value = values(networks, rows.observation)
    near = rows.value + jnp.clip(value - rows.value, -ppo.clip, ppo.clip)
    value_loss = 0.5 * jnp.mean(jnp.maximum((value - rows.goal) ** 2, (near - rows.goal) ** 2))
    entropy = jnp.sum(networks.policy.log_std + 0.5 * (LOG_TWO_PI + 1.0))
    total = policy_loss + ppo.value_weight * value_loss - ppo.entropy_weight * entropy
    outside = jnp.mean(jnp.abs(ratio - 1.0) > ppo.clip, dtype=jnp.float32)
    return total, Info(policy_loss, value_loss, entropy, jnp.mean(ratio - 1.0 - change), outside)
