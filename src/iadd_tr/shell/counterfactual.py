"""The counterfactual study's folder: agents and their replays collected once, each result kept once it is there."""

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iadd_tr.runs import rows, traced
from iadd_tr.shell import checkpoint, config, keep
from iadd_tr.shell.errors import require
from iadd_tr.shell.run import restore
from iadd_tr.stage import Problem
from iadd_tr.study import counterfactual as study
from iadd_tr.study.accuracy import Paths
from iadd_tr.study.counterfactual import Snapshot
from iadd_tr.study.designs import DESIGNS, Study
from iadd_tr.study.interventions import Tests
from iadd_tr.tasks.simulator import RUNNERS
from iadd_tr.tasks.task import resolve
from iadd_tr.training import train
from iadd_tr.types import Transition

Bar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
Programs = tuple[Callable, Callable]
CHECKPOINT_EVERY = 5


def check(chosen: Study) -> None:
    """Refuse what cannot be run."""
    elsewhere = [name for name in chosen.tasks if name not in RUNNERS]
    grid = [(size - chosen.warm_up) % max(chosen.epoch_length, 1) for size in chosen.sizes]
    require(
        [
            known(chosen.forms),
            (bool(chosen.tasks) and not elsewhere, f"--tasks must be among {', '.join(RUNNERS)}"),
            (1 <= chosen.seeds < 1000, "--seeds must lie between 1 and 999"),
            (chosen.warm_up >= 10, "--warm-up must be 10 or more"),
            (bool(chosen.sizes) and min(chosen.sizes) > chosen.warm_up, "--sizes must be larger than --warm-up"),
            (chosen.epoch_length >= 1 and not any(grid), "--sizes must be --warm-up and a number of --epoch-length"),
            (1 <= chosen.paths <= chosen.states, "--paths must lie between 1 and --states"),
            (1 <= chosen.elites <= chosen.members, "--elites must lie between 1 and --members"),
            (min(chosen.width, chosen.fit_epochs) >= 1, "--width and --fit-epochs must be 1 or more"),
        ]
    )


def known(forms: Sequence[str]) -> tuple[bool, str]:
    """The rule that designs must be among those there are."""
    unknown = [name for name in forms if name not in DESIGNS]
    return not unknown, f"--forms knows no {', '.join(unknown)}; take any of {', '.join(DESIGNS)}"


def collect(chosen: Study, task: str, folder: Path, bar: Bar) -> None:
    """Train the agents to each size in turn, and keep a snapshot of them there."""
    folder.mkdir(exist_ok=True)
    for size in sorted(chosen.sizes):
        if (folder / f"{size}.npz").exists():
            continue
        problem = study.agents(chosen, resolve(task), size)
        state = advance(problem, folder, bar)
        save(folder / f"{size}.npz", study.snapshot(chosen, problem, state.agent.actor.value, state.memory))


def advance(problem: Problem, folder: Path, bar: Bar) -> Any:
    """The agents after their epochs, from the last checkpoint on."""
    loop, begin = problem.settings.loop, restore(problem, folder)
    first, state = (0, None) if begin is None else (begin.epoch, begin.state)
    steps = loop.warm_up + loop.epochs * loop.epoch_length
    with bar(f"{problem.task.name}, agents up to {steps} steps", loop.epochs - first) as tick:
        for done in train(problem, begin):
            state = done.state
            if (done.number + 1) % CHECKPOINT_EVERY == 0 or done.number + 1 == loop.epochs:
                checkpoint.save(folder, config.fingerprint(problem.settings), done.number + 1, state, done.places)
            tick()
    return jax.device_put(state)


