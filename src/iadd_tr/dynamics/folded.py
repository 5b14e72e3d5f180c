"""Perceptrons as a GPU fits them fastest: half the bytes, and a layer's bias inside its matrix."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr import devices
from iadd_tr.nets import MLP, Linear, Networks

MULTIPLE = 16  # of the sizes of matrices: what a GPU multiplies at once
ROWS, WIDEST = 64, 256  # rows, and most columns, of a product in our kernels
MEMORY = 231_000  # bytes of a multiprocessor's that their arrays may take
TAKEN = jax.__version_info__ >= (0, 11)  # before that a kernel cannot load a part of an array


class Folded(eqx.Module):
    """A perceptron whose biases are rows of its matrices, so that one product gives the gradient of both; behind the
    numbers that a layer reads stands a one for them, then zeros, which stay zeros in training."""

    matrices: tuple[Float[Array, "_ _"], ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        first, dtype = self.matrices[0], x.dtype
        x = jnp.pad(x.astype(first.dtype), [*[(0, 0)] * (x.ndim - 1), (0, first.shape[0] - x.shape[-1])])
        x = with_one(x, self.sizes[0])
        answer = self.answer_at_once(x) if self.may_answer_at_once(x) else self.answer(x)
        return answer[..., : self.sizes[-1]].astype(dtype)

    def answer(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        """Layer by layer."""
        *hidden, last = self.matrices
        for size, matrix in zip(self.sizes[1:], hidden, strict=False):
            x = with_one(self.activation(jnp.dot(x, matrix)), size)
        return jnp.dot(x, last)

    def answer_at_once(self, x: Float[Array, "B I"]) -> Float[Array, "B J"]:
        """All layers in one kernel."""
        from iadd_tr.dynamics import passes  # takes a third of a second, which most starts can do without

        return passes.perceive(x, self.matrices, self.sizes[1:-1])

    def may_answer_at_once(self, x: Float[Array, "*B I"]) -> bool:
        """Whether there is one for such rows and layers."""
        usual = x.ndim == 2 and x.dtype == jnp.bfloat16 and self.activation is jax.nn.swish
        return usual and devices.multiplies_by_warpgroups() and row_groups(x.shape[0], self.matrices) > 0

    @property
    def layers(self) -> tuple[Linear, ...]:
        """Weights and biases apart."""
        shapes = pairwise(self.sizes)
        return tuple(
            Linear(matrix[:rows, :columns], matrix[rows, :columns])
            for matrix, (rows, columns) in zip(self.matrices, shapes, strict=True)
        )


def row_groups(rows: int, matrices: Sequence[Float[Array, "_ _"]]) -> int:
    """How many times 64 rows a multiprocessor takes; none where our kernels do not take a perceptron of this shape."""
    heights, widths = zip(*(matrix.shape for matrix in matrices), strict=True)
    if not TAKEN or len({*heights[1:], *widths[:-1]}) != 1 or max(*heights, *widths) > WIDEST:
        return 0
    shared = max(heights[:-1]) * widths[0] + heights[-1] * widths[-1]
    own = ROWS * (max(heights[0], widths[0], widths[-1]) + widths[0])
    return next((n for n in (2, 1) if rows % (n * ROWS) == 0 and 2 * (shared + n * own) <= MEMORY), 0)


def runs_at_once(networks: Any, rows: int) -> int | None:
    """Of how many runs, each with such networks of all its members, a kernel of ours finds room on a GPU; where none is
    used, nothing limits them."""
    leaves = jax.tree.leaves(networks, is_leaf=lambda node: isinstance(node, Folded))
    nets = [net for net in leaves if isinstance(net, Folded)] if devices.multiplies_by_warpgroups() else []
    groups = [row_groups(rows, [matrix[0] for matrix in net.matrices]) for net in nets]
    tiles = [len(net.matrices[0]) * rows // (n * ROWS) for net, n in zip(nets, groups, strict=True) if n > 0]
    return max(devices.multiprocessors() // max(tiles), 1) if tiles else None


def with_one(x: Float[Array, "*B I"], size: int) -> Float[Array, "*B I"]:
    """A one behind the first `size` numbers."""
    return jnp.where(jnp.broadcast_to(jnp.arange(x.shape[-1]) == size, x.shape), jnp.ones_like(x), x)


def fold(net: MLP) -> Folded:
    """The same perceptron."""
    sizes = (net.layers[0].weight.shape[0], *[layer.bias.size for layer in net.layers])
    return Folded(tuple(matrix(layer) for layer in net.layers), sizes, net.activation)


def unfold(net: Folded) -> MLP:
    """The same perceptron again."""
    return MLP(net.layers, net.activation)


def matrix(layer: Linear) -> Float[Array, "I J"]:
    """A layer's weights and below them its bias, with room for a one in what it reads and in what it leaves."""
    both = jnp.concatenate([layer.weight, layer.bias[None]])
    rows, columns = both.shape
    return jnp.pad(both, [(0, -rows % MULTIPLE), (0, 1 + -(columns + 1) % MULTIPLE)])


def halve(net: Folded) -> Folded:
    """The same in bfloat16."""
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16), net)


def each(change: Callable, kind: type, networks: Networks) -> Networks:
    """A tree whose perceptrons of this kind, of all members, are changed; and all else that stands in it."""
    return jax.tree.map(
        lambda node: jax.vmap(change)(node) if isinstance(node, kind) else node,
        networks,
        is_leaf=lambda node: isinstance(node, kind),
    )
