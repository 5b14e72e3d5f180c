"""What a gradient step shows the members, and what they should answer."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from iadd_tr import replay
from iadd_tr.types import PRNGKey, Transition


class Extra(eqx.Module):
    """Generated rows that take a share of every minibatch."""

    rows: Transition
    share: Float[Array, ""]


class Examples(eqx.Module):
    """Rows of a minibatch, and what the members should answer to them."""

    observation: Float[Array, "M B O"]
    action: Float[Array, "M B A"]
    target: Float[Array, "M B D"]
    discount: Float[Array, "M B"]


def minibatch(key: PRNGKey, rows: Transition, index: Int[Array, "M B"], extra: Extra | None) -> Transition:
    """Rows of the bootstraps, the first of them replaced by generated ones up to their share."""
    batch = replay.take(rows, index)
    if extra is None:
        return batch
    drawn = jax.random.randint(key, index.shape, 0, extra.rows.reward.size)
    generated = jnp.arange(index.shape[1]) < jnp.round(extra.share * index.shape[1])
    return jax.tree.map(
        lambda real, new: jnp.where(generated.reshape(1, -1, *[1] * (real.ndim - 2)), new, real),
        batch,
        replay.take(extra.rows, drawn),
    )


def examples(rows: Transition) -> Examples:
    """What members learn from these rows."""
    return Examples(rows.observation, rows.action, target(rows), rows.discount)


def target(rows: Transition) -> Float[Array, "*B D"]:
    """What a member predicts: [r, s' - s]."""
    return jnp.concatenate([rows.reward[..., None], rows.next_observation - rows.observation], axis=-1)
