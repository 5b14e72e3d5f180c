"""How fast a CPU's core multiplies the matrices of training, by which axis a product goes over and how exact it is.

JAX_NUM_CPU_DEVICES=1 taskset -c 0 python benchmarks/products.py [--repeats 30] [--out runs/products.json]

Everything is beside the rate of a large product in single precision, measured right after it.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product as product_of
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from iadd_tr.products import turned

LARGE = 2048
SHAPES = {
    "an agent's layer": (1, 256, 256, 256),
    "twins', half the rows": (2, 128, 256, 256),
    "an ensemble's": (4, 256, 200, 200),
}
KINDS = {
    "x W": ("xw", 1, 0),
    "error Wᵀ": ("ew", 1, 1),
    "xᵀ error": ("xe", 0, 0),
    "xᵀ error, turned": ("xe", 1, 0),
}
"""Which two matrices, and the axes that their product goes over."""


def product(kind: str, left: Any, right: Any) -> Any:
    _, over, its = KINDS[kind]
    left = turned(left) if "turned" in kind else left
    return lax.dot_general(left, right, (((over,), (its,)), ((), ())), preferred_element_type=jnp.float32)


def seconds(work: Callable[..., Any], repeats: int, left: Any, right: Any) -> float:
    """Of one call of `work` in a loop on the device; every call reads what the one before has left."""

    def loop(left: Any, right: Any) -> Any:
        def again(_: Any, carry: Any) -> Any:
            return left + (0.0 * work(carry, right).reshape(-1)[0]).astype(left.dtype)

        return lax.fori_loop(0, repeats, again, left)

    program = jax.jit(loop)
    jax.block_until_ready(program(left, right))
    found = []
    for _ in range(9):
        start = time.perf_counter()
        jax.block_until_ready(program(left, right))
        found.append(time.perf_counter() - start)
    return min(found) / repeats


def rate(kind: str, shape: Sequence[int], dtype: Any, repeats: int) -> float:
    """Operations per second, but for the time of the loop itself."""
    members, rows, inputs, outputs = shape
    sizes = {"x": (rows, inputs), "w": (inputs, outputs), "e": (rows, outputs)}
    given = [jnp.ones((members, *sizes[name]), dtype) for name in KINDS[kind][0]]
    spent = seconds(jax.vmap(partial(product, kind)), repeats, *given) - seconds(lambda x, _: x, repeats, *given)
    return 2.0 * math.prod(shape) / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = []
    for (name, shape), dtype, kind in product_of(SHAPES.items(), (jnp.float32, jnp.bfloat16), KINDS):
        own = rate(kind, shape, dtype, options.repeats)
        share = own / rate("x W", (1, LARGE, LARGE, LARGE), jnp.float32, 3)
        line = {"what": name, "shape": shape, "type": dtype.__name__, "product": kind}
        found.append({**line, "operations_per_second": own, "of_large": share})
        print(
            f"{name:24} {dtype.__name__:9} {kind:18} {own / 1e9:6.0f} GFLOP/s, {share:.2f} of a large one", flush=True
        )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"jax": jax.__version__, "lines": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
