"""Epoch after epoch: the algorithm's loop, an evaluation, and what happened."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iadd_tr.algorithm import mbpo, sac
from iadd_tr.algorithm.collect import EXPLORE, GROW, MODE, STORE
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch, Problem
from iadd_tr.settings import Settings, rollout_length
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
    evaluator = Evaluator(problem.task, [row.seed for row in batch.rows], problem.settings.loop.evaluation_episodes)
    state = begin(batch, algorithm) if start is None else go_on(batch, start)
    batch.report()
    batch.on_step = on_step
    for number in range(0 if start is None else start.epoch, problem.settings.loop.epochs):
        clock = time.perf_counter()
        state = algorithm.epoch(batch, state, number)
        batch.settle()
        returns = evaluate(batch, evaluator, state, number)
        metrics = describe(batch, state, number, returns, time.perf_counter() - clock)
        yield Epoch(number, state, batch.host.places(), metrics)
    batch.host.close()
    evaluator.close()


def algorithm_of(settings: Settings) -> Any:
    """The module with an algorithm's stages: INIT and epoch."""
    return sac if settings.algo == "sac" else mbpo


def begin(batch: Batch, algorithm: Any) -> Any:
    """Fresh states, and a warm-up of uniform actions."""
    state = batch(algorithm.INIT)
    memory = state.memory
    for step in range(batch.problem.settings.loop.warm_up):
        choice = batch(EXPLORE, step)
        memory = batch(STORE, memory, *batch.execute(choice))
    return dataclasses.replace(state, memory=memory)


def go_on(batch: Batch, start: Start) -> Any:
    """The state of a checkpoint, with room for the epochs asked for now."""
    return dataclasses.replace(start.state, memory=batch(GROW, start.state.memory))


def evaluate(batch: Batch, evaluator: Evaluator, state: Any, epoch: int) -> np.ndarray:
    """Returns [R, E] of the deterministic policies."""
    start, counted = time.perf_counter(), batch.seconds["evaluation"]
    returns = evaluator.returns(
        lambda observation: np.asarray(batch(MODE, state.agent.actor.value, observation)), epoch
    )
    batch.seconds["evaluation"] = counted + time.perf_counter() - start
    return returns


def describe(batch: Batch, state: Any, number: int, returns: np.ndarray, elapsed: float) -> list[dict[str, Any]]:
    """A line of metrics per run."""
    settings = batch.problem.settings
    infos, seconds = batch.report()
    zeros = state.memory.zeros
    collected = np.zeros(len(batch.rows), int) if zeros is None else np.asarray(zeros.size)
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
            "return": float(returns[index].mean()),
            "returns": returns[index].tolist(),
            "rollout_length": 0 if settings.algo == "sac" else rollout_length(settings.loop, number),
            "zero_rows": int(collected[index]),
            **{f"{stage}/{name}": value for stage, kept in infos.items() for name, value in kept[index].items()},
            "seconds": {**{name: round(value, 4) for name, value in seconds.items()}, "epoch": round(elapsed, 4)},
        }
        for index, row in enumerate(batch.rows)
    ]


def label(algo: str, beta: float) -> str:
    """An algorithm's name for one run: with TR where its beta is positive."""
    base = algo.removesuffix("-tr")
    return f"{base}-tr" if beta > 0 else base
