"""Which devices runs lie on, and the members of an ensemble while it is fitted."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

RUNS, MEMBERS = "runs", "members"  # a mesh's two axes


def make_mesh(runs: int, members: int = 1) -> Mesh | None:
    """As many devices as divide the runs evenly, and beside each those that are left, up to one for each member of an
    ensemble; none where one device takes everything.

    Members are spread over a CPU's cores alone, where the little they tell each other at every step costs little.
    """
    devices = jax.devices()
    count = max(n for n in range(1, len(devices) + 1) if runs % n == 0)
    beside = min(len(devices) // count, members) if jax.default_backend() == "cpu" else 1
    grid = np.array(devices[: count * beside]).reshape(beside, count).T
    return None if grid.size == 1 else Mesh(grid, (RUNS, MEMBERS))


def placed(mesh: Mesh | None) -> Sharding:
    """Runs over a mesh, each on all devices beside its own; or everything on the first device."""
    return SingleDeviceSharding(jax.devices()[0]) if mesh is None else NamedSharding(mesh, PartitionSpec(RUNS))
