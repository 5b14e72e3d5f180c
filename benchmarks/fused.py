"""Perceptrons whose passes are one GPU kernel each, timed beside XLA's: python benchmarks/fused.py [OUT.json].

Rows stay with one program from the first layer to the last; what a layer leaves goes through the cache. A third kernel
makes the gradient of a layer's weights. Sizes are those of MBPO's ensemble on Hopper, for five runs of seven members.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from iadd_tr import adam

SIZES = (14, 200, 200, 200, 200, 25)
RUNS, MEMBERS, BATCH, REPEATS = 5, 7, 256, 200
ACTIVATION = jax.nn.swish
ON_GPU = jax.default_backend() == "gpu"


@dataclass(frozen=True)
class Shape:
    """Rows of a program, the depth of its inner products, warps, and stages of its pipeline; for weights, tiles."""

    rows: int = 64
    depth: int = 32
    warps: int = 8
    stages: int = 3
    tile: tuple[int, int] = (64, 64)
    weight_depth: int = 32
    weight_warps: int = 4
    weight_stages: int = 3


def padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def inside(rows: jax.Array, columns: jax.Array, shape: Sequence[int]) -> jax.Array:
    return (rows < shape[0])[:, None] & (columns < shape[1])[None, :]


def load(ref: Any, rows: jax.Array, columns: jax.Array, shape: Sequence[int]) -> jax.Array:
    mask = inside(rows, columns, shape)
    return plgpu.load(ref.at[rows[:, None], columns[None, :]], mask=mask, other=0.0)


def store(ref: Any, rows: jax.Array, columns: jax.Array, shape: Sequence[int], value: jax.Array) -> None:
    plgpu.store(ref.at[rows[:, None], columns[None, :]], value, mask=inside(rows, columns, shape))


def product(left: jax.Array, right: jax.Array, over: tuple[int, int] = (1, 0)) -> jax.Array:
    return jax.lax.dot_general(left, right, (((over[0],), (over[1],)), ((), ())))


def meet() -> None:
    """What one thread stored the others may read."""
    if ON_GPU:
        plgpu.debug_barrier()


def forward_kernel(shapes: Sequence[tuple[int, int]], shape: Shape, x: Any, *refs: Any) -> None:
    count = len(shapes)
    weights, biases, outputs = refs[:count], refs[count : 2 * count], refs[2 * count :]
    rows = jnp.arange(shape.rows)
    for layer, (i, j) in enumerate(shapes):
        columns, depth = jnp.arange(padded(j)), min(shape.depth, padded(i))
        source = outputs[layer - 1] if layer else x

        def step(s, total, layer=layer, i=i, j=j, columns=columns, depth=depth, source=source):
            k = s * depth + jnp.arange(depth)
            left = load(source, rows, k, (shape.rows, i))
            return total + product(ACTIVATION(left) if layer else left, load(weights[layer], k, columns, (i, j)))

        bias = plgpu.load(biases[layer].at[columns], mask=columns < j, other=0.0)
        start = jnp.broadcast_to(bias[None], (shape.rows, padded(j)))
        store(outputs[layer], rows, columns, (shape.rows, j), jax.lax.fori_loop(0, -(-i // depth), step, start))
        meet()


def backward_kernel(shapes: Sequence[tuple[int, int]], shape: Shape, last: Any, *refs: Any) -> None:
    count = len(shapes)
    weights, before, outputs = refs[:count], refs[count : 2 * count - 1], refs[2 * count - 1 :]
    rows = jnp.arange(shape.rows)
    for layer in reversed(range(count)):
        i, j = shapes[layer]
        columns, depth = jnp.arange(padded(i)), min(shape.depth, padded(j))
        source = last if layer == count - 1 else outputs[layer + 1]

        def step(s, total, layer=layer, i=i, j=j, columns=columns, depth=depth, source=source):
            k = s * depth + jnp.arange(depth)
            left = load(source, rows, k, (shape.rows, j))
            return total + product(left, load(weights[layer], columns, k, (i, j)), (1, 1))

        total = jax.lax.fori_loop(0, -(-j // depth), step, jnp.zeros((shape.rows, padded(i))))
        if layer:
            total = jax.jvp(ACTIVATION, (load(before[layer - 1], rows, columns, (shape.rows, i)),), (total,))[1]
        store(outputs[layer], rows, columns, (shape.rows, i), total)
        meet()


def weight_kernel(first: bool, size: tuple[int, int, int], shape: Shape, left: Any, right: Any, out: Any, bias: Any):
    batch, i, j = size
    rows, columns = (pl.program_id(n) * shape.tile[n] + jnp.arange(shape.tile[n]) for n in (0, 1))

    def step(s, carry):
        total, summed = carry
        k = s * shape.weight_depth + jnp.arange(shape.weight_depth)
        h, d = load(left, k, rows, (batch, i)), load(right, k, columns, (batch, j))
        return total + product(h if first else ACTIVATION(h), d, (0, 0)), summed + jnp.sum(d, axis=0)

    start = jnp.zeros(shape.tile), jnp.zeros(shape.tile[1])
    total, summed = jax.lax.fori_loop(0, batch // shape.weight_depth, step, start)
    store(out, rows, columns, (i, j), total)
    plgpu.store(bias.at[columns], summed, mask=(columns < j) & (pl.program_id(0) == 0))


def block(rows: int, columns: int) -> pl.BlockSpec:
    return pl.BlockSpec((rows, columns), lambda n: (n, 0))


def whole(*shape: int) -> pl.BlockSpec:
    return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))


def call(
    kernel: Callable, grid: tuple[int, ...], given: list, made: list, shapes: list, warps: int, stages: int
) -> Any:
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=given,
        out_specs=made,
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=not ON_GPU,
    )


def forward(shape: Shape, weights: Sequence, biases: Sequence, x: jax.Array) -> list[jax.Array]:
    shapes, batch = [w.shape for w in weights], x.shape[0]
    given = [block(shape.rows, x.shape[1]), *(whole(*w.shape) for w in weights), *(whole(*b.shape) for b in biases)]
    made = [block(shape.rows, j) for _, j in shapes]
    kernel = partial(forward_kernel, shapes, shape)
    outputs = [(batch, j) for _, j in shapes]
    return call(kernel, (batch // shape.rows,), given, made, outputs, shape.warps, shape.stages)(x, *weights, *biases)


def backward(shape: Shape, weights: Sequence, before: Sequence, last: jax.Array) -> list[jax.Array]:
    shapes, batch = [w.shape for w in weights], last.shape[0]
    given = [block(shape.rows, last.shape[1]), *(whole(*w.shape) for w in weights)]
    given += [block(shape.rows, z.shape[1]) for z in before]
    made = [block(shape.rows, i) for i, _ in shapes]
    kernel = partial(backward_kernel, shapes, shape)
    outputs = [(batch, i) for i, _ in shapes]
    return call(kernel, (batch // shape.rows,), given, made, outputs, shape.warps, shape.stages)(
        last, *weights, *before
    )


def weight_gradient(shape: Shape, first: bool, left: jax.Array, right: jax.Array) -> list[jax.Array]:
    (batch, i), j = left.shape, right.shape[1]
    tile = min(shape.tile[0], padded(i)), min(shape.tile[1], padded(j))
    kernel = partial(weight_kernel, first, (batch, i, j), dataclasses.replace(shape, tile=tile))
    grid = (-(-i // tile[0]), -(-j // tile[1]))
    given, made = [whole(batch, i), whole(batch, j)], [whole(i, j), whole(j)]
    return call(kernel, grid, given, made, [(i, j), (j,)], shape.weight_warps, shape.weight_stages)(left, right)


def plain(weights: Sequence, biases: Sequence, x: jax.Array) -> jax.Array:
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = (ACTIVATION(x) if layer else x) @ weight + bias[None]
    return x


def fused(shape: Shape) -> Callable:
    """`plain` with kernels for its passes wherever it is differentiated."""
    net = jax.custom_vjp(plain)

    def ahead(weights, biases, x):
        *before, y = forward(shape, weights, biases, x)
        return y, (weights, x, before)

    def back(kept, last):
        weights, x, before = kept
        first, *deltas = backward(shape, weights, before, last)
        pairs = zip([x, *before], [*deltas, last], strict=True)
        made = [weight_gradient(shape, layer == 0, h, d) for layer, (h, d) in enumerate(pairs)]
        return [w for w, _ in made], [b for _, b in made], first

    net.defvjp(ahead, back)
    return net


def over(function: Callable) -> Callable:
    return jax.vmap(jax.vmap(function))


def problem() -> tuple[Any, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 7)
    pairs = list(zip(keys, SIZES, SIZES[1:], strict=False))
    weights = [jax.random.normal(key, (RUNS, MEMBERS, i, j)) / i**0.5 for key, i, j in pairs]
    biases = [0.1 * jax.random.normal(key, (RUNS, MEMBERS, j)) for key, _, j in pairs]
    x, y = (jax.random.normal(key, (RUNS, MEMBERS, BATCH, n)) for key, n in ((keys[5], SIZES[0]), (keys[6], SIZES[-1])))
    return (weights, biases), x, y


def microseconds(step: Callable, carry: Any) -> float:
    """Of one step among many in a loop; the median of three."""
    options = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if ON_GPU else None
    run = jax.jit(lambda c: jax.lax.fori_loop(0, REPEATS, lambda _, c: step(step(c)), c), compiler_options=options)
    jax.block_until_ready(run(carry))
    found = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run(carry))
        found.append((time.perf_counter() - start) / REPEATS / 2 * 1e6)
    return sorted(found)[1]


def measure(name: str, shape: Shape | None) -> dict[str, Any]:
    """A forward pass, a backward pass without weights, and a whole step of Adam; and how far its gradient is off."""
    (weights, biases), x, y = problem()
    net = plain if shape is None else fused(shape)
    one = plain if shape is None else lambda w, b, x: forward(shape, w, b, x)[-1]
    line: dict[str, Any] = {"name": name, **({} if shape is None else dataclasses.asdict(shape))}
    line["forward_us"] = microseconds(lambda x: x + 1e-6 * over(one)(weights, biases, x)[..., :1], x)
    if shape is not None:
        *before, _ = over(lambda w, b, x: forward(shape, w, b, x))(weights, biases, x)
        back = over(lambda w, z, d: backward(shape, w, z, d)[0])
        line["backward_us"] = microseconds(lambda d: d + 1e-6 * back(weights, before, d)[..., :1], y)

    def loss(net: Callable, parameters: Any) -> jax.Array:
        return jnp.sum((over(net)(*parameters, x) - y) ** 2) / BATCH

    def step(carry: Any) -> Any:
        return adam.descend(*carry, jax.grad(partial(loss, net))(carry[0]), jnp.array(1e-4))

    parameters = (weights, biases)
    line["step_us"] = microseconds(step, (parameters, adam.init(parameters)))
    ours = jax.jit(jax.grad(partial(loss, net)))(parameters)
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(jax.grad(partial(loss, plain)))(parameters)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True)
    line["gradient_error"] = max(float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in pairs)
    print(json.dumps(line), flush=True)
    return line


SHAPES = [
    *(Shape(rows, depth, warps, stages) for rows, depth, warps, stages in (
        (64, 32, 8, 1), (64, 32, 8, 2), (64, 32, 8, 3), (64, 32, 4, 2), (64, 32, 4, 3), (64, 64, 8, 2), (64, 16, 8, 4),
        (32, 32, 4, 3), (32, 32, 8, 3), (32, 64, 4, 2), (128, 32, 8, 2), (128, 32, 8, 3),
    )),
    *(Shape(tile=tile, weight_depth=depth, weight_warps=warps, weight_stages=stages) for tile, depth, warps, stages in (
        ((128, 64), 32, 4, 3), ((128, 128), 32, 8, 3), ((64, 128), 32, 4, 2), ((64, 64), 64, 4, 2),
        ((32, 64), 64, 4, 3),
    )),
]  # fmt: skip

if __name__ == "__main__":
    found = [measure("xla", None), *(measure("fused", shape) for shape in SHAPES)]
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
