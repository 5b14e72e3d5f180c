"""Does splitting a transition help with actions the policy would not take? Members of equal size on the same steps."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from iadd_tr import replay
from iadd_tr.algorithm import mbpo
from iadd_tr.algorithm.collect import Memory
from iadd_tr.dynamics import fit
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.nets import MLP
from iadd_tr.replay import Replay
from iadd_tr.runs import rows
from iadd_tr.settings import override
from iadd_tr.stage import Problem
from iadd_tr.study import accuracy, interventions
from iadd_tr.study.accuracy import HORIZONS, Paths, Score
from iadd_tr.study.designs import Design, Study, parameter_count, sized
from iadd_tr.study.interventions import KINDS, PATH_KINDS, Plan, Tests
from iadd_tr.tasks import presets
from iadd_tr.tasks.simulator import Simulator
from iadd_tr.tasks.task import Task, resolve
from iadd_tr.types import Run, Transition

BINS = 8


class Snapshot(eqx.Module):
    """R agents at one moment of their training: what they collected, and what their models will be asked."""

    real: Transition  # [R, C]
    zeros: Transition  # [R, Z]
    sizes: Int[Array, "R 2"]  # live rows of both
    tests: Tests  # [R, ...]


class Measured(eqx.Module):
    """One ensemble's answers."""

    scores: Score  # [K]
    open_loop: Float[Array, "P 3"]
    squared: Float[Array, "K N"]


def agents(study: Study, task: Task, size: int) -> Problem:
    """SAC with a tenth of zero actions, kept apart from its replay, for `size` environment steps in all."""
    settings = override(
        presets.settings(task.name, "sac"),
        runs=study.seeds,
        zero_ratios=(0.1,),
        warm_up=study.warm_up,
        epochs=(size - study.warm_up) // study.epoch_length,
        epoch_length=study.epoch_length,
        fit_every=study.epoch_length,
    )
    return Problem(task, settings)


def snapshot(study: Study, problem: Problem, actors: MLP, memory: Memory) -> Snapshot:
    """The collected rows of all runs, and tests made with their policies as they are now."""
    if memory.zeros is None:
        raise ValueError("The agents kept no zero-action rows.")
    simulator = Simulator(problem.task)
    plan, table = Plan(study.states, study.paths, steps=min(1000, 2 * study.states)), rows(problem.settings)
    nets = [jax.tree.map(lambda x, run=run: x[run], actors) for run in range(len(table))]
    tests = [
        interventions.make(
            jax.random.fold_in(jax.random.key(row.seed), problem.settings.loop.epochs),
            simulator,
            nets[run],
            nets[(run + 1) % len(nets)] if len(nets) > 1 else None,
            row.seed,
            plan,
        )
        for run, row in enumerate(table)
    ]
    sizes = jnp.stack([memory.real.size, memory.zeros.size], axis=1)
    return Snapshot(used(memory.real), used(memory.zeros), sizes, jax.tree.map(lambda *x: jnp.stack(x), *tests))


def used(buffer: Replay) -> Transition:
    """The rows [R, C] that some run has filled."""
    count = int(jnp.max(buffer.size))
    return jax.tree.map(lambda x: x[:, :count], buffer.rows)


def problem_of(study: Study, task: str, design: Design) -> Problem:
    """The design's member and fit as the algorithm has them."""
    resolved = resolve(task)
    settings = presets.settings(task, design.algo)
    base = replace(
        settings.model, members=study.members, elites=study.elites, width=study.width, fit_epochs=study.fit_epochs
    )
    model = sized(design, base, resolved.observations, resolved.actions)
    return Problem(resolved, replace(settings, runs=study.seeds, model=model))


