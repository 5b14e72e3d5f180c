"""A ring buffer on the device that takes batches with a live-row mask and can grow its logical capacity."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from iadd_tr.types import PRNGKey, Transition


class Replay(eqx.Module):
    """Rows [0, size) are live; `limit` <= C is the ring's logical capacity, `position` where the next row goes."""

    rows: Transition
    size: Int[Array, ""]
    position: Int[Array, ""]
    limit: Int[Array, ""]


def init(capacity: int, observations: int, actions: int) -> Replay:
    """An empty buffer of `capacity` rows."""
    rows = Transition(
        observation=jnp.zeros((capacity, observations)),
        action=jnp.zeros((capacity, actions)),
        log_density=jnp.zeros(capacity),
        reward=jnp.zeros(capacity),
        next_observation=jnp.zeros((capacity, observations)),
        discount=jnp.zeros(capacity),
    )
    return Replay(rows, jnp.zeros((), int), jnp.zeros((), int), jnp.full((), capacity, int))


def resize(buffer: Replay, limit: Int[Array, ""]) -> Replay:
    """Give the ring another logical capacity: new rows go behind the stored ones before any is overwritten."""
    grown = limit > buffer.limit
    position = jnp.where(grown, buffer.size, buffer.position) % limit
    return Replay(buffer.rows, jnp.minimum(buffer.size, limit), position, limit)


def grow(buffer: Replay) -> Replay:
    """Let the ring use all the room there is: a resumed run may have been given more epochs than it had."""
    return resize(buffer, jnp.array(buffer.rows.reward.size))


def extend(buffer: Replay, rows: Transition, live: Bool[Array, " B"]) -> Replay:
    """Store the live rows of a batch, oldest first out; of more live rows than the ring holds the last ones stay."""
    rank = jnp.cumsum(live) - 1
    count = rank[-1] + 1
    kept = live & (rank >= count - buffer.limit)
    outside = buffer.rows.reward.size + jnp.arange(live.size)
    slot = jnp.where(kept, (buffer.position + rank) % buffer.limit, outside)
    stored = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop", unique_indices=True), buffer.rows, rows)
    size = jnp.minimum(buffer.size + count, buffer.limit)
    return Replay(stored, size, (buffer.position + count) % buffer.limit, buffer.limit)


def shortened(buffer: Replay, count: int) -> Replay:
    """The first `count` rows alone."""
    return Replay(buffer.rows, jnp.full_like(buffer.size, count), count % buffer.limit, buffer.limit)


def live(buffer: Replay) -> Bool[Array, " C"]:
    """Which of the ring's places hold a row."""
    return jnp.arange(buffer.rows.reward.size) < buffer.size


def sample(key: PRNGKey, buffer: Replay, *shape: int) -> Transition:
    """Rows uniformly with replacement, as many as `shape` holds."""
    return take(buffer.rows, jax.random.randint(key, shape, 0, jnp.maximum(buffer.size, 1)))


def take(rows: Transition, index: Int[Array, "*B"]) -> Transition:
    """The rows at `index`."""
    return jax.tree.map(lambda x: x[index], rows)


def concatenate(first: Transition, second: Transition) -> Transition:
    """Two batches as one, along the last of their batch axes."""
    axis = first.reward.ndim - 1
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis), first, second)


def moments(value: Float[Array, "C D"], live: Bool[Array, " C"]) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """Mean and standard deviation over the live rows; a column that never varies gets deviation one."""
    weight = live / jnp.maximum(jnp.sum(live), 1)
    mean = weight @ value
    centred = value - jnp.broadcast_to(mean, value.shape)
    deviation = jnp.sqrt(weight @ centred**2)
    return mean, jnp.where(deviation < 1e-6, 1.0, deviation)
