"""An agent frozen while it trains, and the Monte-Carlo returns of its policy from states it has visited."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iadd_tr import replay
from iadd_tr.agent import policy
from iadd_tr.nets import MLP
from iadd_tr.tasks.simulator import Simulator, Trail, retrace
from iadd_tr.tasks.task import Task, TaskError
from iadd_tr.types import PRNGKey, Transition


class Frozen(eqx.Module):
    """What the diagnostic takes from an agent: its policy, rows to train critics on, and rows held out of them."""

    actor: MLP
    temperature: Float[Array, ""]
    rows: Transition
    held_out: Transition
    states: Float[Array, "B S"]  # the simulator's, in which the held-out rows were collected


@dataclass(frozen=True)
class Sizes:
    rows: int
    held_out: int
    hidden: int


def blank(task: Task, sizes: Sizes) -> Frozen:
    """The shapes of a frozen agent."""
    states = jnp.zeros((sizes.held_out, task.observations + 2))  # with the clock and the place on the track
    rows, held_out = (replay.init(n, task.observations, task.actions).rows for n in (sizes.rows, sizes.held_out))
    actor = policy.init(jax.random.key(0), task.observations, task.actions, sizes.hidden)
    return Frozen(actor, jnp.zeros(()), rows, held_out, states)


def freeze(state: Any, simulator: Simulator, sizes: Sizes, seed: int) -> Frozen:
    """The first run of a SAC state, its rows drawn uniformly from all it has collected."""
    state = jax.tree.map(lambda x: jnp.asarray(x[0]), state)
    size = int(state.memory.real.size)
    rows = jax.tree.map(lambda x: x[:size], state.memory.real.rows)
    held_out, used = np.split(np.random.default_rng([seed, size]).permutation(size), [sizes.held_out])
    states, kept = retrace(simulator, seed, rows, held_out), replay.take(rows, jnp.asarray(held_out))
    if not np.allclose(simulator.observe(states), kept.observation, atol=1e-4):
        raise TaskError("The agent's replay does not follow from its seeds and actions; train it anew in this version.")
    return Frozen(
        actor=state.agent.actor.value,
        temperature=jnp.exp(state.agent.log_temperature.value),
        rows=replay.take(rows, jnp.asarray(used[: sizes.rows])),
        held_out=kept,
        states=jnp.asarray(states, jnp.float32),
    )


class Pairs(eqx.Module):
    """Held-out states, each with K actions of the policy, and the return of one trajectory from each pair."""

    observation: Float[Array, "P O"]
    action: Float[Array, "P A"]
    latent: Float[Array, "P A"]  # the action before tanh, from which a saturated action cannot be told
    log_density: Float[Array, " P"]  # the policy's
    logged: Float[Array, " P"]  # of the action that was taken in the state when it was visited
    soft: Float[Array, " P"]  # discounted rewards and entropies: what the critic of SAC estimates
    plain: Float[Array, " P"]  # discounted rewards alone
    length: Float[Array, " P"]  # steps until the end or the horizon


def unfollowed(task: Task, count: int) -> Pairs:
    """The shapes of so many pairs."""
    observation, action, number = (jnp.zeros((count, *size)) for size in ((task.observations,), (task.actions,), ()))
    return Pairs(observation, action, action, number, number, number, number, number)


def trajectories(
    key: PRNGKey,
    frozen: Frozen,
    simulator: Simulator,
    count: int,
    horizon: int,
    gamma: float,
    advance: Callable[[], None] = lambda: None,
) -> Pairs:
    """Follow the policy from `count` of its own actions at every held-out state."""
    first_key, key = jax.random.split(key)
    observation = jnp.repeat(frozen.held_out.observation, count, axis=0)
    mean, log_std = policy.distribution(frozen.actor, observation)
    noise = jax.random.normal(first_key, mean.shape)
    action, log_density = policy.respond(noise, frozen.actor, observation)
    entropies: list[np.ndarray] = []

    def act(t: int, seen: np.ndarray) -> np.ndarray:
        advance()
        chosen, density = _sample(jax.random.fold_in(key, t), frozen.actor, seen)
        entropies.append(-np.asarray(density))
        return np.resize(np.asarray(action), chosen.shape) if t == 0 else np.asarray(chosen)

    trail = simulator.follow(np.repeat(np.asarray(frozen.states, np.float64), count, axis=0), act, horizon)
    for _ in range(len(entropies), horizon):  # all had ended
        advance()
    plain = returns(trail.reward, gamma)
    return Pairs(
        observation=observation,
        action=action,
        latent=mean + jnp.exp(log_std) * noise,
        log_density=log_density,
        logged=jnp.repeat(frozen.held_out.log_density, count),
        soft=jnp.asarray(plain + float(frozen.temperature) * returns(later(trail, entropies), gamma)),
        plain=jnp.asarray(plain),
        length=jnp.asarray(trail.live.sum(axis=0), jnp.float32),
    )


_sample = jax.jit(policy.sample)


def later(trail: Trail, entropies: list[np.ndarray]) -> Float[np.ndarray, "H B"]:
    """The entropies of all actions but the first, which Q is given."""
    table = np.zeros_like(trail.reward)
    for t, found in enumerate(entropies):
        table[t, trail.live[t]] = found[: trail.live[t].sum()]
    table[0] = 0.0
    return table


def returns(reward: Float[np.ndarray, "H B"], gamma: float) -> Float[np.ndarray, " B"]:
    """Discounted sums."""
    return (gamma ** np.arange(len(reward)) @ reward).astype(np.float32)


@jax.jit
def score_gradients(actor: MLP, pairs: Pairs, values: Float[Array, "V P"]) -> Float[Array, "V D"]:
    """Means of grad log pi(a | s) times each value, Eq. 13: the same pairs and score vectors for all of them."""

    def log_density(actor: MLP) -> Float[Array, " P"]:
        mean, log_std = policy.distribution(actor, pairs.observation)
        return jnp.sum(-0.5 * ((pairs.latent - mean) * jnp.exp(-log_std)) ** 2 - log_std, axis=-1)

    with jax.default_matmul_precision("highest"):  # values of 100 are weighed by scores whose mean is zero
        _, pull = jax.vjp(log_density, actor)
        return jax.lax.map(lambda value: jax.flatten_util.ravel_pytree(pull(value / value.size)[0])[0], values)


def cosine(one: Float[Array, "V D"], other: Float[Array, " D"]) -> Float[Array, " V"]:
    """Of the angle between each gradient and another."""
    return one @ other / (jnp.linalg.norm(one, axis=1) * jnp.linalg.norm(other))
