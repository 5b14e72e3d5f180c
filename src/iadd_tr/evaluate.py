"""Deterministic episodes of all runs at once."""

from collections.abc import Callable, Sequence

import numpy as np

from iadd_tr.tasks.crowd import Crowd
from iadd_tr.tasks.host import EVALUATION, episode_seed, nonsense, not_finite, rescale
from iadd_tr.tasks.task import Task

Act = Callable[[np.ndarray], np.ndarray]  # [R, E, O] observations to [R, E, A] actions

LONGEST_EPISODE = 10_000  # an environment without a time limit is cut here


class Evaluator:
    """E environments for each of R runs, kept between evaluations."""

    def __init__(self, task: Task, seeds: Sequence[int], episodes: int):
        self.task, self.seeds, self.episodes = task, list(seeds), episodes
        self.crowd = Crowd(task.make, len(self.seeds) * episodes)
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)

    def returns(self, act: Act, epoch: int) -> np.ndarray:
        """Returns [R, E] of one episode each, from starts that depend on the seed and the epoch alone."""
        numbers = range(epoch * self.episodes, (epoch + 1) * self.episodes)
        resets = np.array([episode_seed(seed, number, EVALUATION) for seed in self.seeds for number in numbers])
        live = np.arange(resets.size)
        observation = np.asarray(self.crowd.reset(live, resets), np.float32)
        total, shape = np.zeros(live.size), (len(self.seeds), self.episodes)
        for _ in range(LONGEST_EPISODE):
            if not live.size:
                break
            actions = act(observation.reshape(*shape, -1)).reshape(resets.size, -1)
            moved = self.crowd.step(live, rescale(actions[live], self.low, self.high))
            observation[live] = moved.observation
            total[live] += moved.reward
            live = live[~(moved.ended | moved.cut)]
        if not_finite(total[:, None]).size:
            raise nonsense(self.task, f"evaluation at epoch {epoch}")
        return total.reshape(shape)

    def close(self) -> None:
        self.crowd.close()
