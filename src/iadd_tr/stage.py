"""What a step of an algorithm is: a function for one run, and how it is launched for many."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from iadd_tr.devices import Spread
from iadd_tr.settings import Settings
from iadd_tr.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """What every stage may read and nothing changes: the task and the settings."""

    task: Task
    settings: Settings


@dataclass(frozen=True)
class Stage:
    """A function f(problem, *shared, run, *own) -> (output, info) written for one run, and how to launch it."""

    name: str
    """Under which its seconds are counted."""
    function: Callable
    shared: int = 0
    """How many leading arguments are the same for all runs."""
    donate: tuple[int, ...] = ()
    """Which of its own arguments the output replaces."""
    wait: bool = True
    """Whether the host waits for it."""
    spread: Spread | None = None
    """What may lie over the cores that the runs leave idle: an ensemble's members, or the rows of the minibatches
    [U, B] in its last argument."""
    source: "Stage | None" = None
    """What makes the last of its two own arguments, out of those that are given in its place: on a GPU in the same
    program, since its host needs as long for a small program as for a large one."""


@cache
def joined(stage: Stage, source: Stage) -> Stage:
    """A stage and its source as one."""

    def function(problem: Problem, *arguments: Any) -> Any:
        shared, (run, own, *given) = arguments[: stage.shared], arguments[stage.shared :]
        made, _ = source.function(problem, *shared, run, *given)
        return stage.function(problem, *shared, run, own, made)

    function.__name__ = stage.function.__name__
    return replace(stage, function=function, source=None, spread=source.spread)
