"""Problems and policies small enough for a test."""

from typing import Any

import numpy as np

import iadd_tr
from iadd_tr.stage import Problem
from iadd_tr.tasks.envs import Reflex


def problem(task: str = "probe:drift", algo: Any = "iadd-tr", **changes: Any) -> Problem:
    """An algorithm with tiny networks and short epochs; `changes` name fields of any group."""
    tiny = {
        "epochs": 2,
        "epoch_length": 20,
        "warm_up": 40,
        "updates_per_step": 2 if algo != "sac" else 1,
        "fit_every": 10,
        "rollouts_per_step": 3,
        "width": 8,
        "members": 3,
        "elites": 2,
        "fit_batch": 16,
        "fit_epochs": 3,
        "hidden": 16,
        "batch": 16,
        "epsilon_hidden": 8,
    }
    return iadd_tr.problem(task, algo, **(tiny | changes))


def linear(slope: float, offset: float = 0.0) -> Reflex:
    """A policy that answers slope * s + offset, clipped."""
    return Reflex([(np.full((1, 1), slope, np.float32), np.full(1, offset, np.float32))], "relu", "clip")