def remember(design: Design, capacity: int, real: Transition, zeros: Transition, sizes: Int[Array, " 2"]) -> Memory:
    """One run's buffers with the rows that the design sees, as large for a small replay as for a large one."""
    empty = replay.init(capacity, real.observation.shape[-1], real.action.shape[-1])
    live, still = (jnp.arange(part.reward.size) < size for part, size in zip((real, zeros), sizes, strict=True))
    return Memory(replay.extend(empty, real, live), replay.extend(empty, zeros, still) if design.zeros else None)


def fit_one(problem: Problem, collected: Int[Array, ""], run: Run, memory: Memory) -> tuple[Ensemble, fit.Info]:
    """Fit one run's fresh models to all it collected, the zero-action model first where the design has one."""
    model_key, zero_key = jax.random.split(run.at(0, 0))
    models = mbpo.init_models(model_key, zero_key, problem)
    fitted, info = mbpo.fit_models(problem, jnp.zeros((), int), collected, run, models, memory)
    return fitted.main, info


def measure(ensemble: Ensemble, tests: Tests) -> Measured:
    """One ensemble on all of its tests."""
    unit = accuracy.units(jax.tree.map(lambda x: x[0], tests.rows))

    def one(rows: Transition) -> tuple[Score, Float[Array, " N"]]:
        prediction = accuracy.predict(ensemble, rows.observation, rows.action)
        return accuracy.judge(prediction, rows, unit), accuracy.squared_errors(prediction, rows, unit)

    def far(paths: Paths) -> Float[Array, " 3"]:
        return accuracy.open_loop(ensemble, paths, unit)

    scores, squared = jax.lax.map(one, tests.rows)
    return Measured(scores, jax.lax.map(far, tests.paths), squared)


def results(problem: Problem, size: int, name: str, measured: Measured, cost: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each seed and kind of action; `cost` holds a number or one per seed."""
    measured = jax.device_get(measured)
    task, settings = problem.task, problem.settings
    count = parameter_count(settings.model, settings.two_stage, task.observations, task.actions)
    about = {"width": settings.model.width, "parameters": count, **cost}
    return [
        {
            "task": task.name,
            "steps": size,
            "seed": row.seed,
            "design": name,
            "action": kind,
            **{metric: float(values[run, i]) for metric, values in vars(measured.scores).items()},
            **{f"open_loop_{h}": _distance(measured, run, kind, j) for j, h in enumerate(HORIZONS)},
            **{key: np.ravel(value)[run % np.size(value)].item() for key, value in about.items()},
        }
        for run, row in enumerate(rows(settings))
        for i, kind in enumerate(KINDS[: measured.squared.shape[1]])
    ]


def _distance(measured: Any, run: int, kind: str, horizon: int) -> float:
    return float(measured.open_loop[run, PATH_KINDS.index(kind), horizon]) if kind in PATH_KINDS else float("nan")


def bins(task: str, size: int, name: str, tests: Transition, measured: Measured) -> list[dict[str, Any]]:
    """The error by how unlikely the action was, without the reference action, which was taken by order."""
    kinds = [i for i, kind in enumerate(KINDS[: tests.reward.shape[1]]) if kind != "zero"]
    surprise, squared = -np.asarray(tests.log_density)[:, kinds], np.asarray(measured.squared)[:, kinds]
    return [{"task": task, "steps": size, "design": name, **row} for row in binned(surprise, squared)]


def binned(surprise: Float[np.ndarray, "R K N"], squared: Float[np.ndarray, "R K N"]) -> list[dict[str, Any]]:
    """Root mean square errors by -log pi(a|s), in bins of equally many rows of all runs."""
    edges = np.quantile(surprise, np.linspace(0, 1, BINS + 1)[1:-1])
    place = np.searchsorted(edges, surprise)
    return [
        {
            "seed": 1 + run,
            "bin": number,
            "surprise": float(np.median(surprise[place == number])),
            "error": float(np.sqrt(np.mean(squared[run][place[run] == number]))),
        }
        for run in range(len(surprise))
        for number in range(BINS)
        if np.any(place[run] == number)
    ]
