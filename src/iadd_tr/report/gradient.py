"""Tables and figures of the policy-gradient diagnostic, with the paper's numbers beside ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from iadd_tr.report import figures
from iadd_tr.report.theory import distinct, select
from iadd_tr.study.gradient import PAPER

Rows = Sequence[dict[str, Any]]
STYLES = {"gradient": ("with TR, fitted by gradient", "C1"), "solve": ("with TR, solved", "C0")}
PAPER_GAINS = (0.009, 0.044)


def main(rows: Rows) -> list[dict[str, Any]]:
    """The paper's table: each checkpoint and seed, for the two ways to fit the correction."""
    names = {"cosine_with": "cosine_with_tr", "cosine_without": "cosine_without_tr", "gain": "paired_gain"}
    return [
        {"fitted": row["variant"], "checkpoint": row["checkpoint"], "seed": row["seed"]}
        | {new: row[old] for old, new in names.items()}
        for row in rows
        if row["variant"] in STYLES
    ]


def summary(rows: Rows) -> list[dict[str, Any]]:
    """Means over seeds for every variant at every checkpoint, and paired gains with their intervals."""
    return [
        {"checkpoint": checkpoint, **describe(own)}
        for checkpoint in distinct(rows, "checkpoint")
        for variant in distinct(rows, "variant")
        if (own := select(rows, checkpoint=checkpoint, variant=variant))
    ]


def overall(rows: Rows) -> list[dict[str, Any]]:
    """The same over all checkpoints: each seed's mean over them is one observation."""
    table = []
    for variant in sorted(distinct(rows, "variant"), key=fitted):
        own = select(rows, variant=variant)
        columns = [name for name in own[0] if name not in ("checkpoint", "variant", "seed")]
        means = [
            {"variant": variant, **{name: float(np.mean([r[name] for r in same])) for name in columns}}
            for seed in distinct(own, "seed")
            if (same := select(own, seed=seed))
        ]
        table.append(describe(means))
    return table


def fitted(variant: str) -> str:
    """How a variant's correction is fitted."""
    return variant.split(",")[0]


def best(rows: Rows) -> str:
    """The variant with the largest gain over all checkpoints."""
    return max(overall(rows), key=lambda row: row["gain"])["variant"]


