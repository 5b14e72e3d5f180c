"""The look that all figures share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iadd_tr.report.statistics import interval


def band(axis: Axes, places: Sequence[Any], samples: Sequence[Any], label: str, **drawn: Any) -> None:
    """The median of the sample at each place as a line, its interval shaded."""
    middle = [np.median(sample) for sample in samples]
    (line,) = axis.plot(places, middle, marker="o", markersize=3, linewidth=1.6, label=label, **drawn)
    low, high = zip(*(interval(sample, statistic=np.median) for sample in samples), strict=True)
    axis.fill_between(places, low, high, color=line.get_color(), alpha=0.12, linewidth=0)


def save(figure: Figure, path: Path) -> None:
    """A light grid, no box, and out."""
    for axis in figure.axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
