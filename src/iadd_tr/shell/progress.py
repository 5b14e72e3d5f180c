"""A progress bar with return, speed and time left; a line per epoch where there is no terminal."""

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from iadd_tr.settings import Settings


class Progress:
    """Counts environment steps; after every epoch it shows the mean return of each algorithm."""

    def __init__(self, settings: Settings, epoch: int, earlier: Sequence[dict[str, Any]]):
        length = settings.loop.epoch_length
        self.epochs, self.length, self.stride = settings.loop.epochs, length, math.prod(settings.seats)
        self.console = Console()
        self.bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:.0f}%  return {task.fields[returns]}  {task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
            speed_estimate_period=120.0,
            disable=not self.console.is_terminal,
        )
        last = [line for line in earlier if line["epoch"] == epoch - 1]
        self.task = self.bar.add_task(
            f"{settings.algo} on {settings.task}",
            total=self.epochs * length,
            completed=epoch * length,
            returns=_returns(last) if last else "-",
            speed="compiling",
        )

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self) -> None:
        """One step of all environments is done."""
        self.bar.advance(self.task, self.stride)

    def epoch(self, metrics: Sequence[dict[str, Any]]) -> None:
        """An epoch is done and evaluated."""
        seconds = metrics[0]["seconds"]
        speed = f"{self.length * len(metrics) / seconds['epoch']:.0f} steps/s"
        self.bar.update(self.task, returns=_returns(metrics), speed=speed)
        if not self.console.is_terminal:
            number = metrics[0]["epoch"] + 1
            left = (self.epochs - number) * seconds["epoch"]
            self.console.print(
                f"epoch {number}/{self.epochs}  return {_returns(metrics)}  {speed}  "
                f"{seconds['epoch']:.1f} s/epoch  about {left / 60:.1f} min left",
                soft_wrap=True,
                highlight=False,
            )


def _returns(lines: Sequence[dict[str, Any]]) -> str:
    """Mean return over seeds, by algorithm where there are several."""
    groups: dict[str, list[float]] = {}
    for line in lines:
        groups.setdefault(line["algorithm"], []).append(line["return"])
    if len(groups) == 1:
        return f"{np.mean(next(iter(groups.values()))):.0f}"
    return " ".join(f"{name} {np.mean(values):.0f}" for name, values in groups.items())
