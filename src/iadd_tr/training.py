"""Epoch after epoch: the algorithm's loop, an evaluation, and what happened."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iadd_tr.algorithm import mbpo, ppo, sac, slbo
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch
from iadd_tr.settings import Settings, rollout_length
from iadd_tr.stage import Problem
from iadd_tr.tasks.crowd import Played
from iadd_tr.tasks.host import Place


@dataclass(frozen=True)
class Epoch:
    """What an epoch left: the state of all runs, where their environments stand, and a line of metrics for each."""

    number: int
    state: Any
    places: Sequence[Place]
    metrics: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Start:
    """Where training goes on from."""

    epoch: int
    state: Any
    places: Sequence[Place]


def train(
    problem: Problem,
    start: Start | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Iterator[Epoch]:
    """Train all runs of a problem, from the beginning or from `start`, and yield after every epoch."""
    algorithm = algorithm_of(problem.settings)
    batch = Batch(problem, None if start is None else start.places)
    settings, seeds = problem.settings, [row.seed for row in batch.rows]
    evaluator = Evaluator(problem.task, seeds, settings.loop.evaluation_episodes, settings.agent.gamma)
    try:
        yield from epochs(algorithm, batch, evaluator, start, on_step)
    finally:
        batch.close()
        evaluator.close()


def epochs(
    algorithm: Any, batch: Batch, evaluator: Evaluator, start: Start | None, on_step: Callable[[], None]
) -> Iterator[Epoch]:
    """Epoch after epoch of an algorithm."""
    state = algorithm.begin(batch) if start is None else algorithm.go_on(batch, batch.place(start.state))
    batch.report()
    batch.on_step = on_step
    for number in range(0 if start is None else start.epoch, batch.problem.settings.loop.epochs):
        clock = time.perf_counter()
        state = algorithm.epoch(batch, state, number)
        batch.settle()
        if number + 1 < batch.problem.settings.loop.epochs:
            algorithm.look_ahead(batch, state, number + 1)
        played = evaluate(batch, evaluator, state, number)
        metrics = describe(batch, state, number, played, time.perf_counter() - clock)
        yield Epoch(number, state, batch.host.places(), metrics)


def algorithm_of(settings: Settings) -> Any:
    """The module of an algorithm: begin, go_on, epoch, look_ahead and INIT, and its policies in plain arrays."""
    return {"sac": sac, "ppo": ppo, "slbo": slbo}.get(settings.algo, mbpo)


def evaluate(batch: Batch, evaluator: Evaluator, state: Any, epoch: int) -> Played:
    """Episodes [R, E] of the deterministic policies."""
    start = time.perf_counter()
    played = evaluator.play(algorithm_of(batch.problem.settings).reflexes(state), epoch)
    batch.seconds["evaluation"] += time.perf_counter() - start
    return played


def describe(batch: Batch, state: Any, number: int, played: Played, elapsed: float) -> list[dict[str, Any]]:
    """A line of metrics per run."""
    settings = batch.problem.settings
    infos, seconds = batch.report()
    collected = zero_rows(state, len(batch.rows))
    return [
        {
            "epoch": number,
            "run": index,
            "algorithm": label(settings.algo, row.beta),
            "task": settings.task,
            "seed": row.seed,
            "beta": row.beta,
            "zero_ratio": row.zero_ratio,
            "floor": row.floor,
            "environment_steps": (number + 1) * settings.loop.epoch_length,
            "return": float(played.returned[index].mean()),
            "returns": played.returned[index].tolist(),
            "discounted_return": float(played.discounted[index].mean()),
            "episode_steps": played.steps[index].tolist(),
            "rollout_length": rollout_length(settings.loop, number) if isinstance(state, mbpo.State) else 0,
            "zero_rows": collected[index],
            **{f"{stage}/{name}": value for stage, kept in infos.items() for name, value in kept[index].items()},
            "seconds": {**{name: round(value, 4) for name, value in seconds.items()}, "epoch": round(elapsed, 4)},
        }
        for index, row in enumerate(batch.rows)
    ]


def zero_rows(state: Any, runs: int) -> list[int]:
    """How many zero-action rows each run has collected."""
    zeros = state.memory.zeros if isinstance(state, mbpo.State) else None
    return [0] * runs if zeros is None else np.asarray(zeros.size).tolist()


def label(algo: str, beta: float) -> str:
    """An algorithm's name for one run: with TR where its beta is positive."""
    base = algo.removesuffix("-tr")
    return f"{base}-tr" if beta > 0 else base