def compare(chosen: Study, task: str, folder: Path, tick: Callable[[], None]) -> None:
    """Fit and measure every design at every size; what is already there is not made again.

    All seeds of a design are fitted by one program, at every size the same, compiled while those before it run.
    """
    missing = {
        name: [size for size in chosen.sizes if not result_path(folder, size, name).exists()] for name in chosen.forms
    }
    compiler = ThreadPoolExecutor(1)
    try:
        programs = {
            name: compiler.submit(compiled, chosen, task, name, folder) for name, sizes in missing.items() if sizes
        }
        for name, sizes in missing.items():
            for _ in set(chosen.sizes) - set(sizes):
                tick()
            for size in sizes:
                keep.write(result_path(folder, size, name), evaluated(chosen, task, name, folder, size, programs[name]))
                tick()
    finally:
        compiler.shutdown(wait=False, cancel_futures=True)


def compiled(chosen: Study, task: str, name: str, folder: Path) -> Programs:
    """The programs that fit and measure a design."""
    problem = study.problem_of(chosen, task, DESIGNS[name])
    arguments, snapshot = jax.eval_shape(lambda: fit_arguments(chosen, problem, name, folder, min(chosen.sizes)))
    fit = jax.jit(jax.vmap(partial(study.fit_one, problem), (None, 0, 0))).lower(*arguments)
    measure = jax.jit(jax.vmap(study.measure)).lower(fit.out_info[0], snapshot.tests)
    return fit.compile(), measure.compile()


def fit_arguments(chosen: Study, problem: Problem, name: str, folder: Path, size: int) -> tuple[Any, Snapshot]:
    """What a fit at some size is given, and the snapshot that it is of."""
    snapshot = load(folder / f"{size}.npz")
    remember = jax.jit(jax.vmap(partial(study.remember, DESIGNS[name], max(chosen.sizes))))
    memory = remember(snapshot.real, snapshot.zeros, snapshot.sizes)
    return (jnp.int32(size), traced(problem.settings, rows(problem.settings)), memory), snapshot


def evaluated(
    chosen: Study, task: str, name: str, folder: Path, size: int, programs: Future[Programs]
) -> dict[str, Any]:
    """One design's result at one size."""
    problem, (fit, measure) = study.problem_of(chosen, task, DESIGNS[name]), programs.result()
    arguments, snapshot = jax.block_until_ready(fit_arguments(chosen, problem, name, folder, size))
    start = time.perf_counter()
    ensemble, info = jax.block_until_ready(fit(*arguments))
    cost = {"fit_epochs": np.asarray(info.epochs), "fit_seconds": time.perf_counter() - start}
    measured = measure(ensemble, snapshot.tests)
    table = study.results(problem, size, name, measured, cost)
    return {"table": table, "bins": study.bins(task, size, name, snapshot.tests.rows, measured)}


def result_path(folder: Path, size: int, name: str) -> Path:
    """Where one design's result at one size lies."""
    return folder / f"{size}-{name}.json"


def gather(chosen: Study, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of the table and of the bins of everything asked for."""
    found = [
        json.loads(result_path(folder / task, size, name).read_text())
        for task in chosen.tasks
        for size in chosen.sizes
        for name in chosen.forms
    ]
    table, bins = ([row for result in found for row in result[part]] for part in ("table", "bins"))
    return table, bins


def save(path: Path, snapshot: Snapshot) -> None:
    """A snapshot as named arrays, whole or not at all."""
    parts = {"real": snapshot.real, "zeros": snapshot.zeros, "rows": snapshot.tests.rows, "paths": snapshot.tests.paths}
    arrays = {f"{name}/{key}": value for name, part in parts.items() for key, value in vars(part).items()}
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, sizes=snapshot.sizes, **arrays)
    os.replace(partial, path)


def load(path: Path) -> Snapshot:
    """The inverse of `save`."""
    with np.load(path) as file:
        arrays = {name: jnp.asarray(file[name]) for name in file.files}

    def part(kind: Any, name: str) -> Any:
        return kind(**{f.name: arrays[f"{name}/{f.name}"] for f in fields(kind)})

    tests = Tests(part(Transition, "rows"), part(Paths, "paths"))
    return Snapshot(part(Transition, "real"), part(Transition, "zeros"), arrays["sizes"], tests)
