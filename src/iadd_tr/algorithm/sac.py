"""SAC, the model-free baseline: act, improve on real rows."""

import equinox as eqx
import jax
from jaxtyping import Array, Int

from iadd_tr import replay
from iadd_tr.agent import sac
from iadd_tr.algorithm import collect
from iadd_tr.algorithm.collect import ACT, STORE, Memory
from iadd_tr.experiment import Batch
from iadd_tr.replay import Replay
from iadd_tr.stage import Problem, Stage
from iadd_tr.types import Run


class State(eqx.Module):
    agent: sac.State
    memory: Memory


def epoch(batch: Batch, state: State, number: int) -> State:
    """One epoch: act, improve the agent while the environments step."""
    agent, memory = state.agent, state.memory
    for step in batch.steps(number):
        choice = batch(ACT, step, agent.actor.value, batch.observations)
        stepping = batch.execute(choice)
        agent = batch(IMPROVE, step, agent, memory.real)
        memory = batch(STORE, memory, choice, stepping())
    return State(agent, memory)


def begin(batch: Batch) -> State:
    """Fresh states, and a warm-up of uniform actions."""
    return collect.warm_up(batch, batch(INIT))


def init(problem: Problem, run: Run) -> tuple[State, None]:
    """A fresh agent and an empty buffer."""
    task, settings = problem.task, problem.settings
    agent_key, _ = jax.random.split(run.at(0, 0))
    agent = sac.init(agent_key, task.observations, task.actions, settings.agent, settings.targeted)
    return State(agent, collect.init(problem)), None


def draw(problem: Problem, step: Int[Array, ""], run: Run, real: Replay) -> tuple[sac.Minibatches, None]:
    """Real rows for the updates of one environment step."""
    settings = problem.settings
    row_key, noise_key = jax.random.split(run.at(5, step))
    rows = replay.sample(row_key, real, settings.loop.updates_per_step, settings.agent.batch)
    return sac.with_noise(noise_key, rows), None


def improve(
    problem: Problem, step: Int[Array, ""], run: Run, agent: sac.State, minibatches: sac.Minibatches
) -> tuple[sac.State, sac.Info]:
    """The updates of one environment step."""
    del step
    return sac.improve(agent, minibatches, run, problem.settings.agent)


INIT = Stage("init", init)
DRAW = Stage("update", draw, shared=1, wait=False)
IMPROVE = Stage("update", improve, shared=1, donate=(0,), wait=False, spread="rows", source=DRAW)
go_on, look_ahead, reflexes = collect.go_on, collect.look_ahead, collect.reflexes
