"""Perceptrons as a GPU fits them fastest: half the bytes, and a layer's bias inside its matrix."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import MLP, Linear

MULTIPLE = 8  # sizes of a matrix: 16 bytes, which products read at once
Networks = TypeVar("Networks")


class Folded(eqx.Module):
    """A perceptron in bfloat16. Biases are rows of its matrices, so that one product gives the gradient of both; behind
    the numbers that a layer reads stands a one for them, then zeros."""

    matrices: tuple[Float[Array, "_ _"], ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        *hidden, last = self.matrices
        spare = self.matrices[0].shape[0] - x.shape[-1]
        inner = jnp.pad(x.astype(last.dtype), [*[(0, 0)] * (x.ndim - 1), (0, spare)])
        for size, matrix in zip(self.sizes, hidden, strict=False):
            inner = self.activation(jnp.dot(with_one(inner, size), matrix))
        return jnp.dot(with_one(inner, self.sizes[-2]), last)[..., : self.sizes[-1]].astype(x.dtype)


def with_one(x: Float[Array, "*B I"], size: int) -> Float[Array, "*B I"]:
    """A one behind the first `size` numbers."""
    return x + jnp.broadcast_to(jax.nn.one_hot(size, x.shape[-1], dtype=x.dtype), x.shape)


def fold(net: MLP) -> Folded:
    """The same perceptron; gradients go through to its weights and biases."""
    sizes = (net.layers[0].weight.shape[0], *[layer.bias.size for layer in net.layers])
    return Folded(tuple(matrix(layer) for layer in net.layers), sizes, net.activation)


def matrix(layer: Linear) -> Float[Array, "I J"]:
    """A layer's weights and below them its bias, with room for a one in what it reads and in what it leaves."""
    both = jnp.concatenate([layer.weight, layer.bias[None]]).astype(jnp.bfloat16)
    rows, columns = both.shape
    return jnp.pad(both, [(0, -rows % MULTIPLE), (0, 1 + -(columns + 1) % MULTIPLE)])


def fold_members(networks: Networks) -> Networks:
    """The same, each of its perceptrons folded, whose leaves lead with a members axis."""

    def folded(node: object) -> object:
        return jax.vmap(fold)(node) if isinstance(node, MLP) else node

    return jax.tree.map(folded, networks, is_leaf=lambda node: isinstance(node, MLP))
