"""The parts of the loop, each timed through the product's own stages and set beside the work it must do."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iadd_tr.algorithm import mbpo
from iadd_tr.bench import floors, full
from iadd_tr.bench.floors import Work, median_seconds
from iadd_tr.dynamics import fit
from iadd_tr.dynamics.split import holdout_count
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch
from iadd_tr.settings import Algorithm, imagined_limit, rollout_length, rollouts_per_fit
from iadd_tr.stage import Problem, Stage
from iadd_tr.types import Run

Row = dict[str, Any]
STEP_EPOCHS = 5  # epochs of the fit that gives the time of one gradient step
EPISODE = 1000  # steps of an evaluation, at most


def row(part: str, what: str, seconds: float, work: Work, **more: Any) -> Row:
    """A line of the table."""
    about = {"part": part, "what": what, "milliseconds": 1e3 * seconds, "peak_gib": peak_memory()}
    return {**about, **work._asdict(), **more}


def several(runs: int) -> str:
    """How many runs, for people."""
    return "1 run" if runs == 1 else f"{runs} runs"


def peak_memory() -> float:
    """GiB that this process has held on the device at most; nothing where the device does not say."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use", float("nan")) / 2**30


def improving(runs: int, beta: float, collected: full.Rows) -> tuple[Batch, Callable[[], Any]]:
    """Agents on Hopper, and a call that gives them the updates of one environment step."""
    batch = full.batch_of(full.preset("hopper", "mbpo", runs, betas=(beta,), horizon=(1, 1, 0, 1), epochs=1))
    state = full.fresh(batch, collected)
    agent, imagined = state.agent, batch.place(full.filled(state.imagined, collected))

    def improve() -> Any:
        nonlocal agent
        agent = batch(mbpo.IMPROVE, 0, agent, state.memory.real, imagined)
        return agent

    return batch, improve


def updates(runs: int, repeats: int) -> list[Row]:
    """One update of the agents on Hopper, without and with TR."""
    collected = full.collect("hopper", 5000, 1)
    found = []
    for beta in (0.0, 1.0):
        batch, improve = improving(runs, beta, collected)
        each = median_seconds(improve, repeats) / batch.problem.settings.loop.updates_per_step
        needed = floors.update(batch.problem, beta > 0).times(runs)
        label = f"{several(runs)}, {'with' if beta else 'without'} TR"
        found.append(row("update", label, each, needed, runs=runs, beta=beta))
    return found


def fit_main(problem: Problem, step: Any, collected: Any, run: Run, models: mbpo.Models, memory: Any) -> Any:
    """The main model's fit alone, whichever member it has."""
    ensemble, info = fit.fit(
        run.at(3, step), models.main, memory.real, collected, run.model_rate, problem.settings.model, False
    )
    return mbpo.Models(ensemble, models.zero), info


FIT_MAIN = Stage("fit", fit_main, shared=2, spread="members")


def timed_fit(batch: Batch, stage: Stage, rows: int, models: mbpo.Models, memory: Any) -> tuple[Any, float, Any]:
    """A fit, its seconds, and what it says."""
    start = time.perf_counter()
    models = batch(stage, 1, rows, models, memory)
    return models, time.perf_counter() - start, batch.infos["fit"][-1]


def fitting(runs: int, algo: Algorithm, collected: full.Rows) -> tuple[Batch, mbpo.State]:
    """Runs on Hopper whose fits take a few epochs."""
    rows = len(collected["reward"])
    batch = full.batch_of(full.preset("hopper", algo, runs, warm_up=rows, epochs=1, **fitted_for(STEP_EPOCHS)))
    return batch, full.fresh(batch, collected)


def fitted_for(epochs: int | None) -> dict[str, Any]:
    """Settings by which every fit takes so many epochs; none where early stopping decides."""
    return {} if epochs is None else {"fit_epochs": epochs, "patience": epochs}


def gradient_steps(runs: int, rows: int) -> list[Row]:
    """One gradient step of the ensemble on Hopper, as a share of a fit of a few epochs."""
    collected = full.collect("hopper", rows, 1)
    found = []
    members: dict[str, Algorithm] = {"monolith": "mbpo", "two-stage": "iadd"}
    for name, algo in members.items():
        batch, state = fitting(runs, algo, collected)
        models, _, _ = timed_fit(batch, FIT_MAIN, rows, state.models, state.memory)
        _, seconds, _ = timed_fit(batch, FIT_MAIN, rows, models, state.memory)
        each = seconds / STEP_EPOCHS / steps_per_epoch(batch.problem, rows)
        needed = floors.gradient_step(batch.problem).times(runs)
        found.append(row("gradient step", f"{several(runs)}, {name}", each, needed, runs=runs, member=name))
    return found


