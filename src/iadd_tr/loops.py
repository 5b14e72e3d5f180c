"""Loops that waste less than their plain forms: rows that are done leave, and carries are not copied at each step."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

Carry, Drawn = TypeVar("Carry"), TypeVar("Drawn")
SHRINK = 3  # a batch goes on with a third of its rows once no more are going, down to one
CHUNK = 16  # steps that a device takes without being asked how many are left


def while_going(
    going: Callable[[Carry], Bool[Array, ""]], body: Callable[[Carry, Any], Carry], carry: Carry, constants: Any
) -> Carry:
    """while_loop(going, body); what the body reads beside its carry stands in `constants`."""

    @jax.custom_batching.custom_vmap
    def loop(carry: Carry, constants: Any) -> Carry:
        return jax.lax.while_loop(going, lambda c: body(c, constants), carry)

    @loop.def_vmap
    def over_rows(rows: int, batched: Any, carry: Carry, constants: Any) -> tuple[Carry, Any]:
        carry = jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (rows, *x.shape)), carry, batched[0])
        axes = jax.tree.map(lambda b: 0 if b else None, batched[1])
        for size, left in pairwise([*shrinking(rows), 0]):
            carry = _advance(going, body, carry, constants, axes, size, left)
        return carry, jax.tree.map(lambda _: True, carry)

    return loop(carry, constants)


def shrinking(rows: int) -> Iterator[int]:
    """The sizes that a batch of so many rows has in turn: ten, three, one."""
    while rows > 1:
        yield rows
        rows = max(round(rows / SHRINK), 1)
    yield 1


def _advance(going: Any, body: Any, carry: Any, constants: Any, axes: Any, size: int, left: int) -> Any:
    """Let the `size` rows that are going, or as many as there are, go on until at most `left` of them still do."""
    alive = jax.vmap(going)
    chosen = jnp.argsort(~alive(carry))[:size]
    own = jax.tree.map(lambda x, axis: x if axis is None else x[chosen], constants, axes, is_leaf=lambda x: x is None)
    step = jax.vmap(body, in_axes=(0, axes))

    def some(part: Any) -> Bool[Array, ""]:
        return jnp.sum(alive(part)) > left

    def one(part: Any) -> Any:
        still, moved = alive(part), step(part, own)
        return jax.tree.map(lambda a, b: jnp.where(still.reshape(-1, *[1] * (a.ndim - 1)), a, b), moved, part)

    part = jax.lax.while_loop(some, one, jax.tree.map(lambda x: x[chosen], carry))
    return jax.tree.map(lambda whole, new: whole.at[chosen].set(new), carry, part)


def in_chunks(
    count: Int[Array, ""],
    draw: Callable[[Int[Array, ""], Any], Drawn],
    step: Callable[[Drawn, Carry, Any], Carry],
    carry: Carry,
    constants: Any,
    at_once: int | None,
) -> Carry:
    """step(draw(i, constants), carry, constants) for every i below `count`, the same for all rows of a batch; more than
    `at_once` of them, where that is given, step in groups, none of which waits for another."""

    @jax.custom_batching.custom_vmap
    def loop(count: Int[Array, ""], carry: Carry, constants: Any) -> Carry:
        return _in_chunks(count, lambda i: draw(i, constants), lambda drawn, c: step(drawn, c, constants), carry)

    @loop.def_vmap
    def over_rows(rows: int, batched: Any, count: Any, carry: Carry, constants: Any) -> tuple[Carry, Any]:
        if batched[0]:
            raise ValueError("Rows of a batch step together: let `count` be the same for all.")
        carry = jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (rows, *x.shape)), carry, batched[1])
        axes = jax.tree.map(lambda b: 0 if b else None, batched[2])
        groups = even_groups(rows, at_once or rows)
        own = [jax.tree.map(lambda x, b, g=group: x[g] if b else x, constants, batched[2]) for group in groups]

        def draws(i: Int[Array, ""]) -> list[Any]:
            return [jax.vmap(lambda c: draw(i, c), in_axes=(axes,))(c) for c in own]

        def steps(drawn: list[Any], carries: list[Any]) -> list[Any]:
            return [jax.vmap(step, in_axes=(0, 0, axes))(*each) for each in zip(drawn, carries, own, strict=True)]

        ends = _in_chunks(count, draws, steps, [jax.tree.map(lambda x, g=group: x[g], carry) for group in groups])
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *ends), jax.tree.map(lambda _: True, carry)

    return loop(count, carry, constants)


def even_groups(rows: int, most: int) -> list[slice]:
    """Rows in as few groups as have `most` rows or fewer, their sizes as even as can be."""
    count = -(-rows // most)
    return [slice(*edges) for edges in pairwise(rows * number // count for number in range(count + 1))]


def _in_chunks(
    count: Int[Array, ""],
    draw: Callable[[Int[Array, ""]], Drawn],
    step: Callable[[Drawn, Carry], Carry],
    carry: Carry,
) -> Carry:
    """A count's length a GPU's host would ask for after every iteration: a chunk's is known, and what its steps read is
    drawn at once.

    Inside a chunk two steps make an iteration: what one leaves the next reads where it lies.
    """

    def drawn(number: Int[Array, ""]) -> Drawn:
        return jax.vmap(draw)(number * CHUNK + jnp.arange(CHUNK))

    def taken(i: Int[Array, ""], chunk: Drawn, carry: Carry) -> Carry:
        return step(jax.tree.map(lambda x: x[i], chunk), carry)

    def whole(number: Int[Array, ""], carry: Carry) -> Carry:
        chunk = drawn(number)
        return jax.lax.fori_loop(0, CHUNK // 2, lambda i, c: taken(2 * i + 1, chunk, taken(2 * i, chunk, c)), carry)

    chunks = count // CHUNK
    carry = jax.lax.fori_loop(0, chunks, whole, carry)
    rest = drawn(chunks)
    return jax.lax.fori_loop(0, count % CHUNK, lambda i, c: taken(i, rest, c), carry)