def describe(rows: Rows) -> dict[str, Any]:
    """One variant over its seeds."""
    line: dict[str, Any] = {"variant": rows[0]["variant"], "seeds": len(rows)}
    for prefix in ("", "centred_", "plain_", "level_"):
        for side in ("without", "with"):
            line[f"{prefix}cosine_{side}"] = float(np.mean([row[f"{prefix}cosine_{side}"] for row in rows]))
        low, high = interval([row[f"{prefix}gain"] for row in rows])
        line |= {f"{prefix}gain": (low + high) / 2, f"{prefix}gain_low": low, f"{prefix}gain_high": high}
    return line | {name: float(np.mean([row[name] for row in rows])) for name in ("value", "correction", "floored")}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of a mean; a single value is its own."""
    sample = np.asarray(values, float)
    if sample.size < 2:
        return float(sample[0]), float(sample[0])
    width = stats.t.ppf(0.975, sample.size - 1) * sample.std(ddof=1) / np.sqrt(sample.size)
    return float(sample.mean() - width), float(sample.mean() + width)


def draw(rows: Rows, path: Path) -> None:
    """Cosines to the Monte-Carlo gradient and paired gains at each checkpoint: means and standard errors over seeds."""
    figure, (plain, gains, centred) = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    winner = best(rows)
    styles = STYLES | {winner: (f"best of all: {winner}", "C2")}
    for axis, column in ((plain, "cosine"), (centred, "centred_cosine")):
        _curve(axis, select(rows, variant="gradient"), f"{column}_without", "without TR", "0.4")
        for variant, (label, color) in styles.items():
            _curve(axis, select(rows, variant=variant), f"{column}_with", label, color)
    for variant, (label, color) in styles.items():
        _curve(gains, select(rows, variant=variant), "gain", label, color)
    _curve(gains, select(rows, variant=winner), "level_gain", "that one, by its level alone", "black", ":")
    gains.axhline(0.0, color="black", linewidth=1, zorder=0)
    for epoch in set(PAPER) & set(distinct(rows, "checkpoint")):
        without, with_targeting = PAPER[epoch]
        label = {"label": "paper"} if epoch == min(PAPER) else {}
        plain.plot(epoch, without, "D", color="black", markerfacecolor="none", markersize=5)
        plain.plot(epoch, with_targeting, "D", color="black", markersize=5)
        gains.plot(epoch, with_targeting - without, "D", color="black", markersize=5, **label)
    plain.set(title="as the paper: values as they are", ylabel="cosine to the Monte-Carlo policy gradient")
    gains.set(title="its paired gain", ylabel="cosine with TR less cosine without")
    centred.set(title="each state's mean taken away")
    for axis in (plain, gains, centred):
        axis.set_xlabel("epochs that the actor has trained")
        axis.set_xticks(distinct(rows, "checkpoint"))
    plain.legend(frameon=False, fontsize="small")
    gains.legend(frameon=False, fontsize="small")
    figures.save(figure, path)


def _curve(axis: Axes, rows: Rows, column: str, label: str, color: str, dashes: str = "-") -> None:
    places = distinct(rows, "checkpoint")
    groups = [np.array([row[column] for row in select(rows, checkpoint=place)]) for place in places]
    middle = np.array([group.mean() for group in groups])
    error = np.array([group.std(ddof=1) / np.sqrt(group.size) if group.size > 1 else 0.0 for group in groups])
    axis.plot(places, middle, f"o{dashes}", color=color, label=label, markersize=4, linewidth=1.6)
    axis.fill_between(places, middle - error, middle + error, color=color, alpha=0.2, linewidth=0)


def draw_variants(rows: Rows, path: Path) -> None:
    """Paired gains of every variant over all checkpoints, with intervals, and what is added beside the value."""
    table = overall(rows)
    figure, axes = plt.subplots(1, 3, figsize=(13, 1.6 + 0.3 * len(table)), sharey=True, layout="constrained")
    places = np.arange(len(table))[::-1]
    for axis, prefix in zip(axes, ("", "centred_"), strict=False):
        _bars(axis, places, table, prefix)
    levels = [row["level_gain"] for row in table]
    axes[0].plot(levels, places, "|", color="black", markersize=9, label="by its level alone")
    axes[0].axvspan(*PAPER_GAINS, color="0.9", zorder=0, label="paper, over its checkpoints")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False)
    axes[0].set(title="gain of the cosine", yticks=places)
    axes[0].set_yticklabels([row["variant"] for row in table])
    axes[1].set_title("gain, each state's mean taken away")
    axes[2].plot([max(row["correction"] / row["value"], 1e-6) for row in table], places, "o", color="C2", markersize=5)
    axes[2].set(title="mean |ε / e| beside mean |Q|", xscale="log")
    figures.save(figure, path)


def _bars(axis: Axes, places: np.ndarray, table: Rows, prefix: str) -> None:
    for place, row in zip(places, table, strict=True):
        color = STYLES[fitted(row["variant"])][1]
        axis.plot([row[f"{prefix}gain_low"], row[f"{prefix}gain_high"]], [place, place], color=color, linewidth=1.6)
        axis.plot(row[f"{prefix}gain"], place, "o", color=color, markersize=5)
    axis.axvline(0.0, color="black", linewidth=1, zorder=0)


def lines(rows: Rows) -> list[tuple[str, ...]]:
    """For the screen: checkpoint, way to fit, cosine without and with, gain, gain by level alone, size of ε / e."""
    shown = {*STYLES, best(rows)}
    found = [row for row in summary(rows) if row["variant"] in shown]
    ours = [
        (
            f"{row['checkpoint']}",
            row["variant"],
            f"{row['cosine_without']:.3f}",
            f"{row['cosine_with']:.3f}",
            f"{row['gain']:+.4f} [{row['gain_low']:+.4f}, {row['gain_high']:+.4f}]",
            f"{row['level_gain']:+.4f}",
            f"{row['correction'] / row['value']:.2g}",
        )
        for row in found
    ]
    paper = [(f"{epoch}", "paper", f"{a:.3f}", f"{b:.3f}", f"{b - a:+.3f}", "", "") for epoch, (a, b) in PAPER.items()]
    return sorted(ours + paper, key=lambda line: int(line[0]))
