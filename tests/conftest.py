"""Every test runs with shape checks on all signatures, strict rank promotion and warnings as errors.

Tests check numbers, not speed: programs are compiled with little optimisation, and equal ones once.
"""

import atexit
import os
import tempfile

os.environ.setdefault("MUJOCO_GL", "disabled")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
from jaxtyping import install_import_hook

COMPILED = tempfile.TemporaryDirectory()
atexit.register(COMPILED.cleanup)
jax.config.update("jax_compilation_cache_dir", COMPILED.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("iadd_tr", "beartype.beartype")

from iadd_tr import devices  # noqa: E402
from iadd_tr.tasks import crowd  # noqa: E402

crowd.RESERVED = os.cpu_count() or 1  # environments step in the test's process unless it asks for others
devices.cpu_flags = frozenset  # a fit's products are in single precision, whatever the machine, unless a test asks
