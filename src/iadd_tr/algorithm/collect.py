"""Choosing real actions and storing what they led to; zero-action rows go where no agent looks."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import evaluate, replay
from iadd_tr.agent import policy
from iadd_tr.experiment import Batch
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.nets import MLP
from iadd_tr.replay import Replay
from iadd_tr.stage import Problem, Stage
from iadd_tr.tasks.envs import Reflex
from iadd_tr.types import PRNGKey, Run, Step, Transition


class Choice(eqx.Module):
    """An action about to be executed, and whether it is the reference action in place of the policy's."""

    action: Float[Array, "*B A"]
    log_density: Float[Array, "*B"]
    replaced: Bool[Array, "*B"]


class Memory(eqx.Module):
    """Real rows for the agent and the model, and zero-action rows that only a model is fitted to."""

    real: Replay
    zeros: Replay | None


def init(problem: Problem) -> Memory:
    """Empty buffers for the whole budget; none for zero rows where there are none and no model asks for them."""
    task, loop = problem.task, problem.settings.loop
    budget = loop.warm_up + loop.epochs * loop.epoch_length
    zeros = replay.init(budget, task.observations, task.actions) if problem.settings.stores_zeros else None
    return Memory(replay.init(budget, task.observations, task.actions), zeros)


def everything(memory: Memory) -> Replay:
    """All collected rows in one buffer: together they are never more than its room."""
    if memory.zeros is None:
        return memory.real
    return replay.extend(memory.real, memory.zeros.rows, replay.live(memory.zeros))


def warm_up(batch: Batch, state: Any) -> Any:
    """Fill a fresh state's memory with rows of uniform actions, all drawn, taken and stored at once."""
    if batch.problem.settings.loop.warm_up == 0:
        return state
    choices = batch(EXPLORE)
    return dataclasses.replace(state, memory=batch(STORE, state.memory, choices, batch.walk(choices)))


def go_on(batch: Batch, state: Any) -> Any:
    """The state of a checkpoint, with room for the epochs asked for now."""
    return dataclasses.replace(state, memory=batch(GROW, state.memory))


def look_ahead(batch: Batch, state: Any, number: int) -> None:
    """An epoch begins with an action, of which nothing can be done before."""
    del batch, state, number


def reflexes(state: Any) -> list[Reflex]:
    """The deterministic policies of evaluation: tanh of the mean."""
    nets = state.agent.actor.value
    return evaluate.reflexes(nets, nets.layers[-1].bias.shape[-1] // 2, "tanh")


def explore(problem: Problem, run: Run) -> tuple[Choice, None]:
    """The uniform actions of the warm-up."""
    density = jnp.array(uniform_log_density(problem.task.actions), jnp.float32)

    def one(step: Int[Array, ""]) -> Choice:
        action_key, replace_key = jax.random.split(run.at(1, step))
        action = jax.random.uniform(action_key, (problem.task.actions,), minval=-1.0, maxval=1.0)
        return replace(replace_key, problem, run, action, density)

    return jax.vmap(one)(jnp.arange(problem.settings.loop.warm_up)), None


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
    """Append a row, or several in the order they came, to the buffers they belong to."""
    del problem, run
    row = Transition(
        step.observation, choice.action, choice.log_density, step.reward, step.next_observation, step.discount
    )
    rows, replaced = row, choice.replaced
    if replaced.ndim == 0:
        rows, replaced = jax.tree.map(lambda x: x[None], (row, replaced))
    real = replay.extend(memory.real, rows, ~replaced)
    zeros = None if memory.zeros is None else replay.extend(memory.zeros, rows, replaced)
    return Memory(real, zeros), None


def grow(problem: Problem, run: Run, memory: Memory) -> tuple[Memory, None]:
    """Let the buffers use all their room."""
    del problem, run
    return Memory(replay.grow(memory.real), None if memory.zeros is None else replay.grow(memory.zeros)), None


EXPLORE = Stage("act", explore)
ACT = Stage("act", act, shared=1, wait=False)
STORE = Stage("act", store, donate=(0,), wait=False)
GROW = Stage("init", grow, donate=(0,))
