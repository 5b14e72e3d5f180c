"""A perceptron's passes as one kernel each, for NVIDIA's Hopper GPUs: what a layer leaves stays there for the next one.

A multiprocessor takes 64 or 128 rows of a batch through all layers. Of 64 rows each of two workers, which are groups of
warps, has half the columns. While they activate what one layer gives, the matrix of the next is on its way.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, BFloat16, Float

ROWS = 64  # of one product
HALVES = 2
TILE = 16  # columns that are activated at once; all sizes are multiples of it
WIDEST = 256  # columns of a product
MEMORY = 231_000  # bytes of a multiprocessor's that arrays may take
TRANSFORMS = (plgpu.TilingTransform((8, TILE)), plgpu.SwizzleTransform(2 * TILE))
TAKEN = jax.__version_info__ >= (0, 11)  # before that a kernel cannot load a part of an array
PARAMETERS = plgpu.CompilerParams(approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Warpgroup)

Matrices = Sequence[BFloat16[Array, "_ _"]]
Hidden = Sequence[BFloat16[Array, "B N"]]
Ref = Any  # an array in a GPU's memory, or a barrier


def row_groups(rows: int, matrices: Matrices) -> int:
    """How many times 64 rows a multiprocessor takes; none where the kernels do not take a perceptron of this shape."""
    heights, widths = zip(*(matrix.shape for matrix in matrices), strict=True)
    if not TAKEN or len({*heights[1:], *widths[:-1]}) != 1 or max(*heights, *widths) > WIDEST:
        return 0
    shared = max(heights[:-1]) * widths[0] + heights[-1] * widths[-1]
    own = ROWS * (widths[0] + max(heights[0], widths[-1]))
    return next((n for n in (2, 1) if rows % (n * ROWS) == 0 and 2 * (shared + n * own) <= MEMORY), 0)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def perceive(
    x: BFloat16[Array, "B I"], matrices: tuple[BFloat16[Array, "_ _"], ...], ones: tuple[int, ...]
) -> Float[Array, "B J"]:
    """A perceptron's answer to rows behind which a one stands; hidden layers leave a one in the columns `ones`."""
    return forward(x, matrices, ones)[0]


def _perceive_forward(x: Array, matrices: tuple[Array, ...], ones: tuple[int, ...]) -> tuple[Array, Any]:
    answer, lefts, slopes = forward(x, matrices, ones)
    return answer, (matrices, [x, *lefts], slopes)


def _perceive_backward(ones: tuple[int, ...], kept: Any, error: Array) -> tuple[Array, tuple[Array, ...]]:
    matrices, reads, slopes = kept
    error = error.astype(jnp.bfloat16)
    entry, errors = backward(error, matrices, slopes)
    gradient = [jnp.dot(read.T, error) for read, error in zip(reads, [*errors, error], strict=True)]
    return entry.astype(jnp.bfloat16), tuple(gradient)


perceive.defvjp(_perceive_forward, _perceive_backward)


class Chip(NamedTuple):
    """A multiprocessor's memory, with barriers for what is on its way there and for its workers to meet at."""

    hidden: Ref  # the matrix of one hidden layer after the other
    last: Ref  # that of the last layer
    entry: Ref  # the rows that the first product reads
    left: Ref  # what a layer leaves
    hidden_here: Ref
    last_here: Ref
    entry_here: Ref
    read: Ref
    written: Ref


