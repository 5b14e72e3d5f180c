"""Theorem 3 on a small scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.report import theory
from iadd_tr.study import bandit as bandits
from iadd_tr.study import influence
from iadd_tr.study.bandit import BANDIT


@pytest.fixture(scope="module")
def table():
    return influence.run(influence.QUICK)


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    keys = jax.random.split(jax.random.key(0), 25)
    return np.asarray(influence.replicate(keys, influence.draw, BANDIT, 4000), float).reshape(-1, 3)


def test_the_influence_function_has_mean_zero(draws):
    assert np.all(np.abs(draws.mean(0)) < 4 * draws.std(0) / np.sqrt(len(draws)))


def test_its_covariance_is_that_of_the_quadrature(draws):
    covariance = np.asarray(bandits.efficient_covariance(BANDIT, BANDIT.theta))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05)


def test_a_wrong_critic_leaves_the_mean_where_the_density_is_right():
    """The mean of Eq. 16 is psi for every Q: what makes the one-step estimator doubly robust."""
    critic = bandits.Critic(jnp.array([[1.0, -0.5], [0.3, 0.8]]))

    @jax.jit
    def off():
        rows = bandits.sample(jax.random.key(1), BANDIT, 40_000)
        along = bandits.policy_weight(BANDIT.theta, rows.observation)
        expected = bandits.expected(along, critic.table(rows.observation, bandits.nodes()[0]))
        value = critic(rows.observation, rows.action)
        return influence.influence(BANDIT.theta, rows, value, expected) - bandits.gradient(BANDIT.theta)[None]

    draws = np.asarray(off(), float)
    assert np.all(np.abs(draws.mean(0)) < 4 * draws.std(0) / np.sqrt(len(draws)))


def test_efficient_estimators_have_no_mean_error_and_the_efficient_variance(table):
    for row in theory.select(table, estimator="one-step, true critic"):
        assert abs(row["mean_error"]) < 4 * row["standard_error"]
        assert 0.75 < row["ratio"] < 1.3
        assert row["ratio_low"] < row["ratio"] < row["ratio_high"]
    for row in theory.select(table, estimator="one-step, fitted critic"):
        assert abs(row["mean_error"]) < 4 * row["standard_error"]
        assert 0.8 < row["ratio"] < 1.45


def test_weighting_alone_is_inefficient_and_a_misspecified_critic_is_biased(table):
    for row in theory.select(table, estimator="importance-weighted"):
        assert abs(row["mean_error"]) < 4 * row["standard_error"]
        assert row["ratio_low"] > 1.4
    for row in theory.select(table, estimator="plug-in, misspecified critic"):
        assert abs(row["mean_error"]) > 5 * row["standard_error"]


def test_the_limits_of_a_ratio_are_those_of_normal_errors():
    """For normal errors the sample variance has relative deviation sqrt(2 / R)."""
    errors = np.random.default_rng(0).normal(0.5, [0.1, 0.2, 0.3], (20_000, 3))
    for row, deviation in zip(influence.summarise(errors, 7, np.ones(3)), (0.1, 0.2, 0.3), strict=True):
        width = 1.96 * np.sqrt(2 / 20_000) * 7 * deviation**2
        assert row["ratio"] == pytest.approx(7 * deviation**2, rel=0.05)
        assert row["scaled_variance"] == row["ratio"]
        assert row["ratio_high"] - row["ratio"] == pytest.approx(width, rel=0.1)
        assert row["standard_error"] == pytest.approx(deviation / np.sqrt(20_000), rel=0.05)
        assert row["mean_error"] == pytest.approx(0.5, abs=0.01)


def test_a_seed_decides_all():
    one, again, other = (influence.run(influence.Scale(samples=(50,), replications=4, seed=s)) for s in (1, 1, 2))
    assert one == again
    assert one != other


def test_the_figure_is_drawn(table, tmp_path):
    theory.influence(table, tmp_path / "influence.png")
    assert (tmp_path / "influence.png").stat().st_size > 10_000
