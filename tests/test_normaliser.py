import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr import normaliser


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_moments_of_parts_are_those_of_the_whole(sizes):
    values = np.random.default_rng(sum(sizes)).normal(3.0, 2.0, (sum(sizes), 2)).astype(np.float32)
    moments = normaliser.init(2)
    for part in np.split(values, np.cumsum(sizes)[:-1]):
        moments = normaliser.update(moments, jnp.asarray(part))
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=2e-3)
    np.testing.assert_allclose(moments.variance, values.var(0), rtol=2e-2, atol=5e-3)


def test_standardised_numbers_have_zero_mean_unit_variance_and_a_limit():
    values = 5.0 + 3.0 * jax.random.normal(jax.random.key(0), (2000, 3))
    moments = normaliser.update(normaliser.init(3), values)
    scaled = normaliser.standardise(moments, values)
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(0), 1.0, rtol=1e-3)
    assert float(normaliser.standardise(moments, jnp.full((1, 3), 1e6)).max()) == 10.0


def test_before_anything_is_seen_numbers_stay_as_they_are():
    np.testing.assert_allclose(normaliser.standardise(normaliser.init(2), jnp.array([[0.5, -2.0]])), [[0.5, -2.0]])
