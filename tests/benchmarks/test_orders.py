import jax
import numpy as np
import orders
import pytest


@pytest.mark.parametrize("name", orders.WAYS)
def test_every_way_orders_the_same_numbers(name):
    assert sorted(np.asarray(orders.WAYS[name](30, jax.random.key(0)))) == list(range(30))


def test_all_ways_are_timed():
    assert {name: time > 0 for name, time in orders.milliseconds(30, 1).items()} == dict.fromkeys(orders.WAYS, True)
