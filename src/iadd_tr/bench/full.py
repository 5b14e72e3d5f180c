"""Runs in the middle of their schedule: buffers as full as they would be, of real rows, and a fitted model."""

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from iadd_tr import replay
from iadd_tr.algorithm import mbpo
from iadd_tr.experiment import Batch
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.replay import Replay
from iadd_tr.settings import Algorithm, Settings, imagined_limit, override, rollout_length
from iadd_tr.stage import Problem
from iadd_tr.tasks import presets
from iadd_tr.tasks.host import Host
from iadd_tr.tasks.task import resolve
from iadd_tr.types import Transition

Rows = dict[str, np.ndarray]
ALONE = 20_000  # as many rows are collected without helpers


class Part(Batch):
    """A batch whose epochs end early."""

    limit: int | None = None

    def steps(self, epoch: int) -> range:
        return super().steps(epoch)[: self.limit]


def preset(task: str, algo: Algorithm, runs: int, **changes: object) -> Settings:
    """A preset's settings for so many runs."""
    return override(replace(presets.settings(task, algo), runs=runs), **changes)


def batch_of(settings: Settings) -> Part:
    return Part(Problem(resolve(settings.task), settings))


def uniform_rows(task: str, count: int, seed: int) -> Rows:
    """Real rows of uniform actions."""
    host = Host(resolve(task), [seed])
    actions = np.random.default_rng(seed).uniform(-1.0, 1.0, (1, count, host.task.actions)).astype(np.float32)
    walked = host.walk(actions)
    density = np.full(count, uniform_log_density(host.task.actions), np.float32)
    found = {name: getattr(walked, name)[0] for name in ("observation", "reward", "next_observation", "discount")}
    host.close()
    return {"action": actions[0], "log_density": density, **found}


def collect(task: str, count: int, workers: int) -> Rows:
    """Many real rows, by several processes at once where they are many."""
    if count <= ALONE or workers == 1:
        return uniform_rows(task, count, 1)
    shares = [len(part) for part in np.array_split(np.arange(count), workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(uniform_rows, [task] * workers, shares, range(1, workers + 1)))
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def filled(buffer: Replay, rows: Rows) -> Replay:
    """Every run's buffer with the same rows."""
    count = len(rows["reward"])
    given = Transition(**{name: jnp.asarray(column) for name, column in rows.items()})

    def one(buffer: Replay) -> Replay:
        stored = jax.tree.map(lambda old, new: old.at[:count].set(new), buffer.rows, given)
        return replay.shortened(dataclasses.replace(buffer, rows=stored), count)

    return jax.vmap(one)(buffer)


def fresh(batch: Batch, rows: Rows) -> mbpo.State:
    """New runs that have seen these rows."""
    state = batch(mbpo.INIT)
    memory = dataclasses.replace(state.memory, real=filled(state.memory.real, rows))
    return batch.place(dataclasses.replace(state, memory=memory))


def seen(settings: Settings, epoch: int) -> int:
    """Real rows at the beginning of an epoch."""
    return settings.loop.warm_up + epoch * settings.loop.epoch_length


def advanced(batch: Batch, epoch: int, rows: Rows, earlier: mbpo.Models | None) -> mbpo.State:
    """Runs at the beginning of an epoch: the models of an earlier one fitted once more, where there are any, and
    imagined rows as many as are kept."""
    settings = batch.problem.settings
    loop, count = settings.loop, seen(settings, epoch)
    state = fresh(batch, jax.tree.map(lambda x: x[:count], rows))
    models = batch(mbpo.FIT, 0, count, earlier or state.models, state.memory)
    imagined, length = state.imagined, rollout_length(loop, epoch)
    for turn in range(loop.kept_epochs * loop.epoch_length // loop.fit_every):
        imagined = batch(
            mbpo.IMAGINE, turn, length, imagined_limit(loop, length),
            state.agent.actor.value, models.main, state.memory.real, imagined,
        )  # fmt: skip
    return dataclasses.replace(state, models=models, imagined=imagined)
