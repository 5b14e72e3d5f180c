from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import linear

from iadd_tr.evaluate import Evaluator, reflexes
from iadd_tr.nets import GLOROT_UNIFORM, mlp
from iadd_tr.normaliser import Moments, standardise
from iadd_tr.tasks import crowd
from iadd_tr.tasks.envs import episode_seed, rescale
from iadd_tr.tasks.host import Host
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


PUSH, STILL, RIGHT = linear(-1.5), linear(0.0), linear(0.0, 1.0)


def starts(evaluator: Evaluator, epoch: int) -> np.ndarray:
    """The observations [R, E] that episodes begin with."""
    resets = evaluator.resets(epoch)
    found = evaluator.crowd.reset(np.arange(resets.size), resets)
    return found[:, 0].reshape(len(evaluator.seeds), evaluator.episodes)


def plain_return(task: Task, seed: int) -> float:
    """One episode of PUSH on one environment."""
    env = task.make()
    observation, total, done = env.reset(seed=seed)[0], 0.0, False
    while not done:
        observation, reward, ended, cut, _ = env.step(
            rescale(np.clip(-1.5 * observation, -1.0, 1.0), np.array(task.low), np.array(task.high))
        )
        total, done = total + reward, ended or cut
    return total


def test_returns_are_those_of_a_plain_loop():
    task, epoch = resolve("probe:drift"), 3
    returns = Evaluator(task, [5, 6], 4).play([PUSH, PUSH], epoch).returned
    expected = [[plain_return(task, episode_seed(seed, epoch * 4 + e, stream=1)) for e in range(4)] for seed in (5, 6)]
    np.testing.assert_allclose(returns, expected, rtol=1e-6)
    assert len(np.unique(returns)) == 8


def test_each_run_is_steered_by_its_own_actions():
    task = resolve("probe:drift")
    returns = Evaluator(task, [5, 5], 3).play([PUSH, RIGHT], 0).returned
    np.testing.assert_allclose(returns[0], Evaluator(task, [5], 3).play([PUSH], 0).returned[0])
    assert np.all(returns[1] < returns[0])


def test_episodes_of_different_lengths_stop_counting_at_their_own_end():
    evaluator = Evaluator(countdown(), [1, 2, 3], 5)
    lengths = starts(evaluator, epoch=2)
    assert len(np.unique(lengths)) > 5
    played = evaluator.play([STILL] * 3, epoch=2)
    np.testing.assert_array_equal(played.returned, lengths)
    np.testing.assert_array_equal(played.steps, lengths)


def test_the_discounted_return_of_a_reward_of_one_is_a_geometric_sum():
    played = Evaluator(countdown(), [1, 2], 4, gamma=0.9).play([STILL] * 2, epoch=2)
    np.testing.assert_allclose(played.discounted, (1 - 0.9**played.steps) / 0.1)
    plain = Evaluator(countdown(), [1, 2], 4).play([STILL] * 2, epoch=2)
    np.testing.assert_array_equal(plain.discounted, plain.returned)


def test_an_episode_without_an_end_is_cut(monkeypatch):
    monkeypatch.setattr(crowd, "LONGEST_EPISODE", 7)
    evaluator = Evaluator(countdown(), [1], 8)
    lengths = starts(evaluator, epoch=0)
    assert lengths.max() > 7
    np.testing.assert_array_equal(evaluator.play([STILL], epoch=0).returned, np.minimum(lengths, 7))


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


@pytest.mark.parametrize(("activation", "bound"), [(jax.nn.relu, "tanh"), (jnp.tanh, "clip")])
@pytest.mark.parametrize("standardised", [False, True])
def test_a_reflex_acts_as_the_network_it_was_made_of(activation, bound, standardised):
    keys = jax.random.split(jax.random.key(0))
    nets = jax.vmap(lambda key: mlp(key, [3, 16, 16, 4], activation, GLOROT_UNIFORM))(keys)
    moments = Moments(jnp.array([1.0, 0.0, -2.0]), jnp.array([4.0, 0.1, 1e-7]), jnp.ones(()))
    moments = jax.tree.map(lambda x: jnp.stack([x, x]), moments)
    found = reflexes(nets, 2, bound, moments if standardised else None)
    for run, seen in enumerate(2.0 * jax.random.normal(jax.random.key(1), (2, 3))):
        net, scale = jax.tree.map(lambda x, run=run: x[run], (nets, moments))
        answer = net(standardise(scale, seen) if standardised else seen)[:2]
        expected = jnp.tanh(answer) if bound == "tanh" else jnp.clip(answer, -1.0, 1.0)
        np.testing.assert_allclose(found[run](np.asarray(seen)), expected, rtol=1e-4, atol=1e-6)
    assert np.any(found[0](np.ones(3)) != found[1](np.ones(3)))
