"""What goes through a perceptron on a GPU's multiprocessor: a group of warps, and the memory it shares with others."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from iadd_tr.dynamics.folded import MULTIPLE, ROWS

HALVES = 2  # of the columns
TRANSFORMS = (plgpu.TilingTransform((8, MULTIPLE)), plgpu.SwizzleTransform(2 * MULTIPLE))

Ref = Any  # an array in a GPU's memory, or a barrier


def array(*shape: int) -> Any:
    """Numbers in a multiprocessor's memory, as products read them."""
    return plgpu.SMEM(shape, jnp.bfloat16, transforms=TRANSFORMS)


class Chip(NamedTuple):
    """A multiprocessor's memory, with barriers for what is on its way there and for its workers to meet at."""

    hidden: Ref  # the matrix of one hidden layer after the other
    last: Ref  # that of the last layer
    rows: Ref  # in the same place, those that the first product reads, and then what a layer leaves
    slope: Ref  # of a layer's swish
    hidden_here: Ref
    last_here: Ref
    entry_here: Ref
    slope_here: Ref
    read: Ref
    written: Ref

    @property
    def entry(self) -> Ref:
        return self.rows[0]

    @property
    def left(self) -> Ref:
        return self.rows[1]


class Worker:
    """64 rows, half the columns, and products with the layers' matrices in turn."""

    def __init__(self, chip: Chip, weights: Sequence[Ref], entry: Ref, backward: bool):
        self.chip, self.weights, self.backward = chip, weights, backward
        number, groups = lax.axis_index("worker"), chip.left.shape[0]
        self.first, self.group, self.half = number == 0, lax.div(number, HALVES), lax.rem(number, HALVES)
        self.rows = pl.ds((lax.axis_index("tile") * groups + self.group) * ROWS, ROWS)
        layers = range(len(weights) - 1)
        self.coming = iter(layers[::-1] if backward else layers)

        self.fetch_rows(entry, chip.entry, chip.entry_here)
        self.fetch(weights[-1], chip.last, chip.last_here)
        self.fetch_next()
        plgpu.barrier_wait(chip.entry_here.at[self.group])

    def fetch_rows(self, source: Ref, place: Ref, here: Ref) -> None:
        """Send for these 64 rows."""

        @pl.when(self.half == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(source.at[self.rows], place.at[self.group], here.at[self.group])

    def fetch(self, weight: Ref, place: Ref, here: Ref) -> None:
        """Send for a matrix."""

        @pl.when(self.first)
        def _() -> None:
            plgpu.copy_gmem_to_smem(weight, place, here)

    def fetch_next(self) -> None:
        """Send for that of the next hidden layer, if there is one."""
        layer = next(self.coming, None)
        if layer is not None:
            self.fetch(self.weights[layer], self.place(layer), self.chip.hidden_here)

    def place(self, layer: int) -> Ref:
        """Where the matrix of a hidden layer lies in its turn."""
        return self.chip.hidden.at[pl.ds(0, self.weights[layer].shape[0])]

    def columns(self, count: int) -> Any:
        """This worker's half of so many columns; where they are an odd number of tiles, both take the one between."""
        half = -(-count // (HALVES * MULTIPLE)) * MULTIPLE
        return pl.ds(self.half * (count - half), half)

    def may_hold(self, column: int, start: int, columns: Any) -> bool:
        """Whether the tile that starts there in some worker's columns has this one."""
        firsts = (start, self.chip.left.shape[-1] - columns.size + start)
        return any(first <= column < first + MULTIPLE for first in firsts)

    def product(self, rows: Ref, layer: int) -> tuple[Float[Array, "I J"], Any]:
        """This worker's part of the rows' product with a layer's matrix, and in which columns it stands.

        It returns when no worker reads rows or matrix any more, and when what they left before is on its way.
        """
        chip, hidden = self.chip, layer < len(self.weights) - 1
        matrix, here = (self.place(layer), chip.hidden_here) if hidden else (chip.last, chip.last_here)
        columns = self.columns(matrix.shape[0 if self.backward else 1])
        part = matrix.at[columns].transpose((1, 0)) if self.backward else matrix.at[:, columns]
        plgpu.barrier_wait(here)

        def multiply(total: Ref) -> Float[Array, "I J"]:
            plgpu.wgmma(total, rows.at[self.group], part)
            return total[...]

        sums = pl.run_scoped(multiply, plgpu.WGMMAAccumulatorRef((ROWS, columns.size), jnp.float32))
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        self.meet(chip.read)
        if hidden:
            self.fetch_next()
        return sums, columns

    def leave(self, place: Any, part: Float[Array, "I J"], slope: Float[Array, "I J"] | None = None) -> None:
        """Part of what the next product reads, and its slope."""
        self.chip.left[self.group, :, place] = part.astype(jnp.bfloat16)
        if slope is not None:
            self.chip.slope[self.group, :, place] = slope.astype(jnp.bfloat16)

    def send(self, target: Ref, slopes: Ref | None = None) -> None:
        """What both halves have left, and its slopes."""
        plgpu.commit_smem()
        self.meet(self.chip.written)

        @pl.when(self.half == 1)
        def _() -> None:
            plgpu.copy_smem_to_gmem(self.chip.left.at[self.group], target.at[self.rows])
            if slopes is not None:
                plgpu.copy_smem_to_gmem(self.chip.slope.at[self.group], slopes.at[self.rows])

    def slope(self, columns: Any) -> Float[Array, "I J"]:
        """What was sent for: slopes in these columns."""
        plgpu.barrier_wait(self.chip.slope_here.at[self.group])
        return self.chip.slope[self.group, :, columns]

    def meet(self, barrier: Ref) -> None:
        """Wait for all workers."""
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)


def tiles(columns: Any, *arrays: Float[Array, "I J"]) -> Iterator[tuple[Any, ...]]:
    """A tile of columns after the other, and arrays there, so that few numbers at a time need registers."""
    for start in range(0, columns.size, MULTIPLE):
        yield start, pl.ds(columns.start + start, MULTIPLE), *(array[:, start : start + MULTIPLE] for array in arrays)
