"""Which rows of a buffer a fit trains on, in which order each member sees them, and which it is judged by."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from iadd_tr.replay import Replay
from iadd_tr.shuffle import shuffle
from iadd_tr.types import PRNGKey

HOLDOUT_CAP = 5000


class Split(eqx.Module):
    """Live rows in random order: `order[:holdout]` is held out, `order[holdout:size]` trains."""

    order: Int[Array, " C"]
    holdout: Int[Array, ""]
    size: Int[Array, ""]

    @property
    def train(self) -> Int[Array, ""]:
        return jnp.maximum(self.size - self.holdout, 1)


def split_rows(key: PRNGKey, buffer: Replay, pace: Int[Array, ""]) -> Split:
    """Hold out rows of the buffer, never more than the pace allows for."""
    holdout = holdout_count(jnp.minimum(buffer.size, pace))
    return Split(shuffle(key, buffer.rows.reward.size, buffer.size), holdout, buffer.size)


def holdout_count(rows: Int[Array, ""]) -> Int[Array, ""]:
    """A fifth of the rows, 5,000 at most."""
    return jnp.minimum(rows // 5, HOLDOUT_CAP)


def bootstrap(key: PRNGKey, split: Split, members: int) -> Int[Array, "M C"]:
    """Each member's own resample of the training rows."""

    def one(key: PRNGKey) -> Int[Array, " C"]:
        return split.order[split.holdout + jax.random.randint(key, split.order.shape, 0, split.train)]

    return jax.vmap(one)(jax.random.split(key, members))
