import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.study import bandit as bandits
from iadd_tr.study.bandit import BANDIT

THETA = np.array(BANDIT.target)


def grid(count: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A finer rule than the study's, in double precision: states, actions before tanh, weights of both."""
    points, weights = np.polynomial.legendre.leggauss(count)
    state, latent = np.meshgrid(points, 6.0 * points, indexing="ij")
    return state, latent, 0.5 * weights[:, None] * 6.0 * weights[None]


def value(theta: np.ndarray) -> float:
    """J(theta), the mean outcome under the policy, written out."""
    state, latent, weight = grid()
    noise = (latent - theta[0] * state - theta[1]) / np.exp(theta[2])
    density = np.exp(-0.5 * noise**2 - theta[2]) / np.sqrt(2 * np.pi)
    action = np.tanh(latent)
    return float(np.sum(weight * density * (np.sin(2 * action + state) + state * (1 - action / 2))))


@pytest.fixture(scope="module")
def rows():
    return bandits.sample(jax.random.key(3), BANDIT, 50_000)


def test_the_gradient_is_the_derivative_of_the_value():
    """The policy gradient theorem, against central differences in double precision."""
    steps = 1e-5 * np.eye(3)
    expected = [(value(THETA + step) - value(THETA - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(bandits.gradient(BANDIT.theta), expected, atol=2e-5)


def test_the_score_is_that_of_a_normal_before_tanh():
    state = jnp.array([-0.8, 0.1, 0.9])[:, None]
    action = jnp.array([0.3, -0.9, 0.6])[:, None]
    noise = (np.arctanh(action) - THETA[0] * state - THETA[1]) / np.exp(THETA[2])
    slope = noise / np.exp(THETA[2])
    expected = np.concatenate([slope * state, slope, noise**2 - 1], axis=1)
    np.testing.assert_allclose(bandits.score(BANDIT.theta, state, action), expected, rtol=1e-4)


def test_the_curve_is_the_mean_over_states():
    action = jnp.linspace(-1.0, 1.0, 9)[:, None]
    np.testing.assert_allclose(bandits.curve(action), np.sin(2 * action[:, 0]) * np.sin(1.0), atol=1e-5)


def test_the_mean_outcome_does_not_separate():
    low, high = jnp.full((1,), -0.7), jnp.full((1,), 0.7)
    m = bandits.mean_outcome
    assert abs(float(m(low, low) + m(high, high) - m(low, high) - m(high, low))) > 0.5


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_rows_have_the_density_they_state(rows, moment):
    """The mean of f(a) / e(a | s) is the integral of f, whatever the state."""
    draws = np.asarray(rows.action[:, 0] ** moment * jnp.exp(-rows.log_density), float)
    expected = (2.0, 0.0, 2.0 / 3.0)[moment]
    assert abs(draws.mean() - expected) < 4 * draws.std() / np.sqrt(len(draws))


def test_rows_follow_the_state(rows):
    """The behaviour confounds action and state."""
    assert float(jnp.corrcoef(rows.action[:, 0], rows.observation[:, 0])[0, 1]) > 0.2


def test_overlap_is_good(rows):
    ratio = jnp.exp(bandits.log_density(BANDIT.theta, rows.observation, rows.action) - rows.log_density)
    assert float(jnp.exp(rows.log_density).min()) >= 0.5 * BANDIT.uniform_share - 1e-6
    assert float(ratio.max()) < 10.0
    assert abs(float(ratio.mean()) - 1.0) < 0.02


def test_a_critic_recovers_a_polynomial():
    state, action = (jax.random.uniform(jax.random.key(i), (500, 1), minval=-1.0, maxval=1.0) for i in (0, 1))
    outcome = (1 - state * action + 2 * state**2 * action**3)[:, 0]
    data = bandits.Transition(state, action, jnp.zeros(500), outcome, state, jnp.zeros(500))
    critic = bandits.fit(data, jnp.ones(500), (2, 3))
    np.testing.assert_allclose(critic(state, action), outcome, atol=0.02)
    table = critic.table(state[:4], action[:3])
    np.testing.assert_allclose(table[jnp.arange(3), jnp.arange(3)], critic(state[:3], action[:3]), atol=1e-5)
