"""A perceptron's passes as one kernel each, for NVIDIA's Hopper GPUs: what a layer leaves stays there for the next one.

A multiprocessor takes 64 or 128 rows of a batch through all layers. Of 64 rows each of two workers, which are groups of
warps, has half the columns. While they activate what one layer gives, the matrix of the next is on its way.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, BFloat16, Float

from iadd_tr.dynamics.folded import ROWS, row_groups
from iadd_tr.dynamics.worker import HALVES, Chip, Ref, Worker, array, tiles

PARAMETERS = plgpu.CompilerParams(
    approx_math=True,
    lowering_semantics=plgpu.LoweringSemantics.Warpgroup,
    unsafe_no_auto_barriers=True,  # no worker reads what it writes, and all meet before another reads it
)

Matrices = Sequence[BFloat16[Array, "_ _"]]
Hidden = Sequence[BFloat16[Array, "B N"]]


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
                worker.leave(place, swish, slope)
            worker.send(lefts[layer], slopes[layer])
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
            worker.fetch_rows(kept_slopes[layer], chip.slope, chip.slope_here)
            sums, columns = worker.product(chip.left if layer + 1 < depth else chip.entry, layer + 1)
            for _, place, own, slope in tiles(columns, sums, worker.slope(columns)):
                worker.leave(place, own * slope.astype(jnp.float32))
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

    chip = Chip(
        hidden=array(max(matrix.shape[0] for matrix in matrices[:-1]), width),
        last=array(*matrices[-1].shape),
        rows=plgpu.RefUnion(array(groups, ROWS, entry), array(groups, ROWS, width)),
        slope=array(groups, ROWS, width),
        hidden_here=plgpu.Barrier(),
        last_here=plgpu.Barrier(),
        entry_here=plgpu.Barrier(num_barriers=groups),
        slope_here=plgpu.Barrier(num_barriers=groups),
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
