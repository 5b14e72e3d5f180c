import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from small import linear

from iadd_tr.agent import sac
from iadd_tr.dynamics import ensemble
from iadd_tr.settings import Agent, Model
from iadd_tr.study import foresight
from iadd_tr.study.foresight import Episode
from iadd_tr.tasks.task import resolve

MODEL = Model(members=3, elites=2, width=4, monolith_depth=1)


def agent() -> sac.State:
    return sac.init(jax.random.key(0), 1, 1, Agent(hidden=4), False)


def walker(*strides: float):
    """A model whose elites, whatever they are asked, move on by their own stride."""
    model = ensemble.init(jax.random.key(1), MODEL, 1, 1, None)
    model = jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim == 3 else x, model)
    bias = jnp.array([[0.0, stride, -200.0, -200.0, 0.0] for stride in (*strides, 100.0)])
    return eqx.tree_at(
        lambda e: (e.parameters.members.net.layers[-1].bias, e.parameters.lower, e.elites),
        model,
        (bias, jnp.full(2, -60.0), jnp.arange(2)),
    )


def gone(observation):
    return observation[:, 0] > 3.5


def test_rewards_to_go_are_the_discounted_sums():
    reward = np.array([1.0, -2.0, 0.5, 4.0])
    for t in range(4):
        expected = sum(0.5**k * r for k, r in enumerate(reward[t:]))
        np.testing.assert_allclose(foresight.returns(reward[t:, None], 0.5), expected)


def test_episodes_are_those_of_the_environment():
    (one,) = foresight.play(resolve("probe:bandit"), linear(0.5, 0.1), [3])
    assert one.ended
    assert one.reward.shape == (1,)
    np.testing.assert_allclose(one.action, 0.5 * one.observation + 0.1, rtol=1e-6)
    np.testing.assert_allclose(one.reward, -0.01, rtol=1e-5)
    first, second = foresight.play(resolve("probe:drift"), linear(-1.0), [3, 4])
    assert not first.ended
    assert first.observation.shape == (20, 1)
    np.testing.assert_allclose(first.observation[1:], 0.7 * first.observation[:-1], rtol=1e-5)
    np.testing.assert_allclose(first.reward, -((0.7 * first.observation[:, 0]) ** 2), rtol=1e-5)
    assert first.observation[0] != second.observation[0]


def test_a_future_survives_until_its_model_says_that_it_ends():
    actor, start = agent().actor.value, jnp.array([[0.0], [-1.0]])
    for horizon, expected in ((3, [1.0, 1.0]), (4, [0.0, 1.0]), (5, [0.0, 0.0])):
        lives = foresight.survives(jax.random.key(0), actor, walker(1.0, 1.0), start, horizon, gone, 0.0)
        np.testing.assert_array_equal(lives, expected)


def test_every_step_of_a_future_meets_a_random_elite():
    actor, start = agent().actor.value, jnp.zeros((1000, 1))
    lives = foresight.survives(jax.random.key(0), actor, walker(1.0, 0.0), start, 4, gone, 0.0)
    assert lives.mean() == pytest.approx(15 / 16, abs=0.01)


def test_futures_have_the_noise_that_the_agent_was_trained_with():
    model = eqx.tree_at(lambda e: e.scale.observation_std, walker(1.0, 1.0), jnp.full(1, 5.0))
    lives = foresight.survives(jax.random.key(0), agent().actor.value, model, jnp.zeros((1000, 1)), 1, gone, 0.5)
    assert lives.mean() == pytest.approx(stats.norm.cdf(2.5 / 2.5), abs=0.01)


def test_a_future_that_breaks_is_over():
    lives = foresight.survives(
        jax.random.key(0), agent().actor.value, walker(np.nan, np.nan), jnp.zeros((3, 1)), 1, gone, 0.0
    )
    np.testing.assert_array_equal(lives, 0.0)


def test_looking_back_from_ends_leaves_out_short_and_unended_episodes():
    def episode(length: int, ended: bool) -> Episode:
        place = np.arange(length, dtype=np.float32)[:, None] - length
        return Episode(place, 0.1 * place, np.ones(length, np.float32), ended)

    known = agent()
    episodes = [episode(3, True), episode(12, True), episode(50, False)]
    found = foresight.before_ends(jax.random.key(0), known, walker(1.0, 1.0), gone, episodes, 0.5, 0.0)
    assert [(line["before"], line["episodes"]) for line in found] == [(1, 2), (2, 2), (5, 1), (10, 1)]
    np.testing.assert_allclose([line["to_go"] for line in found], [2.0 - 0.5 ** (line["before"] - 1) for line in found])
    # from -before, futures pass 3.5 after before + 4 steps, and are followed for 2 before
    assert [line["foreseen"] for line in found] == [0.0, 0.0, 1.0, 1.0]
    here = foresight.values(known.critics.value, jnp.array([[-5.0]]), jnp.array([[-0.5]]))
    assert found[2]["value"] == pytest.approx(float(here[0]), rel=1e-5)
    assert foresight.before_ends(jax.random.key(0), known, walker(1.0, 1.0), gone, episodes[2:], 0.5, 0.0) == []


def test_a_summary_holds_means_over_episodes():
    episodes = [
        Episode(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32), np.array([1.0, 2.0], np.float32), True),
        Episode(np.ones((4, 1), np.float32), np.ones((4, 1), np.float32), np.full(4, 1.0, np.float32), False),
    ]
    known = agent()
    found = foresight.summary(known, episodes, 0.5)
    expected = {"steps": 3.0, "ended": 0.5, "return": 3.5, "discounted_return": (2.0 + 1.875) / 2}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    ends = jnp.array([[0.0], [1.0]])
    assert found["value"] == pytest.approx(float(foresight.values(known.critics.value, ends, ends).mean()), rel=1e-5)
