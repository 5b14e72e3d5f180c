"""Choosing real actions and storing what they led to; zero-action rows go where no agent looks."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import replay
from iadd_tr.agent import policy
from iadd_tr.experiment import Batch, Problem, Stage
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.nets import MLP
from iadd_tr.replay import Replay
from iadd_tr.types import PRNGKey, Run, Step, Transition


class Choice(eqx.Module):
    """An action about to be executed, and whether it is the reference action in place of the policy's."""

    action: Float[Array, " A"]
    log_density: Float[Array, ""]
    replaced: Bool[Array, ""]


class Memory(eqx.Module):
    """Real rows for the agent and the model, and zero-action rows for the zero-action model alone."""

    real: Replay
    zeros: Replay | None


def init(problem: Problem) -> Memory:
    """Empty buffers for the whole budget; none for zero rows where there are none and no model asks for them."""
    task, loop = problem.task, problem.settings.loop
    budget = loop.warm_up + loop.epochs * loop.epoch_length
    zeros = replay.init(budget, task.observations, task.actions) if problem.settings.stores_zeros else None
    return Memory(replay.init(budget, task.observations, task.actions), zeros)


def warm_up(batch: Batch, state: Any) -> Any:
    """Fill a fresh state's memory with rows of uniform actions."""
    memory = state.memory
    for step in range(batch.problem.settings.loop.warm_up):
        choice = batch(EXPLORE, step)
        memory = batch(STORE, memory, choice, batch.execute(choice))
    return dataclasses.replace(state, memory=memory)


def go_on(batch: Batch, state: Any) -> Any:
    """The state of a checkpoint, with room for the epochs asked for now."""
    return dataclasses.replace(state, memory=batch(GROW, state.memory))


def acting(state: Any) -> MLP:
    """The policy's network."""
    return state.agent.actor.value


def explore(problem: Problem, step: Int[Array, ""], run: Run) -> tuple[Choice, None]:
    """A uniform action of the warm-up."""
    action_key, replace_key = jax.random.split(run.at(1, step))
    action = jax.random.uniform(action_key, (problem.task.actions,), minval=-1.0, maxval=1.0)
    density = jnp.array(uniform_log_density(problem.task.actions), jnp.float32)
    return replace(replace_key, problem, run, action, density), None


def act(
    problem: Problem, step: Int[Array, ""], run: Run, actor: MLP, observation: Float[Array, " O"]
) -> tuple[Choice, None]:
    """The policy's stochastic action with its density, Eq. 3."""
    action_key, replace_key = jax.random.split(run.at(2, step))
    action, density = policy.sample(action_key, actor, observation)
    return replace(replace_key, problem, run, action, density), None


def replace(
    key: PRNGKey, problem: Problem, run: Run, action: Float[Array, " A"], log_density: Float[Array, ""]
) -> Choice:
    """With probability lambda_0, the reference action instead."""
    replaced = jax.random.bernoulli(key, run.zero_ratio)
    return Choice(jnp.where(replaced, jnp.array(problem.task.anchor), action), log_density, replaced)


def store(problem: Problem, run: Run, memory: Memory, choice: Choice, step: Step) -> tuple[Memory, None]:
    """Append a row to the buffer it belongs to."""
    del problem, run
    row = Transition(
        step.observation, choice.action, choice.log_density, step.reward, step.next_observation, step.discount
    )
    rows = jax.tree.map(lambda x: x[None], row)
    real = replay.extend(memory.real, rows, ~choice.replaced[None])
    zeros = None if memory.zeros is None else replay.extend(memory.zeros, rows, choice.replaced[None])
    return Memory(real, zeros), None


def grow(problem: Problem, run: Run, memory: Memory) -> tuple[Memory, None]:
    """Let the buffers use all their room."""
    del problem, run
    return Memory(replay.grow(memory.real), None if memory.zeros is None else replay.grow(memory.zeros)), None


def mode(problem: Problem, run: Run, actor: MLP, observation: Float[Array, "E O"]) -> tuple[Float[Array, "E A"], None]:
    """The deterministic actions of evaluation."""
    del problem, run
    return policy.mode(actor, observation), None


EXPLORE = Stage("act", explore, shared=1)
ACT = Stage("act", act, shared=1)
STORE = Stage("act", store, donate=(0,), wait=False)
GROW = Stage("init", grow, donate=(0,))
MODE = Stage("evaluation", mode)
