"""Runs, members and rows spread over devices are those that one device would have made."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from iadd_tr import devices

SCRIPT = r"""
import json, re, sys
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
    parts = {name: vars(epoch.state)[name] for name in ("agent", "models", "memory", "imagined")}
    holders[runs] = {
        name: sorted({len(leaf.sharding.device_set) for leaf in jax.tree.leaves(part)}) for name, part in parts.items()
    }
lines["solved"] = next(train(problem(algo="sac", betas=(1.0,), targeting="solve"))).metrics
batch = Batch(problem(runs=1, batch=256))
state = batch(mbpo.INIT)
operations, meetings, loops = {}, {}, {}
for stage, *arguments in (
    (mbpo.FIT, 0, 40, state.models, state.memory),
    (mbpo.IMPROVE, 0, state.agent, state.memory.real, state.imagined),
):
    stage, arguments = batch.fed(stage, tuple(arguments))
    program = batch.program(stage).lower(*batch._given(stage, arguments)).compile()
    operations[stage.name] = program.cost_analysis()["flops"]
    loops[stage.name] = re.findall(r'known_trip_count":{"n":"(\d+)"', program.as_text())
    sent = re.findall(r" all-reduce\(([^)]*)\)", program.as_text())
    meetings[stage.name] = sum(len(arrays.split(",")) for arrays in sent)  # devices meet for each array
shapes = {}
for runs, most in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 7), (2, 7), (3, 2)):
    mesh = make_mesh(runs, range(1, most + 1))
    shapes[f"{runs}x{most}"] = [1, 1] if mesh is None else list(mesh.devices.shape)
found = {"operations": operations, "meetings": meetings, "loops": loops, "shapes": shapes}
print(json.dumps({"lines": lines, "holders": holders, **found}))
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


def test_runs_are_spread_over_as_many_devices_as_divide_them_and_what_they_share_over_the_rest(by_devices):
    assert set(map(tuple, by_devices[1]["shapes"].values())) == {(1, 1)}
    two = {"1x1": [1, 1], "2x1": [2, 1], "3x1": [1, 1], "4x1": [2, 1], "1x7": [1, 2], "2x7": [2, 1], "3x2": [1, 2]}
    assert by_devices[2]["shapes"] == two


def test_networks_lie_on_the_devices_that_share_their_run_and_rows_on_that_of_the_run_alone(by_devices):
    parts = ("agent", "models", "memory", "imagined")
    alone, both = ({part: [count] for part in parts} for count in (1, 2))
    assert by_devices[1]["holders"] == {"1": alone, "2": alone}
    assert by_devices[2]["holders"] == {"1": alone | {"agent": [2], "models": [2]}, "2": both}


in_turn = pytest.mark.skipif(not devices.NESTS, reason="JAX cannot share out members that are fitted in turn")


@in_turn
def test_a_device_fits_two_of_three_members_and_takes_half_the_rows_of_an_update(by_devices):
    """Beside the loops over members both programs have the same ones."""
    one, two = (Counter(by_devices[devices]["loops"]["fit"]) for devices in (1, 2))
    assert one - two == Counter({"3": 3})
    assert two - one == Counter({"2": 3})
    one, two = (by_devices[devices]["operations"]["update"] for devices in (1, 2))
    assert two / one == pytest.approx(1 / 2, abs=0.1)


@in_turn
def test_devices_meet_twice_in_an_update_and_once_in_a_gradient_step(by_devices):
    """Beside that once for the update's report, and in an epoch of a fit twice. The updates before the last one are a
    loop, whose text stands once, and gradient steps stand in two: a pair, and what is left over."""
    assert set(by_devices[1]["meetings"].values()) == {0}
    assert by_devices[2]["meetings"] == {"update": 2 + 2 + 1, "fit": 2 + 1 + 2}


@pytest.mark.parametrize("runs", ["1", "2", "solved"])
def test_two_devices_log_what_one_logs(by_devices, runs):
    one, two = (by_devices[devices]["lines"][runs] for devices in (1, 2))
    seeds = {"1": [1, 1], "2": [1, 2, 1, 2], "solved": [1]}
    assert [line["seed"] for line in two] == seeds[runs]
    for line, other in zip(one, two, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - {"seconds"}:
            numbers = isinstance(line[name], float | list)
            same = np.allclose(line[name], other[name], rtol=1e-3) if numbers else line[name] == other[name]
            assert same, name


def test_runs_of_two_seeds_differ(by_devices):
    first, second, *_ = by_devices[1]["lines"]["2"]
    assert not np.allclose(first["update/critic_loss"], second["update/critic_loss"])


@pytest.mark.parametrize(
    ("backend", "capability", "expected", "warpgroups"),
    [
        ("cpu", None, False, False),
        ("gpu", "7.5", False, False),
        ("gpu", "8.0", True, False),
        ("gpu", "9.0", True, True),
        ("gpu", "12.0", True, False),
        ("gpu", "gfx942", False, False),
    ],
)
def test_half_precision_and_kernels_are_for_gpus_that_have_such_products(
    monkeypatch, backend, capability, expected, warpgroups
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert devices.multiplies_by_warpgroups() == warpgroups
    assert devices.multiplies_bfloat16() == expected
    with jax.default_matmul_precision("highest"):
        assert not devices.multiplies_bfloat16()


@pytest.mark.parametrize("flags", [set(), {"avx512f", "avx512_bf16"}])
def test_a_cpu_fits_in_half_precision_where_it_says_that_it_multiplies_it(monkeypatch, flags):
    monkeypatch.setattr(devices, "cpu_flags", lambda: flags)
    assert devices.multiplies_bfloat16() == bool(flags)
    with jax.default_matmul_precision("highest"):
        assert not devices.multiplies_bfloat16()


def test_a_cpus_flags_are_those_of_its_first_core(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nvmx flags\t: vnmi\nflags\t\t: fpu avx512_bf16\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert devices.flags_in(info) == {"fpu", "avx512_bf16"}
    info.write_text("processor\t: 0\nFeatures\t: fp bf16\n")
    assert devices.flags_in(info) == set()
    assert devices.flags_in(tmp_path / "none") == set()
