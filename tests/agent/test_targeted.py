"""The correction that is linear in features of the action, solved exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.agent import targeted
from iadd_tr.study import bandit as bandits
from iadd_tr.study import robustness

BATCH, DEGREE = 200, 3
FLOOR = jnp.log(jnp.array(0.5))


def batch(seed: int):
    """Features of two-dimensional actions, the residuals of twins, densities on both sides of the floor, weights."""
    keys = jax.random.split(jax.random.key(seed), 4)
    action = jax.random.uniform(keys[0], (BATCH, 2), minval=-1.0, maxval=1.0)
    residual = jax.random.normal(keys[1], (2, BATCH)) + jnp.sin(3 * action[:, 0])[None]
    log_density = jax.random.normal(keys[2], (BATCH,))
    weight = jax.random.uniform(keys[3], (BATCH,))
    return targeted.features(action, DEGREE), residual, log_density, weight


def test_features_are_one_and_the_legendre_polynomials_of_each_coordinate():
    action = np.linspace(-1.0, 1.0, 21)[:, None] * np.array([1.0, -0.5])
    first, second = (np.polynomial.legendre.legvander(action[:, i], 5) for i in (0, 1))
    expected = np.concatenate([first[:, :1], *(np.stack([first[:, k], second[:, k]], 1) for k in range(1, 6))], axis=1)
    np.testing.assert_allclose(targeted.features(jnp.array(action), 5), expected, atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_the_degree_counts_the_features(degree):
    assert targeted.features(jnp.zeros((4, 3)), degree).shape == (4, 1 + 3 * degree)


def test_the_solution_is_weighted_least_squares():
    features, residual, log_density, weight = batch(0)
    ours = targeted.solve(*targeted.normal_equations(features, residual, log_density, FLOOR, weight), 1e-6)
    density = np.maximum(np.exp(np.asarray(log_density, float)), 0.5)
    root = np.sqrt(np.asarray(weight, float))
    design = np.asarray(features, float) * (root / density)[:, None]
    plain = np.linalg.lstsq(design, (np.asarray(residual, float) * root).T, rcond=None)[0].T
    np.testing.assert_allclose(ours, plain, rtol=2e-3, atol=2e-4)


def test_the_solution_minimises_the_loss_that_training_descends():
    features, residual, log_density, _ = batch(1)
    sums = targeted.normal_equations(features, residual, log_density, FLOOR, jnp.ones(BATCH))

    def loss(coefficients):
        target = jnp.zeros(BATCH)
        return targeted.loss(targeted.linear(coefficients), -residual, features, log_density, FLOOR, target)[0]

    solution = targeted.solve(*sums, 1e-6)
    assert float(jnp.abs(jax.grad(loss)(solution)).max()) < 1e-4
    assert float(jnp.abs(jax.grad(loss)(1.01 * solution)).max()) > 1e-3


def test_the_sums_of_batches_add_up():
    one, two = batch(2), batch(3)
    axes = (0, 1, 0, 0)
    joined = [jnp.concatenate(pair, axis) for pair, axis in zip(zip(one, two, strict=True), axes, strict=True)]
    whole = targeted.normal_equations(*joined[:3], FLOOR, joined[3])
    parts = [targeted.normal_equations(*x[:3], FLOOR, x[3]) for x in (one, two)]
    for i in (0, 1):
        np.testing.assert_allclose(whole[i], parts[0][i] + parts[1][i], rtol=1e-4, atol=1e-3)


def test_the_ridge_draws_the_correction_to_zero():
    features, residual, log_density, weight = batch(4)
    matrix, vector = targeted.normal_equations(features, residual, log_density, FLOOR, weight)
    sizes = [float(jnp.abs(targeted.solve(matrix, vector, ridge)).max()) for ridge in (1e-6, 1e2, 1e8)]
    assert sizes[0] > sizes[1] > sizes[2]
    np.testing.assert_allclose(targeted.solve(matrix, vector, 1e8), vector / 1e8, rtol=1e-3)


@pytest.mark.parametrize("density", ["right", "wrong"])
def test_the_correction_of_a_whole_population_is_the_closed_form(density):
    """Eq. 52 by quadrature in plain NumPy, for a critic that is wrong."""
    bandit = bandits.Bandit()
    stated = bandit if density == "right" else robustness.forgetful(bandit)
    rows, weight = robustness.population(bandit)
    residual = rows.reward - 0.3 * rows.action[:, 0]
    stated_density = bandits.behaviour_log_density(stated, rows.observation, rows.action)
    features = targeted.features(rows.action, 10)
    sums = targeted.normal_equations(features, residual, stated_density, jnp.array(-jnp.inf), weight)
    nodes, states = bandits.nodes()
    ours = targeted.features(nodes, 10) @ targeted.solve(*sums, 1e-3)

    densities = jnp.exp(rows.log_density), jnp.exp(stated_density)
    e0, e, r = (np.asarray(x, float).reshape(len(nodes), -1) for x in (*densities, residual))
    mean = 0.5 * np.asarray(states, float)
    closed = (mean @ (e0 / e * r)) / (mean @ (e0 / e**2))
    assert np.abs(closed).max() > 0.1
    np.testing.assert_allclose(ours, closed, atol=0.005)
