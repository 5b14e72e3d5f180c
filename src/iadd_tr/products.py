"""How training multiplies rows by a matrix: with gradients made as a CPU likes them. They cannot be differentiated
forwards, so that elsewhere networks multiply as JAX does."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, BFloat16, Float

Multiply = Callable[[Array, Array], Array]
WIDE = 64  # of fewer inputs or outputs a product is cheap, and what it would round is a network's input or answer


@jax.custom_vjp
def multiply(x: Float[Array, "*B I"], weight: Float[Array, "I J"]) -> Float[Array, "*B J"]:
    """Rows times a matrix, whose gradient comes as it lies: JAX's own comes transposed, and a CPU would read across it
    in every pass of Adam."""
    return jnp.dot(x, weight)


def _multiply_forward(x: Float[Array, "*B I"], weight: Float[Array, "I J"]) -> tuple[Array, tuple[Array, Array]]:
    return jnp.dot(x, weight), (x, weight)


def _multiply_backward(read: tuple[Array, Array], error: Float[Array, "*B J"]) -> tuple[Array, Array]:
    x, weight = read
    rows = tuple(range(x.ndim - 1))
    entry = lax.dot_general(error, weight, (((error.ndim - 1,), (1,)), ((), ())))
    return entry, lax.dot_general(x, error, ((rows, rows), ((), ())))


multiply.defvjp(_multiply_forward, _multiply_backward)


def multiply_coarsely(x: Float[Array, "B I"], weight: Float[Array, "I J"]) -> Float[Array, "B J"]:
    """The same, but that a wide matrix and its rows are rounded to bfloat16 and added up in single precision, and its
    gradients likewise."""
    return coarse(x, weight) if min(weight.shape) >= WIDE else multiply(x, weight)


@jax.custom_vjp
def coarse(x: Float[Array, "B I"], weight: Float[Array, "I J"]) -> Float[Array, "B J"]:
    return _coarse_forward(x, weight)[0]


def _coarse_forward(x: Float[Array, "B I"], weight: Float[Array, "I J"]) -> tuple[Array, tuple[Array, Array]]:
    x, weight = x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16)
    return sums(x, weight, 1, 0), (x, weight)


def _coarse_backward(read: tuple[Array, Array], error: Float[Array, "B J"]) -> tuple[Array, Array]:
    x, weight = read
    error = error.astype(jnp.bfloat16)
    return sums(error, weight, 1, 1), sums(turned(x), error, 1, 0)


coarse.defvjp(_coarse_forward, _coarse_backward)


def sums(a: BFloat16[Array, "_ _"], b: BFloat16[Array, "_ _"], over: int, its: int) -> Float[Array, "_ _"]:
    """A product over one axis of each, in single precision."""
    return lax.dot_general(a, b, (((over,), (its,)), ((), ())), preferred_element_type=jnp.float32)


def turned(x: Float[Array, "B I"]) -> Float[Array, "I B"]:
    """The transpose, by way of two halves of the rows where they are even: XLA would let a product read a plain one
    across, and no CPU's product of bfloat16 does that."""
    halves = math.gcd(len(x), 2)
    return jnp.moveaxis(x.reshape(halves, -1, x.shape[1]), -1, 0).reshape(x.shape[1], len(x))
