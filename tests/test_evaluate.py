from typing import Any

import gymnasium as gym
import numpy as np

from iadd_tr import evaluate
from iadd_tr.evaluate import Evaluator
from iadd_tr.tasks.host import Host, episode_seed, rescale
from iadd_tr.tasks.task import Task, resolve


class Countdown(gym.Env):
    """Lasts for a seeded number of steps, half of them to a true end and half to a limit, and pays 1 at each."""

    observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.left, self.cut = int(self.np_random.integers(1, 30)), bool(self.np_random.integers(2))
        return np.array([self.left], np.float32), {}

    def step(self, action: np.ndarray):
        assert self.left > 0, "stepped after the end"
        self.left -= 1
        done = self.left == 0
        return np.array([self.left], np.float32), 1.0, done and not self.cut, done and self.cut, {}


def countdown() -> Task:
    return Task("countdown", Countdown, 1, (-1.0,), (1.0,), (0.0,), None)


def push(observation: np.ndarray) -> np.ndarray:
    return np.clip(-1.5 * observation, -1.0, 1.0)


def still(observation: np.ndarray) -> np.ndarray:
    return np.zeros_like(observation)


def starts(evaluator: Evaluator, epoch: int) -> np.ndarray:
    """The observations [R, E] that episodes begin with."""
    seen = []

    def act(observation: np.ndarray) -> np.ndarray:
        seen.append(observation[..., 0].copy())
        return still(observation)

    evaluator.returns(act, epoch)
    return seen[0]


def plain_return(task: Task, seed: int) -> float:
    """One episode of `push` on one environment."""
    env = task.make()
    observation, total, done = env.reset(seed=seed)[0], 0.0, False
    while not done:
        observation, reward, ended, cut, _ = env.step(
            rescale(push(observation), np.array(task.low), np.array(task.high))
        )
        total, done = total + reward, ended or cut
    return total


def test_returns_are_those_of_a_plain_loop():
    task, epoch = resolve("probe:drift"), 3
    returns = Evaluator(task, [5, 6], 4).returns(push, epoch)
    expected = [[plain_return(task, episode_seed(seed, epoch * 4 + e, stream=1)) for e in range(4)] for seed in (5, 6)]
    np.testing.assert_allclose(returns, expected, rtol=1e-6)
    assert len(np.unique(returns)) == 8


def test_each_run_is_steered_by_its_own_actions():
    task = resolve("probe:drift")

    def act(observation: np.ndarray) -> np.ndarray:
        return np.stack([push(observation[0]), np.ones_like(observation[1])])

    returns = Evaluator(task, [5, 5], 3).returns(act, 0)
    np.testing.assert_allclose(returns[0], Evaluator(task, [5], 3).returns(push, 0)[0])
    assert np.all(returns[1] < returns[0])


def test_episodes_of_different_lengths_stop_counting_at_their_own_end():
    evaluator = Evaluator(countdown(), [1, 2, 3], 5)
    lengths = starts(evaluator, epoch=2)
    assert len(np.unique(lengths)) > 5
    np.testing.assert_array_equal(evaluator.returns(still, epoch=2), lengths)


def test_an_episode_without_an_end_is_cut(monkeypatch):
    monkeypatch.setattr(evaluate, "LONGEST_EPISODE", 7)
    evaluator = Evaluator(countdown(), [1], 8)
    lengths = starts(evaluator, epoch=0)
    assert lengths.max() > 7
    np.testing.assert_array_equal(evaluator.returns(still, epoch=0), np.minimum(lengths, 7))


def test_starts_depend_on_the_seed_and_the_epoch_alone():
    task = resolve("probe:drift")
    one, other = Evaluator(task, [1, 2], 3), Evaluator(task, [2], 3)
    first = starts(one, epoch=4)
    starts(one, epoch=5)
    np.testing.assert_array_equal(starts(one, epoch=4), first)
    np.testing.assert_array_equal(starts(other, epoch=4)[0], first[1])
    assert len(np.unique(np.concatenate([starts(one, epoch).ravel() for epoch in range(4)]))) == 24


def test_evaluation_starts_in_none_of_the_states_that_training_starts_in():
    task = resolve("probe:drift")
    training = {float(Host(task, [seed]).observations[0, 0]) for seed in (1, 2)}
    evaluation = {float(x) for x in starts(Evaluator(task, [1, 2], 2), epoch=0).ravel()}
    assert len(evaluation) == 4
    assert not training & evaluation
