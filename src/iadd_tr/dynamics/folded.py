"""Perceptrons as a GPU fits them fastest: half the bytes, a layer's bias inside its matrix, and Adam's step in its
backward pass."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from iadd_tr import adam
from iadd_tr.dynamics.descent import step_layer
from iadd_tr.dynamics.member import decay_rates
from iadd_tr.nets import MLP, Linear

MULTIPLE = 8  # sizes of a matrix: 16 bytes, which products read at once


class Layer(eqx.Module):
    """A matrix whose last row is the bias, its moments, and a copy in bfloat16 that products read; all padded."""

    matrix: Float[Array, "*M I J"]
    mean: Float[Array, "*M I J"]
    square: Float[Array, "*M I J"]
    half: Float[Array, "*M I J"]
    pace: Float[Array, "*M 3"]  # of the step under way
    sizes: tuple[int, int] = eqx.field(static=True)
    decay: float = eqx.field(static=True)


class Folded(eqx.Module):
    """A perceptron in bfloat16 that steps while it is differentiated, so it may be applied once. Behind the numbers
    that a layer reads stands a one for its bias, then zeros."""

    layers: tuple[Layer, ...]
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        *hidden, last = self.layers
        spare = self.layers[0].half.shape[0] - x.shape[-1]
        inner = jnp.pad(x.astype(last.half.dtype), [*[(0, 0)] * (x.ndim - 1), (0, spare)])
        for layer in hidden:
            inner = self.activation(product(with_one(inner, layer.sizes[0]), layer))
        return product(with_one(inner, last.sizes[0]), last)[..., : last.sizes[1]].astype(x.dtype)


def with_one(x: Float[Array, "*B I"], size: int) -> Float[Array, "*B I"]:
    """A one behind the first `size` numbers."""
    return x + jnp.broadcast_to(jax.nn.one_hot(size, x.shape[-1], dtype=x.dtype), x.shape)


@jax.custom_vjp
def product(x: Float[Array, "B I"], layer: Layer) -> Float[Array, "B J"]:
    """What a layer leaves before its activation. In place of its gradient comes the layer after a step along it."""
    return jnp.dot(x, layer.half)


def _forward(x: Float[Array, "B I"], layer: Layer) -> tuple[Float[Array, "B J"], Any]:
    return product(x, layer), (x, layer)


def _backward(kept: Any, slope: Float[Array, "B J"]) -> tuple[Float[Array, "B I"], Layer]:
    x, layer = kept
    moved = step_layer(x, slope, layer.matrix, layer.mean, layer.square, layer.pace, layer.sizes, layer.decay)
    return jnp.dot(slope, layer.half.T), Layer(*moved, layer.pace, layer.sizes, layer.decay)


product.defvjp(_forward, _backward)


def fold(net: MLP, mean: MLP, square: MLP, decays: list[float]) -> Folded:
    """A perceptron with its moments, each layer with its own decay."""
    layers = []
    for value, *moments, decay in zip(net.layers, mean.layers, square.layers, decays, strict=True):
        matrix, *moments = (join(layer) for layer in (value, *moments))
        layers.append(Layer(matrix, *moments, matrix.astype(jnp.bfloat16), jnp.zeros(3), value.weight.shape, decay))
    return Folded(tuple(layers), net.activation)


def join(layer: Linear) -> Float[Array, "I J"]:
    """A layer's weights and below them its bias, with room for a one in what it reads and in what it leaves."""
    both = jnp.concatenate([layer.weight, layer.bias[None]])
    rows, columns = both.shape
    return jnp.pad(both, [(0, -rows % MULTIPLE), (0, 1 + -(columns + 1) % MULTIPLE)])


def unfold(net: Folded, name: str) -> MLP:
    """The perceptron again; or, by the name of a layer's field, its moments."""

    def linear(layer: Layer) -> Linear:
        inputs, outputs = layer.sizes
        matrix = getattr(layer, name)[..., :outputs]
        return Linear(matrix[..., :inputs, :], matrix[..., inputs, :])

    return MLP(tuple(linear(layer) for layer in net.layers), net.activation)


def is_net(node: object) -> bool:
    return isinstance(node, MLP | Folded)


def parted(networks: Any) -> tuple[Any, Any]:
    """The perceptrons of a tree, and all else."""
    return eqx.partition(networks, is_net, is_leaf=is_net)


def fold_members(networks: Any, optimiser: optax.OptState) -> tuple[Any, optax.OptState]:
    """The same training with the perceptrons' moments beside their matrices; members lead all arrays."""
    trees, others = zip(*map(parted, (networks, optimiser.mu, optimiser.nu)), strict=True)
    leaves, structure = jax.tree.flatten(trees[0], is_leaf=is_net)
    decays, folded = decay_rates(sum(len(net.layers) for net in leaves)), []
    for nets in zip(leaves, *(jax.tree.leaves(tree, is_leaf=is_net) for tree in trees[1:]), strict=True):
        own, decays = decays[: len(nets[0].layers)], decays[len(nets[0].layers) :]
        folded.append(jax.vmap(partial(fold, decays=own))(*nets))
    networks = eqx.combine(jax.tree.unflatten(structure, folded), others[0], is_leaf=is_net)
    return networks, optimiser._replace(mu=others[1], nu=others[2])


def unfold_members(networks: Any, optimiser: optax.OptState) -> tuple[Any, optax.OptState]:
    """The opposite of folding."""
    nets, others = parted(networks)

    def plain(name: str, rest: Any) -> Any:
        return eqx.combine(jax.tree.map(lambda net: unfold(net, name), nets, is_leaf=is_net), rest, is_leaf=is_net)

    moments = {"mu": plain("mean", optimiser.mu), "nu": plain("square", optimiser.nu)}
    return plain("matrix", others), optimiser._replace(**moments)


def descend(
    loss: Callable[[Any], Float[Array, ""]], networks: Any, optimiser: optax.OptState, rate: Float[Array, ""]
) -> tuple[Any, optax.OptState]:
    """One step of Adam: that of the perceptrons is made where their gradient would be."""
    moved, gradient = parted(jax.grad(loss)(paced(networks, adam.pace(optimiser.count, rate))))
    others, optimiser = adam.descend(parted(networks)[1], optimiser, gradient, rate)
    return eqx.combine(moved, others, is_leaf=is_net), optimiser


def paced(networks: Any, pace: Float[Array, " 3"]) -> Any:
    """Networks whose layers know the pace of their next step."""

    def set_pace(node: Any) -> Any:
        if not isinstance(node, Layer):
            return node
        return eqx.tree_at(lambda layer: layer.pace, node, jnp.broadcast_to(pace, node.pace.shape))

    return jax.tree.map(set_pace, networks, is_leaf=lambda node: isinstance(node, Layer))
