"""Settings small enough for a test."""

from dataclasses import replace
from typing import Any

from iadd_tr.experiment import Problem
from iadd_tr.settings import Settings
from iadd_tr.tasks import presets
from iadd_tr.tasks.task import resolve


def small(task: str = "probe:drift", algo: Any = "iadd-tr", **changes: Any) -> Settings:
    """An algorithm with tiny networks and short epochs; `changes` name fields of any group."""
    settings = presets.settings(task, algo)
    defaults = {
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
    } | changes
    for group in ("loop", "model", "agent"):
        record = getattr(settings, group)
        own = {name: value for name, value in defaults.items() if hasattr(record, name)}
        settings = replace(settings, **{group: replace(record, **own)})
    own = {name: value for name, value in changes.items() if name in ("runs", "seed", "betas", "zero_ratios", "floors")}
    return replace(settings, **own)


def problem(*arguments: Any, **changes: Any) -> Problem:
    settings = small(*arguments, **changes)
    return Problem(resolve(settings.task, settings.zero_action), settings)
