"""Gymnasium environments on the host, one per run, and their place so that a resumed run stands where it stood."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iadd_tr.tasks.crowd import Crowd, Moved
from iadd_tr.tasks.envs import rescale
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
        self.seats = np.arange(len(self.seeds))
        self.crowd = Crowd(task.make, len(self.seeds))
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)
        self.episodes = [0 if places is None else places[seat].episode for seat in range(len(self.seeds))]
        self.trails: list[list[np.ndarray]] = [[] for _ in self.seeds]
        self.observations = np.zeros((len(self.seeds), task.observations), np.float32)
        self._reset(self.seats)
        self._replay([place.actions for place in places or []])

    def step(self, actions: np.ndarray) -> Step:
        """Step every environment with its action in [-1, 1]^A; those whose episode is over are reset afterwards."""
        before = self.observations.copy()
        moved = self._advance(self.seats, actions)
        reached = self.observations.copy()
        last = moved.ended | moved.cut
        if last.any():
            over = np.flatnonzero(last)
            for seat in over:
                self.episodes[seat] += 1
            self._reset(over)
        return Step(before, moved.reward.astype(np.float32), reached, (~moved.ended).astype(np.float32), last)

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
        self.crowd.close()

    def _advance(self, seats: np.ndarray, actions: np.ndarray) -> Moved:
        for seat, action in zip(seats, actions, strict=True):
            self.trails[seat].append(np.array(action, np.float32))
        moved = self.crowd.step(seats, rescale(actions, self.low, self.high))
        self.observations[seats] = moved.observation
        for seat in seats[not_finite(np.column_stack([moved.observation, moved.reward]))]:
            where = f"seed {self.seeds[seat]}, step {len(self.trails[seat])} of episode {self.episodes[seat]}"
            raise nonsense(self.task, where)
        return moved

    def _reset(self, seats: np.ndarray) -> None:
        seeds = [episode_seed(self.seeds[seat], self.episodes[seat], self.streams[seat]) for seat in seats]
        self.observations[seats] = self.crowd.reset(seats, np.array(seeds))
        for seat in seats:
            self.trails[seat] = []
        for seat in seats[not_finite(self.observations[seats])]:
            raise nonsense(self.task, f"seed {self.seeds[seat]}, reset of episode {self.episodes[seat]}")

    def _replay(self, trails: Sequence[np.ndarray]) -> None:
        """Take the actions of the environments' unfinished episodes again."""
        for number in range(max(map(len, trails), default=0)):
            seats = np.array([seat for seat, trail in enumerate(trails) if number < len(trail)])
            self._advance(seats, np.array([trails[seat][number] for seat in seats]))


def not_finite(numbers: np.ndarray) -> np.ndarray:
    """The rows with a number that is not finite."""
    return np.flatnonzero(~np.all(np.isfinite(numbers), axis=1))


def nonsense(task: Task, where: str) -> TaskError:
    """What to say of a number that is not finite, before it reaches a buffer or a report."""
    return TaskError(
        f"Task '{task.name}' gave a number that is not finite ({where}); the last checkpoint is intact: mend the "
        "environment and go on with --resume."
    )


def episode_seed(seed: int, episode: int, stream: int = TRAINING) -> int:
    """The seed of a reset, from the run's seed, the episode and what it is for."""
    return int(np.random.SeedSequence([seed, episode, stream]).generate_state(1)[0])
