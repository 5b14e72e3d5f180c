"""Designs along one replay: their errors on what came next beside the first design's, as a table and a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from iadd_tr.report.figures import band, plt, save
from iadd_tr.report.statistics import interval
from iadd_tr.report.theory import distinct, select

Rows = Sequence[dict[str, Any]]
STAGES = 4
METRICS = {"error": "one-step error", "disagreement": "elites' disagreement"}


def ratios(table: Rows, design: str, metric: str) -> np.ndarray:
    """The design's numbers [runs, moments] over the first design's."""
    moments, runs = distinct(table, "rows"), distinct(table, "run")
    own, base = (
        np.array([row[metric] for row in select(table, design=name)]).reshape(len(moments), len(runs)).T
        for name in (design, table[0]["design"])
    )
    return own / base


def stages(table: Rows) -> list[np.ndarray]:
    """The moments in up to four groups that follow each other."""
    moments = distinct(table, "rows")
    return np.array_split(np.array(moments), min(STAGES, len(moments)))


def columns(table: Rows) -> list[str]:
    """The rows that the stages' fits had seen."""
    return [f"{part[0]:,} to {part[-1]:,}" if part.size > 1 else f"{part[0]:,}" for part in stages(table)]


def lines(table: Rows, metric: str) -> list[tuple[str, ...]]:
    """A line for each design: in each stage the median over runs of its geometric mean ratio, with an interval."""
    edges = np.cumsum([part.size for part in stages(table)])[:-1]
    return [
        (design, *(_spread(part) for part in np.split(np.log(ratios(table, design, metric)), edges, axis=1)))
        for design in distinct(table, "design")
    ]


def _spread(logs: np.ndarray) -> str:
    means = np.exp(logs.mean(axis=1))
    low, high = interval(means, statistic=np.median)
    return f"{np.median(means):.2f} ({low:.2f} to {high:.2f})"


def draw(table: Rows, path: Path) -> None:
    """Both ratios along the replay: a line per design for the median over runs, with its interval."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    moments = distinct(table, "rows")
    for axis, (metric, title) in zip(axes, METRICS.items(), strict=True):
        for design in distinct(table, "design"):
            band(axis, moments, list(ratios(table, design, metric).T), design)
        axis.set(xlabel="rows seen", ylabel=f"{title} ÷ {table[0]['design']}'s")
    axes[0].legend(frameon=False, fontsize=8)
    save(figure, path)
