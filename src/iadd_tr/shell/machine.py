"""How a command uses the machine it runs on."""

import os
from contextlib import suppress
from pathlib import Path

import jax

FORCED = "xla_force_host_platform_device_count"


def set_up() -> None:
    """Before anything is computed: every core a device, and compiled programs kept for the next start."""
    use_cores()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(root / "iadd-tr" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def use_cores() -> None:
    """Make a device of every core, unless told otherwise: products of this size gain little from a second core, runs
    and members of an ensemble do. It changes nothing where a GPU computes."""
    if FORCED in os.environ.get("XLA_FLAGS", "") or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    with suppress(RuntimeError):  # JAX has begun to compute and keeps the devices it has
        jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
