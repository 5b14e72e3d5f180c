"""Orders are permutations, and of large numbers of them what is counted lies where chance puts it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr import shuffle as module
from iadd_tr.shuffle import shuffle

SIZE, ORDERS = 1000, 6000
place = np.arange(SIZE)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 60), seed=st.integers(0, 1000))
def test_the_first_ones_change_places_among_themselves_and_the_others_stay(count, seed):
    order = np.asarray(jax.jit(shuffle, static_argnums=1)(jax.random.key(seed), 60, count))
    assert sorted(order[:count]) == list(range(count))
    assert order[count:].tolist() == list(range(count, 60))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_order_of_a_few_is_as_likely(count):
    keys = jax.random.split(jax.random.key(0), 24_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: shuffle(key, count, count)))(keys))
    if count == 7:  # whose orders are too many: who comes first, and who next
        orders = orders[:, :2]
    _, found = np.unique(orders, axis=0, return_counts=True)
    expected = len(keys) / {2: 2, 3: 6, 7: 42}[count]
    assert len(found) == len(keys) / expected
    chance = np.sum((found - expected) ** 2 / expected)
    assert chance < len(found) + 4 * np.sqrt(2 * len(found))


def drawn() -> np.ndarray:
    keys = jax.random.split(jax.random.key(1), ORDERS)
    return np.asarray(jax.jit(jax.vmap(partial(shuffle, capacity=SIZE, count=SIZE)))(keys))


@pytest.fixture(scope="module")
def orders() -> np.ndarray:
    return drawn()


def harmonic(power: int) -> float:
    return float(np.sum(1.0 / np.arange(1, SIZE + 1) ** power))


def cycles(order: np.ndarray) -> int:
    left, found = set(range(SIZE)), 0
    while left:
        found, number = found + 1, left.pop()
        while (number := int(order[number])) in left:
            left.remove(number)
    return found


COUNTED = {
    "who stays": (lambda o: np.sum(o == place, axis=1), 1.0, 1.0),
    "who is followed by a smaller one": (
        lambda o: np.sum(np.diff(o, axis=1) < 0, axis=1),
        (SIZE - 1) / 2,
        (SIZE + 1) / 12,
    ),
    "who stays beside a neighbour": (
        lambda o: np.sum(np.abs(np.diff(o, axis=1)) == 1, axis=1),
        2 * (SIZE - 1) / SIZE,
        2.0,
    ),
    "who of the first tenth stays in it": (
        lambda o: np.sum(o[:, : SIZE // 10] < SIZE // 10, axis=1),
        SIZE / 100,
        SIZE / 100 * 0.9 * 0.9 * SIZE / (SIZE - 1),
    ),
    "number times place": (
        lambda o: np.sum(place * o.astype(float), axis=1),
        (SIZE - 1) ** 2 * SIZE / 4,
        (SIZE * (SIZE + 1)) ** 2 * (SIZE - 1) / 144,
    ),
    "cycles": (lambda o: np.array([cycles(order) for order in o[:1500]]), harmonic(1), harmonic(1) - harmonic(2)),
}


@pytest.mark.parametrize("counted", COUNTED)
def test_of_many_orders_mean_and_variance_are_those_of_chance(orders, counted):
    count, mean, variance = COUNTED[counted]
    found = count(orders)
    assert abs(found.mean() - mean) < 4 * np.sqrt(variance / len(found))
    assert found.var() == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize(("rounds", "enough"), [(12, False), (16, True)])
def test_of_32_rounds_16_would_do_and_12_would_not(monkeypatch, rounds, enough):
    monkeypatch.setattr(module, "ROUNDS", rounds)
    count, mean, variance = COUNTED["who stays"]
    found = count(drawn())
    assert (abs(found.mean() - mean) < 4 * np.sqrt(variance / len(found))) == enough


def test_orders_of_different_keys_have_nothing_in_common(orders):
    alike = np.sum(orders[:-1] == orders[1:], axis=1)
    assert alike.mean() == pytest.approx(1.0, abs=0.06)


def test_runs_and_steps_may_be_shuffled_at_once():
    keys = jax.random.split(jax.random.key(2), 3)
    together = jax.vmap(lambda key, count: shuffle(key, 50, count))(keys, jnp.array([50, 20, 0]))
    for key, count, order in zip(keys, (50, 20, 0), together, strict=True):
        np.testing.assert_array_equal(order, shuffle(key, 50, count))
