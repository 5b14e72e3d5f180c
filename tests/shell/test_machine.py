"""How many devices a command finds on a CPU."""

import os
import subprocess
import sys

import pytest

from iadd_tr.shell import machine

SCRIPT = """
from iadd_tr.shell import machine
machine.use_cores()
import jax
print(len(jax.devices()))
machine.use_cores()  # too late to change anything, and no mistake
"""


@pytest.mark.parametrize(
    ("told", "devices"),
    [
        ({}, machine.cores()),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
    ],
)
def test_every_core_is_a_device_unless_told_otherwise(told, devices):
    silent = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    environment = silent | {"JAX_PLATFORMS": "cpu"} | told
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == devices
