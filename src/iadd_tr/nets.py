"""Multilayer perceptrons whose leaves are arrays only, so plain jit, vmap and grad take them."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.types import PRNGKey

Initialiser = Callable[[PRNGKey, int, int], Float[Array, "I J"]]


def glorot_uniform(key: PRNGKey, inputs: int, outputs: int) -> Float[Array, "I J"]:
    """Uniform on ±sqrt(6/(I+J)): the agent's networks."""
    limit = (6.0 / (inputs + outputs)) ** 0.5
    return jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)


def truncated_normal(key: PRNGKey, inputs: int, outputs: int) -> Float[Array, "I J"]:
    """Standard deviation 1/(2 sqrt(I)), cut at two deviations: the dynamics model's networks."""
    return jax.random.truncated_normal(key, -2.0, 2.0, (inputs, outputs)) / (2.0 * inputs**0.5)


class Linear(eqx.Module):
    weight: Float[Array, "I J"]
    bias: Float[Array, " J"]

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        return jnp.dot(x, self.weight) + jnp.broadcast_to(self.bias, (*x.shape[:-1], self.bias.size))


class MLP(eqx.Module):
    """Linear layers with `activation` between them and none after the last."""

    layers: tuple[Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B J"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


def mlp(key: PRNGKey, sizes: Sequence[int], activation: Callable, initialise: Initialiser) -> MLP:
    """A perceptron through `sizes`, biases zero."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [
        Linear(initialise(k, i, j), jnp.zeros(j)) for k, (i, j) in zip(keys, pairwise(sizes), strict=True)
    ]
    return MLP(tuple(layers), activation)


def zero_last(net: MLP) -> MLP:
    """The same network, answering zero everywhere until it is trained."""
    return eqx.tree_at(lambda n: n.layers[-1].weight, net, jnp.zeros_like(net.layers[-1].weight))
