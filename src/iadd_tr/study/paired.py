"""Critics of a frozen policy, trained by the agent's own updates in ways that differ in their targeting alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import replay
from iadd_tr.agent import critic, sac, targeted
from iadd_tr.agent.targeted import Solved
from iadd_tr.experiment import Row, traced
from iadd_tr.settings import Agent, Settings
from iadd_tr.study.frozen import Frozen, Pairs
from iadd_tr.types import Run, Transition


@dataclass(frozen=True)
class Variant:
    """One way to target; beta is 0 where there is none."""

    name: str
    beta: float = 1.0
    floor: float = 1.0
    rate: float = 3e-4
    """Of the correction fitted by gradient."""
    density: Literal["policy", "logged"] = "policy"
    """Which density divides the correction at the pairs: the policy's, or that of the action once taken there."""
    shared: bool = False
    """One solved correction for both twins, instead of one for each."""
    agent: tuple[tuple[str, Any], ...] = ()
    """Fields of the agent's settings, which make another program."""


WITHOUT = Variant("without", beta=0.0)


class Choice(eqx.Module):
    """A variant's switches, traced."""

    logged: Bool[Array, ""]
    shared: Bool[Array, ""]


class Tally(eqx.Module):
    """Sums over critic updates: the values at the pairs, their mean size and the mean size of what is added."""

    value: Float[Array, " P"]
    size: Float[Array, ""]
    correction: Float[Array, ""]


def batch(settings: Settings, members: Sequence[Variant], seeds: Sequence[int]) -> tuple[Run, Choice]:
    """Every variant with every seed as runs of one batch."""
    each = [(variant, seed) for variant in members for seed in seeds]
    runs = traced(settings, [Row(seed, variant.beta, 0.0, variant.floor) for variant, seed in each])
    rates = jnp.array([variant.rate for variant, _ in each])
    switches = jnp.array([[variant.density == "logged", variant.shared] for variant, _ in each])
    return eqx.tree_at(lambda r: r.targeted_rate, runs, rates), jax.vmap(Choice)(*switches.T)


@partial(jax.jit, static_argnames="agent")
def begin(agent: Agent, frozen: Frozen, pairs: Pairs, runs: Run) -> tuple[sac.State, Tally]:
    """Fresh critics of the frozen policy, equal for equal seeds, and empty tallies."""
    sizes = frozen.rows.observation.shape[1], frozen.rows.action.shape[1]

    def one(run: Run) -> tuple[sac.State, Tally]:
        state = sac.init(run.at(0, 0), *sizes, agent, with_targeting=True)
        values = frozen.actor, jnp.log(frozen.temperature)
        state = eqx.tree_at(lambda s: (s.actor.value, s.log_temperature.value), state, values)
        return state, Tally(jnp.zeros_like(pairs.soft), jnp.zeros(()), jnp.zeros(()))

    return jax.vmap(one)(runs)


def minibatches(rows: int, size: int) -> int:
    """Of one epoch; the last is filled up with rows of the first."""
    return -(-rows // size)


@partial(jax.jit, static_argnames="agent", donate_argnames=("states", "tallies"))
def epoch(
    agent: Agent,
    rows: Transition,
    pairs: Pairs,
    number: Int[Array, ""] | int,
    runs: Run,
    choices: Choice,
    states: sac.State,
    tallies: Tally,
) -> tuple[sac.State, Tally]:
    """All rows once, in an order and with target actions that depend on the seed and the epoch alone."""

    def one(run: Run, choice: Choice, state: sac.State, tally: Tally) -> tuple[sac.State, Tally]:
        order_key, noise_key = jax.random.split(run.at(1, number))
        shape = minibatches(rows.reward.size, agent.batch), agent.batch
        order = jnp.resize(jax.random.permutation(order_key, rows.reward.size), shape)
        noise = jax.random.normal(noise_key, (*shape, rows.action.shape[1]))
        density = jnp.where(choice.logged, pairs.logged, pairs.log_density)

        def step(carry: tuple[sac.State, Tally], x: Any) -> tuple[tuple[sac.State, Tally], None]:
            state, tally = carry
            state = update(sac.Noise(x[1], x[1]), state, replay.take(rows, x[0]), run, choice, agent)
            return (state, add(tally, state, pairs, density, run)), None

        return jax.lax.scan(step, (state, tally), (order, noise))[0]

    return jax.vmap(one)(runs, choices, states, tallies)


def update(noise: sac.Noise, state: sac.State, rows: Transition, run: Run, choice: Choice, agent: Agent) -> sac.State:
    """The critics' part of an agent's update; a correction that is solved for is solved after each."""
    state, _ = sac.update_critics(noise, state, rows, run, agent)
    if not isinstance(state.epsilon, Solved):
        return state
    epsilon = jax.tree.map(lambda own, joint: jnp.where(choice.shared, joint, own), state.epsilon, share(state.epsilon))
    solved = targeted.resolve(epsilon, run.beta, run.log_floor, agent.epsilon_ridge)
    return eqx.tree_at(lambda s: s.epsilon, state, solved)


def share(epsilon: Solved) -> Solved:
    """Let both twins have the same equations, and so the same correction: the means of their own."""

    def mean(sides: Float[Array, "2 *F"]) -> Float[Array, "2 *F"]:
        return jnp.broadcast_to(jnp.mean(sides, axis=0, keepdims=True), sides.shape)

    means = mean(epsilon.moment), mean(epsilon.bootstrap)
    return eqx.tree_at(lambda e: (e.moment, e.bootstrap), epsilon, means)


def add(tally: Tally, state: sac.State, pairs: Pairs, log_density: Float[Array, " P"], run: Run) -> Tally:
    """The tally with the values of the critics as they are now."""
    twins = critic.values(state.critics.value, pairs.observation, pairs.action)
    epsilon = None if state.epsilon is None else state.epsilon.value
    adjusted = jnp.min(targeted.adjust(epsilon, twins, pairs.action, log_density, run.log_floor), axis=0)
    value = jnp.min(twins, axis=0)
    return Tally(
        tally.value + adjusted,
        tally.size + jnp.mean(jnp.abs(value)),
        tally.correction + jnp.mean(jnp.abs(adjusted - value)),
    )
