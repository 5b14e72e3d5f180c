"""Environments side by side: in processes of their own where cores are to spare, else here, one after another."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np

from iadd_tr.tasks import envs
from iadd_tr.tasks.envs import Envs, Life, Reflex

RESERVED = 2  # cores for the program that trains
LONGEST_EPISODE = 10_000  # an environment without a time limit is cut here
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "MKL", "OMP")}  # a worker has one core


class Moved(NamedTuple):
    """What some steps of several environments led to, [n, T]."""

    reached: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    cut: np.ndarray
    following: np.ndarray  # what is seen next: where an episode is over, the start of another


class Played(NamedTuple):
    """Whole episodes, a row for each."""

    returned: np.ndarray
    discounted: np.ndarray
    steps: np.ndarray


class Crowd:
    """Environments of one task by number, in as many groups as there are cores to spare for."""

    def __init__(self, make: Callable[[], gym.Env], count: int):
        self.make, self.count = make, count
        groups = min(count, spare_cores())
        self.workers = hire(make, [len(range(group, count, groups)) for group in range(groups)]) if groups > 1 else []

    @cached_property
    def groups(self) -> Sequence["Worker | Here"]:
        """Who steps which: environment n is the (n // G)th of group n % G."""
        problems = [worker.reply()[1] for worker in self.workers]
        if self.workers and not any(problems):
            return self.workers
        for worker in self.workers:
            worker.close()
        return [Here(self.make, self.count)]

    def reset(self, seats: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start episodes; where each begins."""
        return self._ask("reset", seats, (seeds,))[0]

    def step(self, seats: np.ndarray, lives: Sequence[Life], actions: np.ndarray) -> Moved:
        """Some steps of each, with actions [n, T, A] in the task's own units."""
        return Moved(*self._ask("step", seats, ([tuple(life) for life in lives], actions)))

    def play(
        self, seeds: np.ndarray, policies: Sequence[Reflex], bounds: tuple[np.ndarray, np.ndarray], gamma: float
    ) -> Played:
        """A whole episode of every environment with its own policy."""
        packed = [tuple(policy) for policy in policies]
        columns = self._ask("play", np.arange(self.count), (seeds, packed), bounds, gamma, LONGEST_EPISODE)
        return Played(*columns)

    def close(self) -> None:
        for group in vars(self).get("groups", self.workers):  # no environment is made only to be closed
            group.close()

    def _ask(self, name: str, seats: np.ndarray, columns: Sequence[Any], *common: Any) -> list[np.ndarray]:
        """The columns of all groups' answers, their rows in the order of `seats`; each group is asked for its own."""
        inner, owner = np.divmod(seats, len(self.groups))
        parts = [(group, np.flatnonzero(owner == number)) for number, group in enumerate(self.groups)]
        parts = [(group, places) for group, places in parts if places.size]
        for group, places in parts:
            group.ask(name, inner[places], *(rows(column, places) for column in columns), *common)
        answers = [group.answer() for group, _ in parts]
        order = np.argsort(np.concatenate([places for _, places in parts]))
        return [np.concatenate(column)[order] for column in zip(*answers, strict=True)]


def rows(column: Any, places: np.ndarray) -> Any:
    """Some rows of an array or of a list."""
    return column[places] if isinstance(column, np.ndarray) else [column[place] for place in places]


class Here:
    """Environments of this process."""

    def __init__(self, make: Callable[[], gym.Env], count: int):
        self.envs = Envs(make, count)

    def ask(self, name: str, *arguments: Any) -> None:
        self.result = getattr(self.envs, name)(*arguments)

    def answer(self) -> Any:
        return self.result

    def close(self) -> None:
        self.envs.close()


class Worker:
    """Environments of another process, which ends with this one."""

    def __init__(self, make: bytes, count: int):
        self.process = subprocess.Popen(
            [sys.executable, "-P", envs.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.ask("make", make, count)

    def ask(self, name: str, *arguments: Any) -> None:
        """Begin; `answer` waits for the end."""
        assert self.process.stdin is not None
        pickle.dump((name, arguments), self.process.stdin, pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()

    def reply(self) -> tuple[Any, str | None]:
        """The answer, or what went wrong."""
        assert self.process.stdout is not None
        try:
            return pickle.load(self.process.stdout)
        except EOFError:
            return None, f"The process of some environments has ended with code {self.process.wait()}."

    def answer(self) -> Any:
        answer, problem = self.reply()
        if problem is not None:
            raise RuntimeError(problem)
        return answer

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


def hire(make: Callable[[], gym.Env], sizes: Sequence[int]) -> list[Worker]:
    """A worker for each number of environments; none where the factory cannot leave this process."""
    try:
        packed = cloudpickle.dumps(make)
    except Exception:
        return []
    return [Worker(packed, size) for size in sizes]


def spare_cores() -> int:
    """How many cores the training program leaves."""
    return max(len(os.sched_getaffinity(0)) - RESERVED, 0) if hasattr(os, "sched_getaffinity") else 0
