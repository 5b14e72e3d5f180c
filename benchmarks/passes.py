"""How long a perceptron's passes take on a Hopper GPU, as one kernel each and layer by layer, with seven members a run.

python benchmarks/passes.py [--runs 1,5,10] [--repeats 200]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from iadd_tr import devices
from iadd_tr.dynamics.folded import Folded, fold, halve
from iadd_tr.nets import TRUNCATED_NORMAL, mlp

SHAPES = {"hopper": (14, 25), "walker2d": (23, 37), "ant": (35, 57)}
WIDTH, DEPTH, MEMBERS, BATCH = 200, 4, 7, 256


def networks(runs: int, inputs: int, outputs: int) -> Folded:
    """Members of as many runs, [R, M, ...]."""

    def one(key: Any) -> Folded:
        return halve(fold(mlp(key, [inputs, *[WIDTH] * DEPTH, outputs], jax.nn.swish, TRUNCATED_NORMAL)))

    return jax.vmap(jax.vmap(one))(jax.random.split(jax.random.key(0), (runs, MEMBERS)))


def over_members(answer: Callable) -> Callable:
    """For every member its own rows."""
    return jax.vmap(jax.vmap(answer))


def microseconds(work: Callable, repeats: int, *given: Any) -> float:
    """Of one call of `work`, which takes a number to add to its rows and gives one, in a loop on the device."""

    def loop(*given: Any) -> Any:
        return jax.lax.fori_loop(0, repeats, lambda _, number: work(number, *given), jnp.zeros(()))

    program = jax.jit(loop)
    jax.block_until_ready(program(*given))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(program(*given))
        seconds.append(time.perf_counter() - start)
    return 1e6 * min(seconds) / repeats


def first(value: Any) -> Any:
    """Next to nothing, but of a result that is there as a whole."""
    whole = jax.lax.optimization_barrier(jax.tree.leaves(value))
    return 1e-30 * whole[0].ravel()[0].astype(jnp.float32)


def nothing(number: Any, nets: Folded, x: Any) -> Any:
    return first(x + number)


def forward(number: Any, nets: Folded, x: Any) -> Any:
    return first(over_members(lambda net, x: net(x))(nets, x + number))


def both(number: Any, nets: Folded, x: Any) -> Any:
    """The gradient by all weights."""

    def loss(nets: Folded, x: Any) -> Any:
        return jnp.mean((over_members(lambda net, x: net(x))(nets, x) - 1.0) ** 2)

    return first(jax.grad(loss)(nets, x + number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="1,5,10", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    if not devices.multiplies_by_warpgroups():
        parser.exit(2, "benchmarks/passes.py needs a Hopper GPU: nothing else has the products that our kernels use.\n")
    at_once = devices.multiplies_by_warpgroups
    for task, (inputs, outputs) in SHAPES.items():
        for runs in options.runs:
            nets = networks(runs, inputs, outputs)
            x = jax.random.normal(jax.random.key(1), (runs, MEMBERS, BATCH, inputs))
            idle = microseconds(nothing, options.repeats, nets, x)
            for name, kind in (("one kernel each", at_once), ("layer by layer", lambda: False)):
                devices.multiplies_by_warpgroups = kind
                each = [microseconds(work, options.repeats, nets, x) - idle for work in (forward, both)]
                print(f"{task}, {runs} runs, {name}: forward {each[0]:.1f} us, gradient {each[1]:.1f} us", flush=True)


if __name__ == "__main__":
    main()
