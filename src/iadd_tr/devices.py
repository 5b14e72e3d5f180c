"""Which devices runs lie on, and how the cores that runs leave idle share the work of one."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

RUNS, SHARES = "runs", "shares"  # a mesh's two axes
OF_RUNS = PartitionSpec(RUNS)  # [R, ...], each run on all devices that share its work
OF_ROWS = PartitionSpec(RUNS, None, SHARES)  # [R, U, B, ...], each device with its share of the rows
ROW_SHARES = (1, 2)  # shares of a minibatch: beyond two nobody has measured what the meetings cost
BFLOAT16_GPU, HOPPER_GPU = 8.0, 9.0  # compute capabilities; other GPUs, whose is no number, have not been measured
BFLOAT16_CPU = "avx512_bf16"
NESTS = jax.__version_info__[:2] != (0, 11)  # its partitioner crashes where a device's share has shares (0.11.2 does)
Shared = TypeVar("Shared")
Spread = Literal["members", "rows"]


def make_meshes(runs: int, members: int, batch: int) -> dict[Spread | None, Mesh | None]:
    """The devices of stages that spread members, or the rows of a batch, over the cores that runs leave idle; or
    nothing."""
    return {
        None: make_mesh(runs),
        "members": make_mesh(runs, range(1, members + 1)),
        "rows": make_mesh(runs, [n for n in ROW_SHARES if batch % n == 0]),
    }


def make_mesh(runs: int, shares: Iterable[int] = (1,)) -> Mesh | None:
    """As many devices as divide the runs evenly, and in all so many for each as the largest of `shares` that there are;
    none where one device takes everything.

    Work of one run is shared by a CPU's cores alone, where the little they tell each other at every step costs little.
    """
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    most = len(devices) // count if on_cpu() else 1
    each = max(n for n in shares if n <= most)
    grid = np.array(devices[: count * each]).reshape(each, count).T
    return None if grid.size == 1 else Mesh(grid, (RUNS, SHARES))


def multiplies_bfloat16() -> bool:
    """Whether what computes multiplies bfloat16 as it is, and nobody has asked JAX for a precision."""
    asked = jax.config.jax_default_matmul_precision is not None  # pyright: ignore[reportAttributeAccessIssue]
    return not asked and (BFLOAT16_CPU in cpu_flags() if on_cpu() else capability() >= BFLOAT16_GPU)


def on_cpu() -> bool:
    """Whether a CPU's cores compute."""
    return jax.default_backend() == "cpu"


@cache
def cpu_flags() -> frozenset[str]:
    """What Linux says that the processor can do; nothing elsewhere."""
    return flags_in("/proc/cpuinfo")


def flags_in(path: Any) -> frozenset[str]:
    """The flags of the first core in such a file."""
    with suppress(OSError), open(path) as file:
        named = (line.partition(":") for line in file)
        return frozenset(next((flags for name, _, flags in named if name.strip() == "flags"), "").split())
    return frozenset()


def multiplies_by_warpgroups() -> bool:
    """Whether an NVIDIA GPU computes that has the products by which kernels of ours go through a perceptron."""
    return capability() == HOPPER_GPU


def multiprocessors() -> int:
    """How many the GPU has that computes."""
    return jax.devices()[0].core_count


def capability() -> float:
    """What an NVIDIA GPU calls its generation; nothing for all else that computes."""
    found = jax.devices()[0].compute_capability if jax.default_backend() == "gpu" else ""
    return float(found) if found.replace(".", "", 1).isdigit() else 0.0


def placed(mesh: Mesh | None, spec: PartitionSpec = OF_RUNS) -> Sharding:
    """Arrays over a mesh; or everything on the first device."""
    return SingleDeviceSharding(jax.devices()[0]) if mesh is None else NamedSharding(mesh, spec)


def specs(spread: Spread | None, count: int) -> list[PartitionSpec]:
    """How a stage's `count` arguments with a runs axis lie over its mesh: where it spreads rows, they come last."""
    return [*[OF_RUNS] * (count - 1), OF_ROWS if spread == "rows" else OF_RUNS]


def move(value: Any, sharding: Sharding) -> Any:
    """A stage's output, all of which lies alike, where another stage wants it; what the host made goes there when a
    program is called with it."""
    first = jax.tree.leaves(value)[0]
    if not isinstance(first, jax.Array) or first.sharding.is_equivalent_to(sharding, first.ndim):
        return value
    if isinstance(sharding, SingleDeviceSharding) and first.is_fully_replicated:
        return jax.tree.map(lambda x: x.addressable_data(0), value)  # the first device has all of it
    return jax.device_put(value, sharding)


def spread(value: Shared, count: int) -> Shared:
    """The same arrays; those that lead with `count` members lie over the devices that share a run, if several do."""
    if shares() == 1:
        return value
    axis = PartitionSpec(SHARES)
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, axis) if x.shape[:1] == (count,) else x, value)


def whole(value: Shared) -> Shared:
    """The same arrays, known to all devices that share a run."""
    if shares() == 1:
        return value
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()), value)


def shares() -> int:
    """How many devices share the work of a run here."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[SHARES] if SHARES in mesh.axis_names else 1


def spare(count: int) -> int:
    """How many more members make the shares of all devices even, where each takes its own in turn."""
    return -count % shares() if NESTS else 0


def by_share(function: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A function of arrays that lead with members and of others, with answers of both kinds: of devices that share a
    run each computes it for its own members, and they tell each other what the others are."""
    if shares() == 1:
        return function
    both = PartitionSpec(SHARES), PartitionSpec()
    return jax.shard_map(function, in_specs=both, out_specs=both, axis_names={SHARES}, check_vma=False)


def mean(value: Shared) -> Shared:
    """The mean over the devices that share the rows of a minibatch; where one has them all, the value itself."""
    return jax.tree.map(lambda x: x / shares(), total(value)) if apart() else value


def total(value: Shared) -> Shared:
    """The sum over the devices that share a run's work; where one has it all, the value itself.

    All arrays are one message, since meeting takes longer than what is said; it is filled part by part, since a CPU is
    slow to concatenate.
    """
    if not apart():
        return value
    leaves, structure = jax.tree.flatten(value)
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
    message = jax.lax.optimization_barrier(jnp.zeros(ends[-1]))
    for leaf, end in zip(leaves, ends, strict=True):
        message = jax.lax.dynamic_update_slice(message, leaf.reshape(-1), (end - leaf.size,))
    message = jax.lax.psum(message, SHARES)
    totals = [message[end - x.size : end].reshape(x.shape) for x, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, totals)


def apart() -> bool:
    """Whether each of several devices that share a run computes with what is its own."""
    return shares() > 1 and SHARES in jax.sharding.get_abstract_mesh().manual_axes
