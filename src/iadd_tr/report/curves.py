"""Learning curves: mean and standard deviation over seeds, one line per algorithm."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iadd_tr.report import figures

Curve = tuple[np.ndarray, np.ndarray, np.ndarray, int]  # steps, mean, deviation, seeds


def curves(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, Curve]]:
    """By task and by algorithm, the mean and deviation over seeds at every step that any seed reached."""
    points: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line in lines:
        points[line["task"]][line["algorithm"]][line["environment_steps"]].append(line["return"])
    return {
        task: {name: _curve(by_step) for name, by_step in sorted(algorithms.items())}
        for task, algorithms in sorted(points.items())
    }


def _curve(by_step: dict[int, list[float]]) -> Curve:
    steps = np.array(sorted(by_step))
    mean = np.array([np.mean(by_step[step]) for step in steps])
    deviation = np.array([np.std(by_step[step]) for step in steps])
    return steps, mean, deviation, max(len(values) for values in by_step.values())


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel per task."""
    panels = curves(lines)
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.8), squeeze=False, layout="constrained")
    for axis, (task, algorithms) in zip(axes[0], panels.items(), strict=True):
        for name, (steps, mean, deviation, seeds) in algorithms.items():
            (line,) = axis.plot(steps / 1000, mean, label=f"{name} ({seeds} seed{'s' * (seeds > 1)})", linewidth=1.6)
            axis.fill_between(
                steps / 1000, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.18, linewidth=0
            )
        axis.set(title=task, xlabel="environment steps (thousands)", ylabel="return")
        axis.legend(frameon=False, loc="best")
    figures.save(figure, path)
