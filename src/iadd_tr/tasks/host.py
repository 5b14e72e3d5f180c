"""Gymnasium environments on the host, one per run, and their place so that a resumed run stands where it stood."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iadd_tr.tasks.crowd import Crowd, Moved
from iadd_tr.tasks.envs import Life, episode_seed, rescale
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
        streams = [TRAINING + 2 * number for _ in seeds for number in range(environments)]
        episodes = [0 if places is None else places[seat].episode for seat in range(len(self.seeds))]
        self.lives = [Life(*life) for life in zip(self.seeds, streams, episodes, strict=True)]
        self.seats = np.arange(len(self.seeds))
        self.crowd = Crowd(task.make, len(self.seeds))
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)
        self.trails: list[list[np.ndarray]] = [[] for _ in self.seeds]
        starts = np.array([life.start for life in self.lives])
        self.observations = self.crowd.reset(self.seats, starts).astype(np.float32)
        for seat in np.flatnonzero(~finite(self.observations)):
            raise nonsense(task, f"seed {self.seeds[seat]}, reset of episode {episodes[seat]}")
        self._replay([place.actions for place in places or []])

    @property
    def apart(self) -> bool:
        """Whether the environments step in processes of their own."""
        return self.crowd.groups is self.crowd.workers

    def step(self, actions: np.ndarray) -> Step:
        """Step every environment with its action in [-1, 1]^A; those whose episode is over are reset afterwards."""
        return Step(self.walk(actions[:, None]).numbers[:, 0])

    def walk(self, actions: np.ndarray) -> Step:
        """As many steps as there are actions [R, T, A], all at once."""
        before = self.observations[:, None].copy()
        moved = self._advance(self.seats, actions)
        observation = np.concatenate([before, moved.following[:, :-1]], axis=1)
        return Step.of(observation, moved.reward, moved.reached, moved.ended, moved.ended | moved.cut)

    def places(self) -> list[Place]:
        """Where every environment stands."""
        width = self.task.actions
        return [
            Place(life.episode, np.array(trail, np.float32).reshape(-1, width))
            for life, trail in zip(self.lives, self.trails, strict=True)
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
        """Steps of some environments; which episodes they are in then, and what they did there, is noted."""
        moved = self.crowd.step(seats, [self.lives[seat] for seat in seats], rescale(actions, self.low, self.high))
        over = moved.ended | moved.cut
        went, stands = finite(moved.reached) & np.isfinite(moved.reward), finite(moved.following)
        for row, time in np.argwhere(~(went & stands)):
            raise nonsense(self.task, self._where(int(seats[row]), over[row, :time], bool(went[row, time])))
        for seat, own, ends in zip(seats, np.array(actions, np.float32), over, strict=True):
            count, begun = episodes_of(ends)
            if count:
                self.lives[seat], self.trails[seat] = self.lives[seat].after(count), []
            self.trails[seat].extend(own[begun:])
        self.observations[seats] = moved.following[:, -1]
        return moved

    def _where(self, seat: int, over: np.ndarray, reset: bool) -> str:
        """Names the step that follows these, or the reset after it."""
        count, begun = episodes_of(over)
        episode, taken = self.lives[seat].episode + count, over.size - begun + (0 if count else len(self.trails[seat]))
        event = f"reset of episode {episode + 1}" if reset else f"step {taken + 1} of episode {episode}"
        return f"seed {self.seeds[seat]}, {event}"

    def _replay(self, trails: Sequence[np.ndarray]) -> None:
        """Take the actions of the environments' unfinished episodes again."""
        for number in range(max(map(len, trails), default=0)):
            seats = np.array([seat for seat, trail in enumerate(trails) if number < len(trail)])
            self._advance(seats, np.array([trails[seat][number : number + 1] for seat in seats]))


def episodes_of(over: np.ndarray) -> tuple[int, int]:
    """How many episodes ended, given which steps were last ones, and the first step of the episode after them."""
    ends = np.flatnonzero(over)
    return ends.size, int(ends[-1]) + 1 if ends.size else 0


def finite(numbers: np.ndarray) -> np.ndarray:
    """Which rows are numbers throughout."""
    return np.all(np.isfinite(numbers), axis=-1)


def nonsense(task: Task, where: str) -> TaskError:
    """What to say of a number that is not finite, before it reaches a buffer or a report."""
    return TaskError(
        f"Task '{task.name}' gave a number that is not finite ({where}); the last checkpoint is intact: mend the "
        "environment and go on with --resume."
    )
