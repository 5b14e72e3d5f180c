"""Theorem 4 on a small scale."""

import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.report import theory
from iadd_tr.study import bandit as bandits
from iadd_tr.study import robustness
from iadd_tr.study.bandit import BANDIT

CURVE, (IGNORES, SEES) = "curve", robustness.POLICIES
CONSISTENT = [("right", "right"), ("right", "wrong"), ("wrong", "right")]


@pytest.fixture(scope="module")
def table():
    return robustness.run(robustness.QUICK)


def one(table, quantity, critic, density, estimator, n=4000):
    (row,) = theory.select(table, quantity=quantity, critic=critic, density=density, estimator=estimator, n=n)
    return row


@pytest.mark.parametrize("quantity", [CURVE, IGNORES])
def test_the_targeted_estimate_is_right_in_three_cases_of_four(table, quantity):
    for case in CONSISTENT:
        assert one(table, quantity, *case, "targeted")["bias"] < 0.05
        assert one(table, quantity, *case, "targeted")["limit"] < 0.002
    assert one(table, quantity, "wrong", "wrong", "targeted")["bias"] > 0.2


@pytest.mark.parametrize("quantity", [CURVE, IGNORES, SEES])
def test_the_plug_in_estimate_is_right_where_the_critic_is(table, quantity):
    for density in robustness.CASES:
        assert one(table, quantity, "right", density, "plug-in")["bias"] < 0.03
        assert one(table, quantity, "wrong", density, "plug-in")["bias"] > 0.2


def test_a_correction_of_the_action_alone_misses_the_gradient_of_a_policy_that_sees_the_state(table):
    assert one(table, SEES, "wrong", "right", "targeted")["bias"] > 0.2


@pytest.mark.parametrize("quantity", [IGNORES, SEES])
def test_a_correction_along_the_gradient_is_right_in_three_cases_of_four(table, quantity):
    for case in CONSISTENT:
        assert one(table, quantity, *case, "targeted along the gradient")["bias"] < 0.08
        assert one(table, quantity, *case, "targeted along the gradient")["limit"] < 0.002
    assert one(table, quantity, "wrong", "wrong", "targeted along the gradient")["bias"] > 0.2


@pytest.mark.parametrize("quantity", [IGNORES, SEES])
def test_a_correction_over_the_density_of_the_policy_is_wrong_with_the_critic(table, quantity):
    assert one(table, quantity, "wrong", "right", "targeted, policy's density")["bias"] > 0.2


def test_simulations_agree_with_their_limits(table):
    for row in theory.select(table, n=4000):
        assert abs(row["bias"] - row["limit"]) < 3 * row["standard_error"] + 0.01, row


def test_limits_agree_with_the_closed_form():
    """Eqs. 52, 53 and 21 written out in double precision, for the critic that does not see the state."""
    theta, (nodes, weight) = BANDIT.theta, bandits.nodes()
    where, weight = bandits.pairs(nodes, nodes), np.asarray(weight, float)
    truth = np.asarray(bandits.mean_outcome(*where), float)
    density = np.exp(np.asarray(bandits.behaviour_log_density(BANDIT, *where), float))
    along = np.asarray(bandits.policy_weight(theta, nodes), float)
    mean = 0.5 * weight
    share = mean[:, None] * density * weight[None]
    root = np.sqrt(share.sum(0))
    powers = np.polynomial.legendre.legvander(np.asarray(nodes[:, 0], float), 5)
    critic = powers @ np.linalg.lstsq(powers * root[:, None], (share * truth).sum(0) / root, rcond=None)[0]
    adjusted = critic + (mean @ (truth - critic)) / (mean @ (1 / density)) / density

    found = robustness.estimates(BANDIT, *robustness.population(BANDIT))
    np.testing.assert_allclose(found[CURVE][0, 1, 1], mean @ adjusted, atol=0.01)
    np.testing.assert_allclose(found[SEES][0, 1, 1], np.einsum("n,nkp,nk->p", mean, along, adjusted), atol=0.002)
    np.testing.assert_allclose(found[SEES][0, 0, 1], np.einsum("n,nkp,k->p", mean, along, critic), atol=0.002)
    assert np.linalg.norm(np.asarray(found[SEES][0, 1, 1] - bandits.gradient(theta))) > 0.2


@pytest.mark.parametrize("case", CONSISTENT)
@pytest.mark.parametrize("quantity", [CURVE, IGNORES])
def test_errors_shrink_with_more_rows(table, quantity, case):
    before, after = (one(table, quantity, *case, "targeted", n)["error"] for n in robustness.QUICK.samples)
    assert after < 0.6 * before


def test_a_policy_without_slope_ignores_the_state():
    theta = robustness.blind(BANDIT.theta)
    states, action = jnp.array([[-0.9], [0.9]]), jnp.full((2, 1), 0.4)
    low, high = bandits.score(theta, states, action)
    np.testing.assert_allclose(low[1:], high[1:], rtol=1e-5)


def test_the_figure_is_drawn(table, tmp_path):
    theory.robustness(table, tmp_path / "robustness.png")
    assert (tmp_path / "robustness.png").stat().st_size > 10_000
