"""Runs spread over devices are the runs that one device would have made."""

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
from iadd_tr.experiment import make_mesh
from iadd_tr.training import train

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
lines, holders = [], set()
for epoch in train(problem(runs=2)):
    lines += epoch.metrics
    holders |= {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(epoch.state)}
meshes = {runs: 1 if make_mesh(runs) is None else make_mesh(runs).size for runs in (1, 2, 3, 4)}
print(json.dumps({"lines": lines, "holders": sorted(holders), "meshes": meshes}))
"""
QUICK = "--xla_backend_optimization_level=0"  # compiles in half the time


def trained(devices: int, cache: Path) -> dict[str, Any]:
    """What two runs logged in a process with so many devices, and how many devices held their states."""
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
def one_and_two(tmp_path_factory) -> tuple[dict[str, Any], dict[str, Any]]:
    cache = tmp_path_factory.mktemp("cache")
    return trained(1, cache), trained(2, cache)


def test_runs_are_spread_over_as_many_devices_as_divide_them(one_and_two):
    one, two = one_and_two
    assert (one["holders"], two["holders"]) == ([1], [2])
    assert set(one["meshes"].values()) == {1}
    assert two["meshes"] == {"1": 1, "2": 2, "3": 1, "4": 2}


def test_runs_on_two_devices_log_what_they_log_on_one(one_and_two):
    one, two = (result["lines"] for result in one_and_two)
    assert [line["seed"] for line in two] == [1, 2, 1, 2]
    for line, other in zip(one, two, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"seconds"}:
            numbers = isinstance(line[name], float | list)
            same = np.allclose(line[name], other[name], rtol=1e-3) if numbers else line[name] == other[name]
            assert same, name
    assert not np.allclose(one[0]["update/critic_loss"], one[1]["update/critic_loss"])
