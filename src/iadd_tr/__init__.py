"""Model-based reinforcement learning with intervention-aware dynamics (IADD) and targeted regularization (TR)."""

from typing import Any

from iadd_tr.settings import Algorithm, Settings, override
from iadd_tr.stage import Problem
from iadd_tr.tasks.endings import register_ending
from iadd_tr.tasks.presets import settings as preset
from iadd_tr.tasks.task import resolve
from iadd_tr.training import Epoch, train

__all__ = ["Epoch", "Problem", "Settings", "override", "preset", "problem", "register_ending", "resolve", "train"]


def problem(task: str, algo: Algorithm = "iadd-tr", **changes: Any) -> Problem:
    """A task with its preset's settings; `changes` name fields of any group, as the command line's options do."""
    settings = override(preset(task, algo), **changes)
    return Problem(resolve(task, settings.zero_action), settings)
