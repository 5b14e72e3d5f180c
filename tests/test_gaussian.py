import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from iadd_tr import gaussian

means = st.floats(-3, 3)
log_stds = st.floats(-3, 1)


@settings(max_examples=50, deadline=None)
@given(mean=means, log_std=log_stds, latent=st.floats(-4, 4))
def test_squashed_density_matches_scipy_with_the_change_of_variables(mean, log_std, latent):
    action = np.tanh(latent)
    expected = stats.norm.logpdf(latent, mean, np.exp(log_std)) - np.log1p(-(action**2))
    ours = gaussian.squashed_log_density(jnp.array([action]), jnp.array([mean]), jnp.array([log_std]))
    assert float(ours) == pytest.approx(expected, rel=2e-3, abs=2e-3 * np.exp(-2 * log_std))


@settings(max_examples=20, deadline=None)
@given(mean=st.floats(-1, 1), log_std=st.floats(-1.5, 0.5))
def test_squashed_density_integrates_to_one(mean, log_std):
    def density(action):
        value = gaussian.squashed_log_density(jnp.array([action]), jnp.array([mean]), jnp.array([log_std]))
        return float(jnp.exp(value))

    total, _ = integrate.quad(density, -1 + 1e-6, 1 - 1e-6, limit=200, epsabs=1e-4)
    assert total == pytest.approx(1.0, abs=5e-3)


def test_a_sample_carries_the_density_of_its_action():
    key, mean = jax.random.key(0), jax.random.normal(jax.random.key(1), (500, 3))
    log_std = jnp.full((500, 3), -0.7)
    action, density = gaussian.squash(jax.random.normal(key, mean.shape), mean, log_std)
    again = gaussian.squashed_log_density(action, mean, log_std)
    inside = jnp.all(jnp.abs(action) < 0.999, axis=-1)
    assert inside.sum() > 300
    np.testing.assert_allclose(density[inside], again[inside], atol=2e-2)


def test_samples_follow_the_density():
    mean, log_std = jnp.full((20_000, 1), 0.4), jnp.full((20_000, 1), -0.5)
    action, _ = gaussian.squash(jax.random.normal(jax.random.key(3), mean.shape), mean, log_std)
    latent = np.arctanh(np.clip(action[:, 0], -1 + 1e-7, 1 - 1e-7))
    assert stats.kstest(latent, "norm", args=(0.4, np.exp(-0.5))).pvalue > 1e-3


def test_saturated_actions_have_finite_density():
    value = gaussian.squashed_log_density(jnp.array([1.0, -1.0]), jnp.zeros(2), jnp.zeros(2))
    assert jnp.isfinite(value)
    assert jnp.isfinite(gaussian.log_tanh_slope(jnp.array([50.0, -50.0]))).all()


def test_uniform_density_is_that_of_a_box_of_side_two():
    assert gaussian.uniform_log_density(3) == pytest.approx(stats.uniform(-1, 2).logpdf([0.0] * 3).sum())


@settings(max_examples=30, deadline=None)
@given(value=st.floats(-100, 100))
def test_soft_bounds_hold(value):
    bounded = gaussian.soft_bound(jnp.array([value]), jnp.array([-10.0]), jnp.array([0.5]))
    assert -10.0 <= float(bounded[0]) <= 0.5 + 1e-4


def test_loss_is_twice_the_negative_log_likelihood_up_to_a_constant():
    mean, log_variance, target = jnp.array([[0.3, -1.0]]), jnp.array([[-0.4, 0.7]]), jnp.array([[1.0, -2.0]])
    expected = -2 * stats.norm.logpdf(target, mean, np.exp(0.5 * log_variance)).mean() - np.log(2 * np.pi)
    assert float(gaussian.gaussian_nll(mean, log_variance, target)) == pytest.approx(expected, rel=1e-5)
