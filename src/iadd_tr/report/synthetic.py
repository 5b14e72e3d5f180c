"""Table and figure of the synthetic study, with the paper's own points beside ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iadd_tr.report import figures
from iadd_tr.report.statistics import summarise
from iadd_tr.study.synthetic import METRICS, TABLE_3

PANELS = (
    ("mse_mid", "MSE of the post-intervention state", "log"),
    ("effect_pearson", "Pearson correlation of the action's effect", "linear"),
    ("mse_next", "MSE of the next state", "log"),
)


def summary(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each metric over the seeds, by form and ratio."""
    groups = dict.fromkeys((row["form"], row["ratio"]) for row in table)
    return [
        {"form": form, "ratio": ratio, "metric": metric, "seeds": len(values), **summarise(values)}
        for form, ratio in groups
        for metric in METRICS
        if (values := [row[metric] for row in table if (row["form"], row["ratio"]) == (form, ratio)])
    ]


def draw(table: Sequence[dict[str, Any]], path: Path) -> None:
    """Three panels against the ratio: the median over seeds, all seeds as dots, the paper's run as crosses."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for axis, (metric, title, scale) in zip(axes, PANELS, strict=True):
        for form in dict.fromkeys(row["form"] for row in table):
            own = [row for row in table if row["form"] == form]
            ratios = sorted({row["ratio"] for row in own})
            medians = [np.median([row[metric] for row in own if row["ratio"] == ratio]) for ratio in ratios]
            (line,) = axis.plot(ratios, medians, label=form, linewidth=1.8)
            axis.plot([r["ratio"] for r in own], [r[metric] for r in own], ".", color=line.get_color(), alpha=0.5)
        column = ("ratio", "mse_mid", "effect_pearson", "mse_next").index(metric)
        axis.plot([r[0] for r in TABLE_3], [r[column] for r in TABLE_3], "kx--", label="paper", linewidth=1, alpha=0.8)
        axis.set(title=title, xlabel="share of zero-action rows", yscale=scale)
    axes[0].legend(frameon=False)
    figures.save(figure, path)


def lines(table: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The medians beside the paper's Table 3, for the screen: ratio, form, mse_mid, effect_pearson, mse_next."""
    rows = [(f"{r:g}", "paper, one run", f"{mid:.4g}", f"{corr:.3f}", f"{nxt:.3g}") for r, mid, corr, nxt in TABLE_3]
    for form, ratio in dict.fromkeys((row["form"], row["ratio"]) for row in table):
        own = [row for row in table if (row["form"], row["ratio"]) == (form, ratio)]
        mid, corr, nxt = (np.median([row[m] for row in own]) for m in ("mse_mid", "effect_pearson", "mse_next"))
        rows.append((f"{ratio:g}", form, f"{mid:.4g}", f"{corr:.3f}", f"{nxt:.3g}"))
    return sorted(rows, key=lambda row: float(row[0]))
