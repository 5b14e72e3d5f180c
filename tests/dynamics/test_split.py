import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr import replay
from iadd_tr.dynamics import split as splits
from iadd_tr.replay import Replay

split_rows, bootstrap = jax.jit(splits.split_rows), jax.jit(splits.bootstrap, static_argnums=2)


def live(size: int, capacity: int) -> Replay:
    """A buffer with so many rows in use."""
    return eqx.tree_at(lambda b: b.size, replay.init(capacity, 1, 1), jnp.array(size))


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 60), pace=st.integers(0, 80), seed=st.integers(0, 1000))
def test_the_split_covers_the_live_rows_and_bootstraps_avoid_the_holdout(size, pace, seed):
    split = split_rows(jax.random.key(seed), live(size, 60), jnp.array(pace))
    order, holdout = np.asarray(split.order), int(split.holdout)
    assert sorted(order[:size]) == list(range(size))
    assert sorted(order) == list(range(60))
    assert holdout == int(0.2 * min(size, pace))
    boot = np.asarray(bootstrap(jax.random.key(seed), split, 3))
    if size > 0:
        assert set(boot.ravel()) <= set(order[holdout:size])


@pytest.mark.parametrize(("size", "held"), [(24_000, 4_800), (25_000, 5_000), (29_000, 5_000)])
def test_the_holdout_is_a_fifth_of_the_rows_and_at_most_five_thousand(size, held):
    assert split_rows(jax.random.key(0), live(size, 30_000), jnp.array(size)).holdout == held


def test_each_member_resamples_the_training_rows_for_itself():
    split = split_rows(jax.random.key(0), live(100, 120), jnp.array(100))
    boot = np.asarray(bootstrap(jax.random.key(1), split, 3))[:, : int(split.train)]
    assert int(split.train) == 80
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.mean(boot[first] == boot[second]) < 0.1
    shares = [len(set(row)) / 80 for row in boot]
    np.testing.assert_allclose(shares, np.full(3, 1 - np.exp(-1)), atol=0.12)