class Worker:
    """64 rows, half the columns, and products with the layers' matrices in turn."""

    def __init__(self, chip: Chip, weights: Sequence[Ref], entry: Ref, backward: bool):
        self.chip, self.weights, self.backward = chip, weights, backward
        number, groups = lax.axis_index("worker"), chip.left.shape[0]
        self.first, self.group, self.half = number == 0, lax.div(number, HALVES), lax.rem(number, HALVES)
        self.rows = pl.ds((lax.axis_index("tile") * groups + self.group) * ROWS, ROWS)
        layers = range(len(weights) - 1)
        self.coming = iter(layers[::-1] if backward else layers)

        @pl.when(self.half == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(entry.at[self.rows], chip.entry.at[self.group], chip.entry_here.at[self.group])

        self.fetch(weights[-1], chip.last, chip.last_here)
        self.fetch_next()
        plgpu.barrier_wait(chip.entry_here.at[self.group])

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
        half = -(-count // (HALVES * TILE)) * TILE
        return pl.ds(self.half * (count - half), half)

    def may_hold(self, column: int, start: int, columns: Any) -> bool:
        """Whether the tile that starts there in some worker's columns has this one."""
        firsts = (start, self.chip.left.shape[-1] - columns.size + start)
        return any(first <= column < first + TILE for first in firsts)

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

    def leave(self, place: Any, part: Float[Array, "I J"]) -> None:
        """Part of what the next product reads."""
        self.chip.left[self.group, :, place] = part.astype(jnp.bfloat16)

    def send(self, target: Ref) -> None:
        """What both halves have left."""
        plgpu.commit_smem()
        self.meet(self.chip.written)

        @pl.when(self.half == 1)
        def _() -> None:
            plgpu.copy_smem_to_gmem(self.chip.left.at[self.group], target.at[self.rows])

    def meet(self, barrier: Ref) -> None:
        """Wait for all workers."""
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)


def tiles(columns: Any, *arrays: Float[Array, "I J"]) -> Iterator[tuple[Any, ...]]:
    """A tile of columns after the other, and arrays there, so that few numbers at a time need registers."""
    for start in range(0, columns.size, TILE):
        yield start, pl.ds(columns.start + start, TILE), *(array[:, start : start + TILE] for array in arrays)


def forward(
    x: BFloat16[Array, "B I"], matrices: Matrices, ones: Sequence[int]
) -> tuple[Float[Array, "B J"], Hidden, Hidden]:
    """The answer; what hidden layers leave, a one in the column that `ones` names; and the slopes of their swish."""
    depth = len(ones)

    def kernel(x_ref: Ref, *refs: Ref, **memory: Ref) -> None:
        chip, (*weights, answer) = Chip(**memory), refs[: depth + 2]
        lefts, slopes = refs[depth + 2 : -depth], refs[-depth:]
        worker = Worker(chip, weights, x_ref, backward=False)
        for layer, one in enumerate(ones):
            sums, columns = worker.product(chip.left if layer else chip.entry, layer)
            for start, place, own in tiles(columns, sums):
                half = 0.5 + 0.5 * jnp.tanh(0.5 * own)
                swish = own * half
                slope = half + swish * (1.0 - half)
                if worker.may_hold(one, start, columns):
                    behind = lax.broadcasted_iota(jnp.int32, own.shape, 1) == one - place.start
                    swish, slope = jnp.where(behind, 1.0, swish), jnp.where(behind, 0.0, slope)
                worker.leave(place, swish)
                slopes[layer][worker.rows, place] = slope.astype(jnp.bfloat16)
            worker.send(lefts[layer])
        sums, columns = worker.product(chip.left, depth)
        answer[worker.rows, columns] = sums
        plgpu.wait_smem_to_gmem(0)

    hidden = [jax.ShapeDtypeStruct((x.shape[0], matrices[0].shape[1]), jnp.bfloat16)] * depth
    answer = jax.ShapeDtypeStruct((x.shape[0], matrices[-1].shape[1]), jnp.float32)
    answer, *kept = launch(kernel, x, matrices, [answer, *hidden, *hidden])(x, *matrices)
    return answer, kept[:depth], kept[depth:]


def backward(error: BFloat16[Array, "B J"], matrices: Matrices, slopes: Hidden) -> tuple[Float[Array, "B I"], Hidden]:
    """From the loss's gradient by the answer to those by the rows read and by what each hidden layer's product gave."""
    depth = len(slopes)

    def kernel(error_ref: Ref, *refs: Ref, **memory: Ref) -> None:
        chip, weights, errors = Chip(**memory), refs[: depth + 1], refs[-depth:]
        *kept_slopes, entry = refs[depth + 1 : -depth]
        worker = Worker(chip, weights, error_ref, backward=True)
        for layer in reversed(range(depth)):
            kept = kept_slopes[layer]
            slope = plgpu.load(kept.at[worker.rows, worker.columns(kept.shape[1])], optimized=False)  # pyright: ignore[reportCallIssue]
            sums, columns = worker.product(chip.left if layer + 1 < depth else chip.entry, layer + 1)
            for _, place, own, its_slope in tiles(columns, sums, slope):
                worker.leave(place, own * its_slope.astype(jnp.float32))
            worker.send(errors[layer])
        sums, columns = worker.product(chip.left, 0)
        entry[worker.rows, columns] = sums
        plgpu.wait_smem_to_gmem(0)

    entry = jax.ShapeDtypeStruct((error.shape[0], matrices[0].shape[0]), jnp.float32)
    hidden = [jax.ShapeDtypeStruct(slope.shape, jnp.bfloat16) for slope in slopes]
    entry, *errors = launch(kernel, error, matrices, [entry, *hidden])(error, *matrices, *slopes)
    return entry, errors


def launch(kernel: Any, rows: Array, matrices: Matrices, outputs: list[Any]) -> Any:
    """The kernel over all rows of a batch."""
    (count, entry), width = rows.shape, matrices[0].shape[1]
    groups = row_groups(count, matrices)

    def array(*shape: int) -> Any:
        return plgpu.SMEM(shape, jnp.bfloat16, transforms=TRANSFORMS)

    chip = Chip(
        hidden=array(max(matrix.shape[0] for matrix in matrices[:-1]), width),
        last=array(*matrices[-1].shape),
        entry=array(groups, ROWS, entry),
        left=array(groups, ROWS, width),
        hidden_here=plgpu.Barrier(),
        last_here=plgpu.Barrier(),
        entry_here=plgpu.Barrier(num_barriers=groups),
        read=plgpu.Barrier(num_arrivals=groups * HALVES),
        written=plgpu.Barrier(num_arrivals=groups * HALVES),
    )
    return plgpu.kernel(
        kernel,
        out_type=outputs,
        grid=(count // (groups * ROWS),),
        grid_names=("tile",),
        num_threads=groups * HALVES,
        thread_name="worker",
        compiler_params=PARAMETERS,
        scratch_types=chip._asdict(),
    )
