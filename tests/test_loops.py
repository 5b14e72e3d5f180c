from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.loops import even_groups, in_chunks, shrinking, while_going


def count_down(start, factor, shared):
    """Halve until below one, counting; `factor` is a row's own, `shared` is not."""

    def body(carry, constants):
        value, steps = carry
        return value * constants[0] * constants[1], steps + 1

    return while_going(lambda c: c[0] > 1.0, body, (start, jnp.zeros((), int)), (factor, shared))


def plain(start: float, factor: float, shared: float) -> tuple[float, int]:
    steps = 0
    while start > 1.0:
        start, steps = np.float32(start * np.float32(factor) * np.float32(shared)), steps + 1
    return start, steps


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 10, 13])
def test_each_row_of_a_batch_does_what_it_does_alone(rows):
    random = np.random.default_rng(rows)
    start, factor = random.uniform(0.5, 1e4, rows), random.uniform(0.3, 0.95, rows)
    mapped = jax.jit(jax.vmap(count_down, in_axes=(0, 0, None)))
    value, steps = mapped(jnp.asarray(start, jnp.float32), jnp.asarray(factor, jnp.float32), jnp.array(0.9))
    expected = [plain(np.float32(s), f, 0.9) for s, f in zip(start, factor, strict=True)]
    np.testing.assert_array_equal(steps, [e[1] for e in expected])
    np.testing.assert_allclose(value, [e[0] for e in expected], rtol=1e-4)


def test_outside_a_batch_it_is_a_while_loop():
    value, steps = count_down(jnp.array(100.0), jnp.array(0.5), jnp.array(1.0))
    assert (float(value), int(steps)) == (0.78125, 7)


def test_rows_that_are_done_are_not_computed_any_more():
    """Of nine rows one goes on for long: the body then sees that one, not nine."""
    sizes = []

    def body(carry, constants):
        jax.debug.callback(lambda _: sizes.append(1), carry[0])
        return carry[0] - 1.0, carry[1] + constants

    def one(start):
        return while_going(lambda c: c[0] > 0.0, body, (start, jnp.zeros(())), jnp.array(1.0))

    start = jnp.array([1.0] * 8 + [40.0])
    _, counted = jax.jit(jax.vmap(one))(start)
    jax.effects_barrier()
    np.testing.assert_array_equal(counted, start)
    assert len(sizes) <= 9 * 2 + 3 * 2 + 40


def test_a_batch_shrinks_to_a_third_and_to_one():
    found = {rows: list(shrinking(rows)) for rows in (1, 2, 5, 10, 20)}
    assert found == {1: [1], 2: [2, 1], 5: [5, 2, 1], 10: [10, 3, 1], 20: [20, 7, 2, 1]}


COUNTS = [0, 1, 2, 15, 16, 17, 31, 32, 40]


def note(i, carry, start):
    """Write down an index, from `start` on."""
    seen, at = carry
    return seen.at[at].set(i + start), at + 1


def noted(count, start, at_once):
    return in_chunks(count, lambda i, _: i, note, (jnp.full(40, -1), jnp.array(0)), start, at_once)


@pytest.mark.parametrize("count", COUNTS)
def test_in_chunks_every_index_comes_once_and_in_order(count):
    seen, at = jax.jit(partial(noted, at_once=1))(jnp.array(count), 0)
    assert int(at) == count
    np.testing.assert_array_equal(seen, [*range(count), *[-1] * (40 - count)])


@pytest.mark.parametrize("at_once", [None, 1, 2, 3, 7, 9])
@pytest.mark.parametrize("count", COUNTS)
def test_groups_of_rows_do_what_each_row_does_alone(count, at_once):
    starts = 100 * jnp.arange(7)
    seen, at = jax.jit(jax.vmap(partial(noted, at_once=at_once), in_axes=(None, 0)))(jnp.array(count), starts)
    np.testing.assert_array_equal(at, [count] * 7)
    for row, start in zip(seen, starts, strict=True):
        np.testing.assert_array_equal(row, [*range(start, start + count), *[-1] * (40 - count)])


def test_what_all_rows_share_is_given_to_each_group():
    def total(own, shared):
        added = lambda drawn, carry, constants: carry + drawn * constants["own"]  # noqa: E731
        draw = lambda i, constants: i + constants["shared"]  # noqa: E731
        return in_chunks(jnp.array(20), draw, added, jnp.array(0), {"own": own, "shared": shared}, 2)

    found = jax.vmap(total, in_axes=(0, None))(jnp.arange(5), jnp.array(3))
    np.testing.assert_array_equal(found, np.arange(5) * sum(range(3, 23)))


def test_rows_of_unequal_counts_are_refused():
    with pytest.raises(ValueError, match="the same for all"):
        jax.vmap(partial(noted, at_once=9))(jnp.array([1, 2]), jnp.array([0, 0]))


def test_groups_are_even_and_as_few_as_can_be():
    sizes = {(rows, most): [len(range(rows)[g]) for g in even_groups(rows, most)] for rows, most in GROUPED}
    assert sizes == GROUPED


GROUPED = {
    (5, 9): [5],
    (9, 9): [9],
    (10, 9): [5, 5],
    (20, 9): [6, 7, 7],
    (3, 1): [1, 1, 1],
}
