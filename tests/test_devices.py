"""Runs and members spread over devices are those that one device would have made."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = """
import json, sys
import jax
from small import problem
from iadd_tr.algorithm import mbpo
from iadd_tr.devices import make_mesh
from iadd_tr.experiment import Batch
from iadd_tr.training import train

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
lines, holders = {}, {}
for runs in (1, 2):
    lines[runs] = []
    for epoch in train(problem(runs=runs)):
        lines[runs] += epoch.metrics
    holders[runs] = sorted({len(leaf.sharding.device_set) for leaf in jax.tree.leaves(epoch.state)})
batch = Batch(problem(runs=1))
state = batch(mbpo.INIT)
given = batch._given(mbpo.FIT, (0, 40, state.models, state.memory))
operations = batch.program(mbpo.FIT).lower(*given).compile().cost_analysis()["flops"]
shapes = {}
for runs, members in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 7), (2, 7), (3, 2)):
    mesh = make_mesh(runs, members)
    shapes[f"{runs}x{members}"] = [1, 1] if mesh is None else list(mesh.devices.shape)
print(json.dumps({"lines": lines, "holders": holders, "operations": operations, "shapes": shapes}))
"""
QUICK = "--xla_backend_optimization_level=0"  # compiles in half the time


def trained(devices: int, cache: Path) -> dict[str, Any]:
    """What one run and two runs logged in a process with so many devices, and how they were spread over them."""
    environment = os.environ | {
        "XLA_FLAGS": f"{QUICK} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    command = [sys.executable, "-c", SCRIPT, str(cache)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def by_devices(tmp_path_factory) -> dict[int, dict[str, Any]]:
    cache = tmp_path_factory.mktemp("cache")
    return {devices: trained(devices, cache) for devices in (1, 2)}


def test_runs_are_spread_over_as_many_devices_as_divide_them_and_members_over_the_rest(by_devices):
    assert set(map(tuple, by_devices[1]["shapes"].values())) == {(1, 1)}
    two = {"1x1": [1, 1], "2x1": [2, 1], "3x1": [1, 1], "4x1": [2, 1], "1x7": [1, 2], "2x7": [2, 1], "3x2": [1, 2]}
    assert by_devices[2]["shapes"] == two


def test_a_state_lies_on_the_devices_of_its_runs_alone(by_devices):
    assert by_devices[1]["holders"] == {"1": [1], "2": [1]}
    assert by_devices[2]["holders"] == {"1": [1], "2": [2]}


def test_a_device_fits_two_of_three_members_alone(by_devices):
    one, two = (by_devices[devices]["operations"] for devices in (1, 2))
    assert two / one == pytest.approx(2 / 3, abs=0.1)


@pytest.mark.parametrize("runs", ["1", "2"])
def test_two_devices_log_what_one_logs(by_devices, runs):
    one, two = (by_devices[devices]["lines"][runs] for devices in (1, 2))
    assert [line["seed"] for line in two] == [*range(1, int(runs) + 1)] * 2
    for line, other in zip(one, two, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"seconds"}:
            numbers = isinstance(line[name], float | list)
            same = np.allclose(line[name], other[name], rtol=1e-3) if numbers else line[name] == other[name]
            assert same, name


def test_runs_of_two_seeds_differ(by_devices):
    first, second, *_ = by_devices[1]["lines"]["2"]
    assert not np.allclose(first["update/critic_loss"], second["update/critic_loss"])