def steps_per_epoch(problem: Problem, rows: int) -> int:
    """Gradient steps of one epoch of a fit."""
    training = rows - int(holdout_count(jnp.array(rows)))
    return -(-training // problem.settings.model.fit_batch)


def fits(runs: int, sizes: Sequence[int], workers: int) -> list[Row]:
    """One whole fit on Hopper, continued from a fit to the same rows."""
    collected = full.collect("hopper", max(sizes), workers)
    batch = full.batch_of(full.preset("hopper", "mbpo", runs, warm_up=max(sizes), epochs=1))
    found = []
    for size in sizes:
        state = full.fresh(batch, jax.tree.map(lambda x, size=size: x[:size], collected))
        models, _, _ = timed_fit(batch, mbpo.FIT, size, state.models, state.memory)
        _, seconds, info = timed_fit(batch, mbpo.FIT, size, models, state.memory)
        per_run = np.asarray(info.epochs)
        steps = float(per_run.sum()) * steps_per_epoch(batch.problem, size)
        needed = floors.gradient_step(batch.problem).times(steps)
        what = f"{several(runs)}, {size} rows"
        found.append(row("fit", what, seconds, needed, rows=size, fit_epochs=per_run.tolist()))
    return found


def rollouts(runs: int, horizons: Sequence[int], repeats: int) -> list[Row]:
    """Imagined rows of Hopper."""
    collected = full.collect("hopper", 5000, 1)
    batch = full.batch_of(full.preset("hopper", "mbpo", runs, epochs=1, horizon=(1, max(horizons), -1, 0)))
    state = full.fresh(batch, collected)
    settings, found, imagined = batch.problem.settings, [], [state.imagined]
    fixed = state.agent.actor.value, state.models.main, state.memory.real
    for horizon in horizons:

        def imagine(horizon=horizon) -> Any:
            imagined[0] = batch(mbpo.IMAGINE, 0, horizon, imagined_limit(settings.loop, horizon), *fixed, imagined[0])
            return imagined[0]

        seconds = median_seconds(imagine, repeats)
        rows = runs * horizon * rollouts_per_fit(settings.loop, settings.model)
        needed = floors.imagined_row(batch.problem).times(rows)
        what = f"{several(runs)}, horizon {horizon}"
        found.append(row("rollout", what, seconds, needed, rows_per_second=rows / seconds))
    return found


def epochs(task: str, runs: int, blocks: int, workers: int, fit_epochs: int | None = None) -> list[Row]:
    """Epochs of a preset at the beginning, in the middle and at the end of its schedule, and the sum of all; each fit
    of so many epochs, or as early stopping decides."""
    settings = full.preset(task, "mbpo", runs, **fitted_for(fit_epochs))
    last = settings.loop.epochs - 1
    collected = full.collect(task, full.seen(settings, last), workers)
    batch = full.batch_of(settings)
    found, models = [], None
    for number in (0, last // 2, last):
        line, models = epoch(batch, number, collected, blocks, models)
        found.append(line)

    def whole(name: str) -> float:
        return settings.loop.epochs * float(np.trapezoid([line[name] for line in found], [0.0, 0.5, 1.0]))

    what = f"{task}, {several(runs)}, all {last + 1} epochs"
    growth = found[-1]["milliseconds"] / found[0]["milliseconds"]
    needed = Work(whole("operations"), whole("bytes"))
    preset = row("preset", what, whole("milliseconds") / 1e3, needed, task=task, end_over_beginning=growth)
    return [*found, preset]


def epoch(
    batch: full.Part, number: int, collected: Any, blocks: int, models: mbpo.Models | None
) -> tuple[Row, mbpo.Models]:
    """One epoch, timed over its first blocks, with what an evaluation of full episodes takes longer than the fit that
    goes on beside it; and its models."""
    loop = batch.problem.settings.loop
    batch.limit = 1  # compiles what the loop calls
    state = mbpo.epoch(batch, full.advanced(batch, number, collected, models), number)
    batch.limit = min(blocks * loop.fit_every, loop.epoch_length)
    batch.report()
    start = time.perf_counter()
    state = mbpo.epoch(batch, state, number)
    batch.settle()
    seconds = time.perf_counter() - start
    infos, parts = batch.report()
    share = len(batch.steps(number)) / loop.epoch_length
    stages = {name: value / share for name, value in parts.items()}
    beside = stages["fit"] * loop.fit_every / loop.epoch_length if batch.host.apart else 0.0
    stages["evaluation"] = max(evaluation_seconds(batch, state) - beside, 0.0)
    what = f"{batch.problem.settings.task}, {several(len(batch.rows))}, epoch {number + 1}"
    needed = work(batch, number, [info["epochs"] for info in infos["fit"]])
    return row("epoch", what, seconds / share + stages["evaluation"], needed, stages=stages), state.models


def evaluation_seconds(batch: Batch, state: mbpo.State) -> float:
    """One evaluation of every run, were its episodes as long as they may be."""
    with closing(Evaluator(batch.problem.task, [row.seed for row in batch.rows], 1)) as evaluator:
        evaluator.play(mbpo.reflexes(state), 0)  # waits for the processes to be there
        start = time.perf_counter()
        steps = evaluator.play(mbpo.reflexes(state), 1).steps
        return (time.perf_counter() - start) * EPISODE / steps.mean()


def work(batch: Batch, number: int, fit_epochs: Sequence[float]) -> Work:
    """What an epoch must do for all runs, given how many epochs their fits took."""
    problem, runs = batch.problem, len(batch.rows)
    loop, rows = problem.settings.loop, full.seen(problem.settings, number)
    turns = loop.epoch_length // loop.fit_every
    imagined = turns * rollout_length(loop, number) * rollouts_per_fit(loop, problem.settings.model)
    steps = turns * sum(fit_epochs) * steps_per_epoch(problem, rows)
    updates = runs * loop.epoch_length * loop.updates_per_step
    agents = floors.update(problem, problem.settings.targeted).times(updates)
    models = floors.gradient_step(problem).times(steps)
    return agents.plus(models).plus(floors.imagined_row(problem).times(runs * imagined))
