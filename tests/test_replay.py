import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr import replay
from iadd_tr.types import Transition

CAPACITY, BATCH = 12, 5
extend = jax.jit(replay.extend)
resize = jax.jit(replay.resize)


def batch(first: int) -> Transition:
    """Rows numbered from `first`; every column tells the number."""
    number = jnp.arange(first, first + BATCH, dtype=jnp.float32)
    wide = jnp.broadcast_to(number[:, None], (BATCH, 2))
    return Transition(wide, number[:, None], number, number, wide, number)


class Plain:
    """The same buffer as a list of slots and three integers."""

    def __init__(self, limit: int):
        self.slots, self.size, self.position, self.limit = {}, 0, 0, limit

    def extend(self, numbers):
        for number in numbers:
            self.slots[self.position] = number
            self.position = (self.position + 1) % self.limit
            self.size = min(self.size + 1, self.limit)

    def grow(self, limit):
        if limit > self.limit:
            self.position = self.size % limit
            self.limit = limit


operations = st.lists(
    st.one_of(st.lists(st.booleans(), min_size=BATCH, max_size=BATCH), st.integers(3, CAPACITY)), max_size=12
)


@settings(max_examples=100, deadline=None)
@given(limit=st.integers(3, CAPACITY), steps=operations)
def test_ring_agrees_with_a_plain_one(limit, steps):
    buffer = resize(replay.init(CAPACITY, 2, 1), jnp.array(limit))
    plain, counter = Plain(limit), 1
    for step in steps:
        if isinstance(step, int):
            if step > plain.limit:
                buffer = resize(buffer, jnp.array(step))
                plain.grow(step)
            continue
        buffer = extend(buffer, batch(counter), jnp.array(step))
        plain.extend([counter + i for i, live in enumerate(step) if live])
        counter += BATCH
    assert (int(buffer.size), int(buffer.limit)) == (plain.size, plain.limit)
    assert int(buffer.position) == plain.position
    for column in jax.tree.leaves(buffer.rows):
        first = np.asarray(column).reshape(CAPACITY, -1)[:, 0]
        assert [first[slot] for slot in range(plain.size)] == [plain.slots[slot] for slot in range(plain.size)]


def test_sampling_draws_live_rows_uniformly():
    buffer = extend(replay.init(CAPACITY, 2, 1), batch(1), jnp.array([True, False, True, True, True]))
    drawn = np.asarray(replay.sample(jax.random.key(0), buffer, 8000).reward)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [1, 3, 4, 5]
    assert np.all(np.abs(counts / 8000 - 0.25) < 0.02)


def test_moments_are_those_of_the_live_rows():
    value = jax.random.normal(jax.random.key(0), (CAPACITY, 3)).at[:, 2].set(7.0)
    live = jnp.arange(CAPACITY) < 9
    mean, deviation = replay.moments(value, live)
    np.testing.assert_allclose(mean, np.asarray(value)[:9].mean(0), rtol=1e-4)
    np.testing.assert_allclose(deviation[:2], np.asarray(value)[:9, :2].std(0), rtol=1e-4)
    assert deviation[2] == 1.0
