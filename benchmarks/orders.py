"""How long random orders take: ours, and those that come from sorting random numbers, once or as JAX does it.

python benchmarks/orders.py [--sizes 6000,66000,205000] [--repeats 15] [--out runs/orders.json]
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from iadd_tr.bench.floors import median_seconds
from iadd_tr.shuffle import shuffle


def ours(size: int, key: Array) -> Int[Array, " C"]:
    return shuffle(key, size, size)


def by_sorting(size: int, key: Array) -> Int[Array, " C"]:
    return jnp.argsort(jax.random.uniform(key, (size,)))


def by_jax(size: int, key: Array) -> Int[Array, " C"]:
    return jax.random.permutation(key, size)


WAYS: dict[str, Callable[[int, Array], Array]] = {"shuffle": ours, "argsort": by_sorting, "permutation": by_jax}


def milliseconds(size: int, repeats: int) -> dict[str, float]:
    """Of an order of so many numbers, by each way."""
    key = jax.random.key(0)
    programs = {name: jax.jit(partial(way, size)) for name, way in WAYS.items()}
    return {name: 1e3 * median_seconds(partial(program, key), repeats) for name, program in programs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="6000,66000,205000")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    found = {size: milliseconds(size, options.repeats) for size in sizes}
    for size, times in found.items():
        print(f"{size} numbers: " + ", ".join(f"{name} {time:.2f} ms" for name, time in times.items()))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "milliseconds": found}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
