"""Random orders without a sort: a round proposes to every number its mirror image in a random point, and a hash of the
pair says whether the two change places (Hoang, Morris and Rogaway's swap-or-not)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from iadd_tr.types import PRNGKey

ROUNDS, AT_ONCE = 32, 4  # in one of 4,000 orders of a million numbers some number is never moved
MIXED = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))  # shifts and factors of MurmurHash3's last step


def shuffle(key: PRNGKey, capacity: int, count: int | Int[Array, ""]) -> Int[Array, " C"]:
    """A permutation of range(capacity) that begins with range(count) in random order."""
    pivot_key, salt_key = jax.random.split(key)
    size = jnp.asarray(count, jnp.uint32)
    pivots = jax.random.bits(pivot_key, (ROUNDS,)) % jnp.maximum(size, 1)
    salts = jax.random.bits(salt_key, (ROUNDS,))
    start = jnp.arange(capacity, dtype=jnp.uint32)

    def change_places(i: Int[Array, ""], number: UInt32[Array, " C"]) -> UInt32[Array, " C"]:
        below = pivots[i] - number  # a mirror image below zero is huge, and comes back at the upper end
        partner = jnp.minimum(below, below + size)
        return jnp.where(heads(jnp.maximum(number, partner) ^ salts[i]), partner, number)

    moved = jax.lax.fori_loop(0, ROUNDS, change_places, start, unroll=AT_ONCE)
    return jnp.where(start < size, moved, start).astype(int)


def heads(number: UInt32[Array, " C"]) -> Array:
    """A coin for every number."""
    for shift, factor in MIXED:
        number = (number ^ (number >> shift)) * jnp.uint32(factor)
    return number >> 31 == 1
