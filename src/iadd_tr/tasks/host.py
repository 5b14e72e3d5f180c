"""Gymnasium environments on the host, one per run, and their place so that a resumed run stands where it stood."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from iadd_tr.tasks.task import Task, TaskError


@dataclass(frozen=True)
class Step:
    """What one step of all runs gave, before any reset."""

    next_observation: np.ndarray  # [R, O]
    reward: np.ndarray  # [R]
    discount: np.ndarray  # [R], 0 only at a true end


@dataclass(frozen=True)
class Place:
    """Where an environment stands: the episode it is in and the actions taken since its seeded reset."""

    episode: int
    actions: np.ndarray  # [steps, A]


class Host:
    """One environment per run; every reset is seeded, so an environment's state is its episode and its actions."""

    def __init__(self, task: Task, seeds: Sequence[int], places: Sequence[Place] | None = None):
        self.task = task
        self.seeds = list(seeds)
        self.envs: list[gym.Env] = [task.make() for _ in seeds]
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)
        self.episodes = [0] * len(self.seeds)
        self.trails: list[list[np.ndarray]] = [[] for _ in self.seeds]
        self.observations = np.zeros((len(self.seeds), task.observations), np.float32)
        for run in range(len(self.seeds)):
            self._reset(run)
        for run, place in enumerate(places or []):
            self._replay(run, place)

    def step(self, actions: np.ndarray) -> Step:
        """Step every run with its action in [-1, 1]^A; runs that ended or ran out of time are reset afterwards."""
        count = len(self.envs)
        reached = np.zeros_like(self.observations)
        reward, discount = np.zeros(count, np.float32), np.ones(count, np.float32)
        for run in range(count):
            reached[run], reward[run], ended, cut = self._advance(run, actions[run])
            discount[run] = 0.0 if ended else 1.0
            self.observations[run] = reached[run]
            if ended or cut:
                self.episodes[run] += 1
                self._reset(run)
        return Step(reached, reward, discount)

    def places(self) -> list[Place]:
        """Where every run's environment stands."""
        width = self.task.actions
        return [
            Place(episode, np.array(trail, np.float32).reshape(-1, width))
            for episode, trail in zip(self.episodes, self.trails, strict=True)
        ]

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _advance(self, run: int, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        self.trails[run].append(np.array(action, np.float32))
        scaled = rescale(action, self.low, self.high)
        observation, reward, ended, cut, _ = self.envs[run].step(scaled)
        where = f"seed {self.seeds[run]}, step {len(self.trails[run])} of episode {self.episodes[run]}"
        check_finite(self.task, where, observation, reward)
        return observation, float(reward), bool(ended), bool(cut)

    def _reset(self, run: int) -> None:
        self.trails[run] = []
        seed = episode_seed(self.seeds[run], self.episodes[run])
        self.observations[run] = self.envs[run].reset(seed=seed)[0]
        where = f"seed {self.seeds[run]}, reset of episode {self.episodes[run]}"
        check_finite(self.task, where, self.observations[run])

    def _replay(self, run: int, place: Place) -> None:
        self.episodes[run] = place.episode
        self._reset(run)
        for action in place.actions:
            self.observations[run] = self._advance(run, action)[0]


def check_finite(task: Task, where: str, *numbers: Any) -> None:
    """Stop at a number that is not finite, before it reaches a buffer or a report."""
    if not all(np.all(np.isfinite(number)) for number in numbers):
        raise TaskError(
            f"Task '{task.name}' gave a number that is not finite ({where}); the last checkpoint is intact: mend the "
            "environment and go on with --resume."
        )


def rescale(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """From [-1, 1] to the task's bounds, never past them."""
    return np.clip(low + (np.float64(action) + 1.0) * 0.5 * (high - low), low, high).astype(np.float32)


def episode_seed(seed: int, episode: int, stream: int = 0) -> int:
    """The seed of a reset, from the run's seed, the episode and what it is for (0 training, 1 evaluation)."""
    return int(np.random.SeedSequence([seed, episode, stream]).generate_state(1)[0])
