import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg, stats

from iadd_tr.tasks import oscillator

STATES = oscillator.draw_states(jax.random.key(0), 200)


def test_evolution_is_the_matrix_exponential():
    matrix = np.array([[0.0, 1.0], [-(1.2**2), -0.25]])
    expected = np.asarray(STATES, np.float64) @ linalg.expm(0.15 * matrix).T
    np.testing.assert_allclose(oscillator.evolve(STATES), expected, atol=2e-6)


def test_evolution_agrees_with_an_integrator():
    start = np.asarray(STATES[0], np.float64)
    solved = integrate.solve_ivp(lambda _, s: [s[1], -1.44 * s[0] - 0.25 * s[1]], (0, 0.15), start, rtol=1e-10)
    np.testing.assert_allclose(oscillator.evolve(STATES[:1])[0], solved.y[:, -1], atol=1e-6)


def test_a_zero_action_changes_nothing_and_others_the_velocity_alone():
    np.testing.assert_array_equal(oscillator.intervene(STATES, jnp.zeros((200, 1))), STATES)
    moved = oscillator.intervene(STATES, jnp.full((200, 1), 0.5)) - STATES
    np.testing.assert_array_equal(moved[:, 0], 0.0)
    np.testing.assert_allclose(moved[:, 1], 0.8 * np.tanh(0.5), rtol=1e-5)


def test_states_fill_their_box():
    states = np.asarray(oscillator.draw_states(jax.random.key(1), 5000))
    for column, extent in zip(states.T, (2.0, 1.5), strict=True):
        assert stats.kstest(column, "uniform", args=(-extent, 2 * extent)).pvalue > 1e-3


def test_behaviour_follows_its_formula():
    action = oscillator.behave(jax.random.key(2), jnp.broadcast_to(jnp.array([0.4, -0.2]), (4000, 2)))
    before = np.arctanh(np.asarray(action[:, 0], np.float64))
    assert before.mean() == pytest.approx(1.1 * 0.4 + 0.7 * 0.2, abs=0.02)
    assert before.std() == pytest.approx(0.25, abs=0.02)
