"""Figures of Theorems 1 and 2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iadd_tr.report import figures


def coverage(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Recovery error against the speed of the post-intervention state, the covered speeds shaded."""
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    speeds = sorted({row["speed"] for row in rows})
    covered = [row["speed"] for row in rows if row["covered"]]
    edge = 0.5 * (max(covered) + min(speed for speed in speeds if speed > max(covered)))
    axis.axvspan(0.0, edge, color="0.88", label="covered by zero-action rows", zorder=0)
    for ratio in sorted({row["ratio"] for row in rows}):
        own = [row for row in rows if row["ratio"] == ratio]
        by_speed = [[row["error"] for row in own if row["speed"] == speed] for speed in speeds]
        label = f"{ratio:.0%} zero-action rows" if ratio else "no zero-action rows"
        (line,) = axis.plot(speeds, [np.median(errors) for errors in by_speed], label=label, linewidth=1.8)
        low, high = ([limit(errors) for errors in by_speed] for limit in (min, max))
        axis.fill_between(speeds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axis.set(
        title="Theorem 1: recovered where zero actions cover it",
        xlabel="speed |v| after the intervention",
        ylabel="error of the recovered state",
        yscale="log",
        xlim=(0, max(speeds)),
    )
    _finish(figure, axis, path)


def latents(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The correlation of true and learned latents by how contexts vary, a dot per seed."""
    names = {
        "full": "each component varies\nin its own way",
        "shared": "all components share\none deviation",
        "none": "all contexts\nare alike",
    }
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for place, variation in enumerate(names):
        values = [row["correlation"] for row in rows if row["variation"] == variation]
        axis.plot([place] * len(values), values, "o", color=f"C{place}", alpha=0.6)
        axis.hlines(np.median(values), place - 0.2, place + 0.2, color=f"C{place}", linewidth=2)
    axis.set(
        title="Theorem 2: latents are found when contexts vary them enough",
        ylabel="mean correlation after the best matching",
        xticks=range(len(names)),
        xticklabels=names.values(),
        ylim=(0.5, 1.02),
    )
    _finish(figure, axis, path)


def _finish(figure: Any, axis: Any, path: Path) -> None:
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, loc="center right")
    figures.save(figure, path)
