"""Deterministic episodes of all runs at once, on the host: one action at a time is no work for a device."""

from collections.abc import Sequence

import jax
import numpy as np

from iadd_tr.nets import MLP
from iadd_tr.normaliser import Moments, deviation
from iadd_tr.tasks.crowd import Crowd, Played
from iadd_tr.tasks.envs import Reflex, episode_seed
from iadd_tr.tasks.host import EVALUATION, nonsense
from iadd_tr.tasks.task import Task


class Evaluator:
    """E environments for each of R runs, kept between evaluations; discounted rewards are counted with `gamma`."""

    def __init__(self, task: Task, seeds: Sequence[int], episodes: int, gamma: float = 1.0):
        self.task, self.seeds, self.episodes, self.gamma = task, list(seeds), episodes, gamma
        self.crowd = Crowd(task.make, len(self.seeds) * episodes)

    def play(self, policies: Sequence[Reflex], epoch: int) -> Played:
        """Episodes [R, E] of the runs' policies, from starts that depend on the seed and the epoch alone."""
        bounds = np.asarray(self.task.low), np.asarray(self.task.high)
        each = [policy for policy in policies for _ in range(self.episodes)]
        played = self.crowd.play(self.resets(epoch), each, bounds, self.gamma)
        if not np.isfinite(played.returned).all():
            raise nonsense(self.task, f"evaluation at epoch {epoch}")
        return Played(*(column.reshape(len(self.seeds), self.episodes) for column in played))

    def resets(self, epoch: int) -> np.ndarray:
        """The seed of each episode."""
        return np.array([start for seed in self.seeds for start in resets(seed, epoch, self.episodes)])

    def close(self) -> None:
        self.crowd.close()


def resets(seed: int, epoch: int, episodes: int) -> list[int]:
    """The seeds of a run's episodes at an epoch."""
    numbers = range(epoch * episodes, (epoch + 1) * episodes)
    return [episode_seed(seed, number, EVALUATION) for number in numbers]


def reflexes(nets: MLP, actions: int, bound: str, scales: Moments | None = None) -> list[Reflex]:
    """R networks whose first outputs are actions, before they are bounded, as policies in plain arrays."""
    *hidden, last = [(layer.weight, layer.bias) for layer in nets.layers]
    layers = [*hidden, (last[0][..., :actions], last[1][..., :actions])]
    scale = None if scales is None else (scales.mean, deviation(scales.variance))
    plain, runs = jax.device_get((layers, scale)), len(nets.layers[0].weight)
    own = [jax.tree.map(lambda x, run=run: x[run], plain) for run in range(runs)]
    return [Reflex(layers, nets.activation.__name__, bound, scale) for layers, scale in own]
