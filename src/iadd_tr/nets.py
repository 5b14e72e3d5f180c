"""Multilayer perceptrons whose leaves are arrays only, so plain jit, vmap and grad take them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr import devices
from iadd_tr.products import Multiply, multiply, multiply_coarsely
from iadd_tr.types import PRNGKey

Networks = TypeVar("Networks")


class Initialiser(NamedTuple):
    """How a layer's I x J weights start: a standard draw of so many numbers, times a scale."""

    draw: Callable[[PRNGKey, int], Float[Array, " N"]]
    scale: Callable[[int, int], float]


GLOROT_UNIFORM = Initialiser(
    draw=lambda key, count: jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0),
    scale=lambda inputs, outputs: (6.0 / (inputs + outputs)) ** 0.5,
)
"""The agent's networks."""

TRUNCATED_NORMAL = Initialiser(
    draw=lambda key, count: jax.random.truncated_normal(key, -2.0, 2.0, (count,)),
    scale=lambda inputs, outputs: 0.5 * inputs**-0.5,
)
"""The dynamics model's networks."""


class Linear(eqx.Module):
    weight: Float[Array, "I J"]
    bias: Float[Array, " J"]

    def __call__(self, x: Float[Array, "*B I"], multiply: Multiply = jnp.dot) -> Float[Array, "*B J"]:
        return multiply(x, self.weight) + jnp.broadcast_to(self.bias, (*x.shape[:-1], self.bias.size))


@runtime_checkable
class Layered(Protocol):
    """A network of layers that follow each other, however it holds their weights."""

    @property
    def layers(self) -> tuple[Linear, ...]: ...


class MLP(eqx.Module):
    """Linear layers with `activation` between them and none after the last."""

    layers: tuple[Linear, ...]
    activation: Callable = eqx.field(static=True)
    multiply: Multiply = eqx.field(static=True, default=jnp.dot)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x, self.multiply))
        return last(x, self.multiply)


def mlp(key: PRNGKey, sizes: Sequence[int], activation: Callable, initialise: Initialiser) -> MLP:
    """A perceptron through `sizes`, biases zero; all its weights come from one draw, which compiles faster."""
    shapes = list(pairwise(sizes))
    cuts = list(accumulate(i * j for i, j in shapes))
    draw = initialise.draw(key, cuts[-1])
    layers = [
        Linear(initialise.scale(i, j) * draw[end - i * j : end].reshape(i, j), jnp.zeros(j))
        for (i, j), end in zip(shapes, cuts, strict=True)
    ]
    return MLP(tuple(layers), activation)


def orthogonal(key: PRNGKey, sizes: Sequence[int], activation: Callable, last: float) -> MLP:
    """A perceptron of orthogonal weights, scaled by the square root of two and, in its last layer, by `last`."""
    shapes = list(pairwise(sizes))
    gains = [2.0**0.5] * (len(shapes) - 1) + [last]
    keys = jax.random.split(key, len(shapes))
    draw = [
        jax.nn.initializers.orthogonal(gain)(key, shape) for gain, key, shape in zip(gains, keys, shapes, strict=True)
    ]
    return MLP(tuple(Linear(weight, jnp.zeros(weight.shape[1])) for weight in draw), activation)


def multiplying(by: Multiply, networks: Networks) -> Networks:
    """A tree whose perceptrons multiply by a function of `products`, or as JAX does; and all else that stands in it."""

    def is_perceptron(node: Any) -> bool:
        return isinstance(node, MLP)

    return jax.tree.map(
        lambda node: replace(node, multiply=by) if is_perceptron(node) else node, networks, is_leaf=is_perceptron
    )


def in_training(networks: Networks) -> Networks:
    """A tree whose perceptrons multiply as training likes it: on a CPU that multiplies bfloat16 with factors rounded to
    it, as a GPU rounds to TF32."""
    coarsely = devices.on_cpu() and devices.multiplies_bfloat16()
    return multiplying(multiply_coarsely if coarsely else multiply, networks)


def twin_values(twins: Any, x: Float[Array, "B I"]) -> Float[Array, "2 B"]:
    """The single output of each of two networks for the same rows. Both get a copy of them: one product for both would
    have its halves transposed, and its biases added, by kernels of their own."""
    return jax.vmap(lambda net, own: net(own)[..., 0])(twins, jnp.broadcast_to(x, (2, *x.shape)))


def zero_last(net: MLP) -> MLP:
    """The same network, answering zero everywhere until it is trained."""
    return eqx.tree_at(lambda n: n.layers[-1].weight, net, jnp.zeros_like(net.layers[-1].weight))
