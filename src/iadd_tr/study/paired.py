"""Critics of a frozen policy, trained by the agent's own updates in ways that differ in their targeting alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from iadd_tr import replay
from iadd_tr.agent import critic, sac, targeted
from iadd_tr.agent.targeted import Solved
from iadd_tr.runs import Row, traced
from iadd_tr.settings import Agent, Settings
from iadd_tr.study.frozen import Frozen, Pairs
from iadd_tr.types import Run, Transition


@dataclass(frozen=True)
class Variant:
    """One way to target."""

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


class Choice(eqx.Module):
    """A variant's scalars, traced."""

    beta: Float[Array, ""]
    log_floor: Float[Array, ""]
    rate: Float[Array, ""]
    logged: Float[Array, ""]
    shared: Float[Array, ""]

    def of(self, run: Run) -> Run:
        """A seed's run with this variant's scalars."""
        scalars = self.beta, self.log_floor, self.rate
        return eqx.tree_at(lambda r: (r.beta, r.log_floor, r.targeted_rate), run, scalars)


class Critics(eqx.Module):
    """A seed's critics, which no variant changes, and sums over their updates: their values and the mean size."""

    state: sac.State
    value: Float[Array, " P"]
    size: Float[Array, ""]


class Correction(eqx.Module):
    """A variant's correction of a seed's critics, and sums: the adjusted values and the mean size of what is added."""

    fast: Any
    slow: Any
    value: Float[Array, " P"]
    size: Float[Array, ""]


def batch(settings: Settings, variants: Sequence[Variant], seeds: Sequence[int]) -> tuple[Run, Choice]:
    """The seeds' runs and the variants' scalars."""
    runs = traced(settings, [Row(seed, 0.0, 0.0, 1.0) for seed in seeds])
    scalars = [(v.beta, np.log(v.floor), v.rate, v.density == "logged", v.shared) for v in variants]
    return runs, jax.vmap(Choice)(*jnp.array(scalars, jnp.float32).T)


@partial(jax.jit, static_argnames="agent")
def begin(agent: Agent, frozen: Frozen, pairs: Pairs, runs: Run, choices: Choice) -> tuple[Critics, Correction]:
    """Fresh critics [S, ...] of the frozen policy and a correction of zero for each variant [S, V, ...]."""
    sizes = frozen.rows.observation.shape[1], frozen.rows.action.shape[1]
    nothing = jnp.zeros_like(pairs.soft), jnp.zeros(())

    def one(run: Run) -> tuple[Critics, Correction]:
        state = sac.init(run.at(0, 0), *sizes, agent, with_targeting=True)
        values = frozen.actor, jnp.log(frozen.temperature)
        state = eqx.tree_at(lambda s: (s.actor.value, s.log_temperature.value), state, values)
        plain, own = split(state)
        return Critics(plain, *nothing), jax.vmap(lambda _: Correction(*own, *nothing))(choices)

    return jax.vmap(one)(runs)


def split(state: sac.State) -> tuple[sac.State, tuple[Any, Any]]:
    """What is the critics' and what is the correction's."""
    return replace(state, epsilon=None, slow_epsilon=None), (state.epsilon, state.slow_epsilon)


def minibatches(rows: int, size: int) -> int:
    """Of one epoch; the last is filled up with rows of the first."""
    return -(-rows // size)


@partial(jax.jit, static_argnames="agent", donate_argnames=("critics", "corrections"))
def epoch(
    agent: Agent,
    rows: Transition,
    pairs: Pairs,
    number: Int[Array, ""] | int,
    runs: Run,
    choices: Choice,
    critics: Critics,
    corrections: Correction,
) -> tuple[Critics, Correction]:
    """All rows once, in an order and with target actions that depend on the seed and the epoch alone.

    The critics have no axis of variants, which the program could not be built without if any variant changed them.
    """

    def one(run: Run, choice: Choice, critics: Critics, correction: Correction) -> tuple[Critics, Correction]:
        order_key, noise_key = jax.random.split(run.at(1, number))
        shape = minibatches(rows.reward.size, agent.batch), agent.batch
        order = jnp.resize(jax.random.permutation(order_key, rows.reward.size), shape)
        noise = jax.random.normal(noise_key, (*shape, rows.action.shape[1]))

        def step(carry: tuple[Critics, Correction], x: Any) -> tuple[tuple[Critics, Correction], None]:
            critics, own = carry
            state = replace(critics.state, epsilon=own.fast, slow_epsilon=own.slow)
            noise = sac.Noise(x[1], x[1])
            state = update(noise, state, replay.take(rows, x[0]), choice.of(run), choice.shared, agent)
            return add(carry, state, pairs, choice), None

        return jax.lax.scan(step, (critics, correction), (order, noise))[0]

    of_seed = jax.vmap(one, in_axes=(None, 0, None, 0), out_axes=(None, 0))
    return jax.vmap(of_seed, in_axes=(0, None, 0, 0))(runs, choices, critics, corrections)


def update(
    noise: sac.Noise, state: sac.State, rows: Transition, run: Run, shared: Float[Array, ""], agent: Agent
) -> sac.State:
    """The critics' part of an agent's update; a correction that is solved for is solved after each."""
    state, _ = sac.update_critics(noise, state, rows, run, agent)
    if not isinstance(state.epsilon, Solved):
        return state
    epsilon = jax.tree.map(lambda own, joint: jnp.where(shared > 0, joint, own), state.epsilon, share(state.epsilon))
    solved = targeted.resolve(epsilon, run.beta, run.log_floor, agent.epsilon_ridge)
    return eqx.tree_at(lambda s: s.epsilon, state, solved)


def share(epsilon: Solved) -> Solved:
    """Let both twins have the same equations, and so the same correction: the means of their own."""

    def mean(sides: Float[Array, "2 *F"]) -> Float[Array, "2 *F"]:
        return jnp.broadcast_to(jnp.mean(sides, axis=0, keepdims=True), sides.shape)

    means = mean(epsilon.moment), mean(epsilon.bootstrap)
    return eqx.tree_at(lambda e: (e.moment, e.bootstrap), epsilon, means)


def add(sums: tuple[Critics, Correction], state: sac.State, pairs: Pairs, choice: Choice) -> tuple[Critics, Correction]:
    """The sums with the values of the critics as they are now."""
    critics, own = sums
    plain, (fast, slow) = split(state)
    twins = critic.values(plain.critics.value, pairs.observation, pairs.action)
    log_density = jnp.where(choice.logged > 0, pairs.logged, pairs.log_density)
    adjusted = jnp.min(targeted.adjust(fast.value, twins, pairs.action, log_density, choice.log_floor), axis=0)
    value = jnp.min(twins, axis=0)
    return (
        Critics(plain, critics.value + value, critics.size + jnp.mean(jnp.abs(value))),
        Correction(fast, slow, own.value + adjusted, own.size + jnp.mean(jnp.abs(adjusted - value))),
    )
