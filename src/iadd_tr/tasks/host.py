"""Gymnasium environments on the host, one per run, and their place so that a resumed run stands where it stood."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from iadd_tr.tasks.task import Task, TaskError
from iadd_tr.types import Step

TRAINING, EVALUATION, STARTS = 0, 1, 3  # streams of reset seeds; a run's further environments take the even ones


@dataclass(frozen=True)
class Place:
    """Where an environment stands: the episode it is in and the actions taken since its seeded reset."""

    episode: int
    actions: np.ndarray  # [steps, A]


class Host:
    """Each run's environments; every reset is seeded, so an environment's state is its episode and its actions."""

    def __init__(self, task: Task, seeds: Sequence[int], places: Sequence[Place] | None = None, environments: int = 1):
        self.task = task
        self.seeds = [seed for seed in seeds for _ in range(environments)]
        self.streams = [TRAINING + 2 * number for _ in seeds for number in range(environments)]
        self.envs: list[gym.Env] = [task.make() for _ in self.seeds]
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)
        self.episodes = [0] * len(self.seeds)
        self.trails: list[list[np.ndarray]] = [[] for _ in self.seeds]
        self.observations = np.zeros((len(self.seeds), task.observations), np.float32)
        for seat in range(len(self.seeds)):
            self._reset(seat)
        for seat, place in enumerate(places or []):
            self._replay(seat, place)

    def step(self, actions: np.ndarray) -> Step:
        """Step every environment with its action in [-1, 1]^A; those whose episode is over are reset afterwards."""
        count = len(self.envs)
        before, reached = self.observations.copy(), np.zeros_like(self.observations)
        reward, discount, last = np.zeros(count, np.float32), np.ones(count, np.float32), np.zeros(count, bool)
        for seat in range(count):
            reached[seat], reward[seat], ended, cut = self._advance(seat, actions[seat])
            discount[seat], last[seat] = 0.0 if ended else 1.0, ended or cut
            self.observations[seat] = reached[seat]
            if last[seat]:
                self.episodes[seat] += 1
                self._reset(seat)
        return Step(before, reward, reached, discount, last)

    def places(self) -> list[Place]:
        """Where every environment stands."""
        width = self.task.actions
        return [
            Place(episode, np.array(trail, np.float32).reshape(-1, width))
            for episode, trail in zip(self.episodes, self.trails, strict=True)
        ]

    def starts(self, count: int, step: int) -> np.ndarray:
        """Observations [R, count, O] of fresh resets, which cost no step and leave the environments where they are."""
        env = self.task.make()
        found = [
            [env.reset(seed=episode_seed(seed, step * count + number, STARTS))[0] for number in range(count)]
            for seed in self.seeds
        ]
        env.close()
        return np.asarray(found, np.float32)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _advance(self, seat: int, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        self.trails[seat].append(np.array(action, np.float32))
        scaled = rescale(action, self.low, self.high)
        observation, reward, ended, cut, _ = self.envs[seat].step(scaled)
        where = f"seed {self.seeds[seat]}, step {len(self.trails[seat])} of episode {self.episodes[seat]}"
        check_finite(self.task, where, observation, reward)
        return observation, float(reward), bool(ended), bool(cut)

    def _reset(self, seat: int) -> None:
        self.trails[seat] = []
        seed = episode_seed(self.seeds[seat], self.episodes[seat], self.streams[seat])
        self.observations[seat] = self.envs[seat].reset(seed=seed)[0]
        where = f"seed {self.seeds[seat]}, reset of episode {self.episodes[seat]}"
        check_finite(self.task, where, self.observations[seat])

    def _replay(self, seat: int, place: Place) -> None:
        self.episodes[seat] = place.episode
        self._reset(seat)
        for action in place.actions:
            self.observations[seat] = self._advance(seat, action)[0]


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


def episode_seed(seed: int, episode: int, stream: int = TRAINING) -> int:
    """The seed of a reset, from the run's seed, the episode and what it is for."""
    return int(np.random.SeedSequence([seed, episode, stream]).generate_state(1)[0])
