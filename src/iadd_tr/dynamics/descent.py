"""A layer's gradient and Adam's step on it as one kernel of a GPU: the gradient never goes through memory."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from iadd_tr import adam

TILE = (64, 64)  # of a matrix, which one program steps
DEPTH = 64  # rows of a minibatch that it multiplies at once
LEAST = 16  # of a product's sizes
WARPS, STAGES = 4, 2


def step_layer(
    read: Float[Array, "B I"],
    slope: Float[Array, "B J"],
    matrix: Float[Array, "I J"],
    mean: Float[Array, "I J"],
    square: Float[Array, "I J"],
    pace: Float[Array, " 3"],
    inner: tuple[int, int],
    decay: float,
) -> list[Float[Array, "I J"]]:
    """Matrix and moments after a step along read^T slope, and the matrix in bfloat16; `inner` are the sizes without
    padding, and the last of its rows, the bias, does not decay."""
    rows, columns = (min(tile, power_of_two(size)) for tile, size in zip(TILE, matrix.shape, strict=True))
    whole = [pl.BlockSpec(x.shape, lambda *_, n=x.ndim: (0,) * n) for x in (read, slope, matrix, mean, square, pace)]
    like = [jax.ShapeDtypeStruct(matrix.shape, dtype) for dtype in (*[matrix.dtype] * 3, read.dtype)]
    return pl.pallas_call(
        partial(kernel, inner=inner, decay=decay, tile=(rows, columns)),
        grid=(pl.cdiv(matrix.shape[0], rows), pl.cdiv(matrix.shape[1], columns)),
        in_specs=whole,
        out_specs=[whole[2]] * 4,
        out_shape=like,
        input_output_aliases={2: 0, 3: 1, 4: 2},
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=jax.default_backend() != "gpu",
    )(read, slope, matrix, mean, square, pace)


def power_of_two(size: int) -> int:
    """The next one, as a kernel's sizes are."""
    return max(LEAST, 1 << (size - 1).bit_length())


def kernel(
    read: Any, slope: Any, matrix: Any, mean: Any, square: Any, pace: Any, *made: Any,
    inner: tuple[int, int], decay: float, tile: tuple[int, int],
) -> None:  # fmt: skip
    """One tile of the matrix."""
    batch, (height, width) = read.shape[0], matrix.shape
    rows, columns = (pl.program_id(n) * tile[n] + jnp.arange(tile[n]) for n in (0, 1))

    def add(i: Any, total: Any) -> Any:
        k = i * DEPTH + jnp.arange(DEPTH)
        left, right = load(read, k, rows, (batch, height)), load(slope, k, columns, (batch, width))
        product = jax.lax.dot_general(left, right, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        return total + product

    gradient = jax.lax.fori_loop(0, pl.cdiv(batch, DEPTH), add, jnp.zeros(tile, jnp.float32))
    value, *moments = (load(ref, rows, columns, (height, width)) for ref in (matrix, mean, square))
    gradient += jnp.where((rows < inner[0])[:, None], decay, 0.0) * value
    gradient = jnp.where(inside(rows, columns, (inner[0] + 1, inner[1])), gradient, 0.0)
    value, *moments = adam.moved(value, *moments, gradient, *(pace[n] for n in range(3)))
    for ref, new in zip(made, (value, *moments, value.astype(made[-1].dtype)), strict=True):
        triton.store(ref.at[rows[:, None], columns[None, :]], new, mask=inside(rows, columns, (height, width)))


def inside(rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    """Which of a tile's places there are in an array of this shape."""
    return (rows < shape[0])[:, None] & (columns < shape[1])[None, :]


def load(ref: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    """A tile of an array, with zeros outside of it."""
    return triton.load(ref.at[rows[:, None], columns[None, :]], mask=inside(rows, columns, shape), other=0.0)
