"""Every test runs with shape checks on all signatures, strict rank promotion and warnings as errors."""

import os

os.environ.setdefault("MUJOCO_GL", "disabled")

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("iadd_tr", "beartype.beartype")
