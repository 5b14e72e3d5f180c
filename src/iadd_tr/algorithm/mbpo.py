"""MBPO, MBPO+TR, IADD and IADD+TR: one loop (Fig. 2a); the member and beta make the difference."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from iadd_tr import replay, rollout
from iadd_tr.agent import sac
from iadd_tr.algorithm import collect
from iadd_tr.algorithm.collect import ACT, STORE, Memory
from iadd_tr.algorithm.sac import improve
from iadd_tr.dynamics import ensemble, fit, zero
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.experiment import Batch
from iadd_tr.nets import MLP
from iadd_tr.replay import Replay
from iadd_tr.settings import imagined_limit, rollout_length, rollouts_per_fit
from iadd_tr.stage import Problem, Stage
from iadd_tr.types import PRNGKey, Run


class Models(eqx.Module):
    """The dynamics model and, where zero-action rows are generated, the zero-action model that makes them."""

    main: Ensemble
    zero: Ensemble | None


class State(eqx.Module):
    agent: sac.State
    models: Models
    memory: Memory
    imagined: Replay


def epoch(batch: Batch, state: State, number: int) -> State:
    """One epoch: fit the model, branch rollouts, act, improve the agent while the environments step."""
    loop = batch.problem.settings.loop
    agent, models, memory, imagined = state.agent, state.models, state.memory, state.imagined
    length = rollout_length(loop, number)
    limit = imagined_limit(loop, length)
    for step in batch.steps(number):
        if step % loop.fit_every == 0:
            models = batch(FIT, step, loop.warm_up + step, models, memory)
            imagined = batch(IMAGINE, step, length, limit, agent.actor.value, models.main, memory.real, imagined)
        choice = batch(ACT, step, agent.actor.value, batch.observations)
        stepping = batch.execute(choice)
        agent = batch(IMPROVE, step, agent, memory.real, imagined)
        memory = batch(STORE, memory, choice, stepping())
    return State(agent, models, memory, imagined)


def look_ahead(batch: Batch, state: State, number: int) -> None:
    """Begin the first fit of an epoch while the agents of the one before are evaluated."""
    step = batch.steps(number)[0]
    batch.look_ahead(FIT, step, batch.problem.settings.loop.warm_up + step, state.models, state.memory)


def begin(batch: Batch) -> State:
    """Fresh states, and a warm-up of uniform actions while the loop's stages are compiled."""
    return collect.warm_up(batch, prepare(batch, batch(INIT)))


def go_on(batch: Batch, state: State) -> State:
    """The state of a checkpoint, with room for the epochs asked for now."""
    return prepare(batch, collect.go_on(batch, state))


def prepare(batch: Batch, state: State) -> State:
    """Let the stages of an epoch be compiled side by side; the state is what they will be called with."""
    actor, real = state.agent.actor.value, state.memory.real
    batch.prepare(FIT, 0, 0, state.models, state.memory)
    batch.prepare(IMPROVE, 0, state.agent, real, state.imagined)
    batch.prepare(IMAGINE, 0, 0, 0, actor, state.models.main, real, state.imagined)
    batch.prepare(ACT, 0, actor, batch.observations)
    return state


def init(problem: Problem, run: Run) -> tuple[State, None]:
    """Fresh networks and empty buffers."""
    task, settings = problem.task, problem.settings
    agent_key, model_key, zero_key = jax.random.split(run.at(0, 0), 3)
    last = rollout_length(settings.loop, settings.loop.epochs - 1)
    state = State(
        sac.init(agent_key, task.observations, task.actions, settings.agent, settings.targeted),
        init_models(model_key, zero_key, problem),
        collect.init(problem),
        replay.init(imagined_limit(settings.loop, last), task.observations, task.actions),
    )
    return state, None


def init_models(key: PRNGKey, zero_key: PRNGKey, problem: Problem) -> Models:
    """Fresh members: for IADD two-stage ones, and monolithic ones for a zero-action model."""
    task, settings = problem.task, problem.settings
    fresh = partial(ensemble.init, model=settings.model, observations=task.observations, actions=task.actions)
    main = fresh(key, reference=jnp.array(task.anchor) if settings.two_stage else None)
    return Models(main, fresh(zero_key, reference=None) if settings.generates_zeros else None)


def fit_models(
    problem: Problem, step: Int[Array, ""], collected: Int[Array, ""], run: Run, models: Models, memory: Memory
) -> tuple[Models, fit.Info]:
    """Fit the model to all rows; or fit the zero-action model, let it make rows, and fit the model with them."""
    settings = problem.settings.model
    zero_key, row_key, main_key = jax.random.split(run.at(3, step), 3)
    train = partial(fit.fit, rate=run.model_rate, model=settings, learn_ending=problem.task.ending is None)
    if models.zero is None or memory.zeros is None:
        main, info = train(main_key, models.main, collect.everything(memory), collected)
        return Models(main, None), info
    share = jnp.where(run.zero_ratio > 0, settings.zero_fraction, 0.0)
    pace = jnp.ceil(collected * settings.zero_fraction).astype(jnp.int32)
    zero_model, _ = train(zero_key, models.zero, memory.zeros, pace)
    extra = zero.generate(row_key, zero_model, memory.real, memory.zeros, jnp.array(problem.task.anchor), share)
    main, info = train(main_key, models.main, memory.real, collected, extra=extra)
    return Models(main, zero_model), info


def imagine(
    problem: Problem,
    step: Int[Array, ""],
    length: Int[Array, ""],
    limit: Int[Array, ""],
    run: Run,
    actor: MLP,
    model: Ensemble,
    real: Replay,
    imagined: Replay,
) -> tuple[Replay, None]:
    """Branch rollouts of the current policy from real states."""
    start_key, rollout_key = jax.random.split(run.at(4, step))
    settings = problem.settings
    start = replay.sample(start_key, real, rollouts_per_fit(settings.loop, settings.model)).observation
    imagined = replay.resize(imagined, limit)
    noise = settings.loop.imagined_noise
    return rollout.imagine(rollout_key, actor, model, start, length, problem.task.ending, imagined, noise), None


def draw(
    problem: Problem, step: Int[Array, ""], run: Run, real: Replay, imagined: Replay
) -> tuple[sac.Minibatches, None]:
    """Mostly imagined rows for the updates of one environment step."""
    loop, size = problem.settings.loop, problem.settings.agent.batch
    real_rows = int(size * loop.real_share)
    real_key, imagined_key, noise_key = jax.random.split(run.at(5, step), 3)
    rows = replay.concatenate(
        replay.sample(real_key, real, loop.updates_per_step, real_rows),
        replay.sample(imagined_key, imagined, loop.updates_per_step, size - real_rows),
    )
    return sac.with_noise(noise_key, rows), None


INIT = Stage("init", init)
FIT = Stage("fit", fit_models, shared=2, spread="members")
IMAGINE = Stage("rollout", imagine, shared=3, donate=(3,))
DRAW = Stage("update", draw, shared=1, wait=False)
IMPROVE = Stage("update", improve, shared=1, donate=(0,), wait=False, spread="rows", source=DRAW)
reflexes = collect.reflexes
