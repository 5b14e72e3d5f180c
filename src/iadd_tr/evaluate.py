"""Deterministic episodes of all runs at once."""

from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np

from iadd_tr.tasks.host import EVALUATION, check_finite, episode_seed, rescale
from iadd_tr.tasks.task import Task

Act = Callable[[np.ndarray], np.ndarray]  # [R, E, O] observations to [R, E, A] actions

LONGEST_EPISODE = 10_000  # an environment without a time limit is cut here


class Evaluator:
    """E environments for each of R runs, kept between evaluations."""

    def __init__(self, task: Task, seeds: Sequence[int], episodes: int):
        self.task, self.seeds, self.episodes = task, list(seeds), episodes
        self.envs: list[list[gym.Env]] = [[task.make() for _ in range(episodes)] for _ in seeds]
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)

    def returns(self, act: Act, epoch: int) -> np.ndarray:
        """Returns [R, E] of one episode each, from starts that depend on the seed and the epoch alone."""
        shape = (len(self.seeds), self.episodes)
        observation = np.zeros((*shape, self.task.observations), np.float32)
        total, live = np.zeros(shape), np.ones(shape, bool)
        for run, episode in np.ndindex(shape):
            seed = episode_seed(self.seeds[run], epoch * self.episodes + episode, EVALUATION)
            observation[run, episode] = self.envs[run][episode].reset(seed=seed)[0]
        for _ in range(LONGEST_EPISODE):
            if not live.any():
                break
            actions = act(observation)
            for run, episode in np.argwhere(live):
                env = self.envs[run][episode]
                result = env.step(rescale(actions[run, episode], self.low, self.high))
                observation[run, episode] = result[0]
                total[run, episode] += float(result[1])
                live[run, episode] = not (result[2] or result[3])
        check_finite(self.task, f"evaluation at epoch {epoch}", total)
        return total

    def close(self) -> None:
        for env in (env for row in self.envs for env in row):
            env.close()
