"""Problems small enough for a test."""

from typing import Any

import iadd_tr
from iadd_tr.experiment import Problem


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
