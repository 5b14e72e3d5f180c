"""Figures of the simulations that check the theorems."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iadd_tr.report import figures

Rows = Sequence[dict[str, Any]]

STYLES = {  # of Theorem 4's estimators: label, colour, line, width
    "plug-in": ("plug-in: the critic as it is", "0.6", "-", 4.0),
    "targeted": ("targeted: plus ε(a) / e(a | s)", "C0", "-", 1.6),
    "targeted along the gradient": ("targeted along the gradient: plus ε · π g / e", "C2", "-", 1.6),
    "targeted, policy's density": ("targeted, but plus ε(a) / π(a | s)", "C1", "--", 1.4),
}
QUANTITIES = {
    "curve": "curve μ(a)",
    "gradient, policy ignores the state": "gradient of a policy\nthat ignores the state",
    "gradient, policy sees the state": "gradient of a policy\nthat sees the state",
}


def influence(rows: Rows, path: Path) -> None:
    """Theorem 3: n times the variance over the efficient variance, and the mean error, for each component."""
    components, estimators, counts = distinct(rows, "component"), distinct(rows, "estimator"), distinct(rows, "n")
    figure, axes = plt.subplots(2, len(components), figsize=(12, 7), sharex=True, sharey="row", layout="constrained")
    for column, component in enumerate(components):
        for i, name in enumerate(estimators):
            own = select(rows, component=component, estimator=name)
            places = [counts.index(row["n"]) + 0.12 * (i - 2.5) * (row["n"] > 1) for row in own]
            _spread(axes[0, column], places, own, f"C{i}", name)
            _offset(axes[1, column], places, own, f"C{i}")
        axes[0, column].axhline(1.0, color="black", linewidth=1, zorder=0, label="efficient variance, by quadrature")
        axes[1, column].axhline(0.0, color="black", linewidth=1, zorder=0)
        axes[0, column].set_title(f"derivative with respect to the {component}")
        axes[1, column].set_xticks(range(len(counts)), [f"{n}" for n in counts])
        axes[1, column].set_xlabel("n, rows that an estimate is made from")
    axes[0, 0].set_ylabel("n · variance / efficient variance")
    axes[1, 0].set_ylabel("mean error")
    title = "Theorem 3: an efficient estimator has no mean error, and n times its variance is the influence function's"
    _finish(figure, path, axes[0, 0], f"{title}\n(bars: 95 % intervals)", legend_columns=3)


def _spread(axis: Axes, places: list[float], rows: Rows, color: str, label: str) -> None:
    middle = [row["ratio"] for row in rows]
    limits = [r["ratio"] - r["ratio_low"] for r in rows], [r["ratio_high"] - r["ratio"] for r in rows]
    axis.errorbar(places, middle, limits, fmt="o-", markersize=4, linewidth=1.2, color=color, label=label)


def _offset(axis: Axes, places: list[float], rows: Rows, color: str) -> None:
    widths = [1.96 * row["standard_error"] for row in rows]
    axis.errorbar(places, [r["mean_error"] for r in rows], widths, fmt="o-", markersize=4, linewidth=1.2, color=color)


def robustness(rows: Rows, path: Path) -> None:
    """Theorem 4: the bias against n, a column for each case and a row for each quantity; dotted lines are limits."""
    cases = [(critic, density) for critic in distinct(rows, "critic") for density in distinct(rows, "density")]
    shape = len(QUANTITIES), len(cases)
    figure, axes = plt.subplots(*shape, figsize=(13, 9), sharex=True, sharey="row", layout="constrained")
    for i, (quantity, label) in enumerate(QUANTITIES.items()):
        for axis, (critic, density) in zip(axes[i], cases, strict=True):
            _biases(axis, select(rows, quantity=quantity, critic=critic, density=density))
            axis.set_title(f"critic {critic}, density {density}" if i == 0 else "")
        axes[i, 0].set_ylabel(f"bias of the\n{label}")
    for axis in axes[-1]:
        axis.set(xscale="log", xlabel="n")
        axis.set_xticks(distinct(rows, "n"), [f"{n}" for n in distinct(rows, "n")])
        axis.minorticks_off()
    title = "Theorem 4: the bias of a doubly robust estimate goes to zero in every column but the last"
    _finish(
        figure, path, axes[-1, 0], f"{title}\n(dotted: limits by quadrature; bars: 95 % intervals)", legend_columns=4
    )


def _biases(axis: Axes, rows: Rows) -> None:
    for name in distinct(rows, "estimator"):
        label, color, line, width = STYLES[name]
        own = select(rows, estimator=name)
        bars = [1.96 * row["standard_error"] for row in own]
        drawn = {"color": color, "linestyle": line, "linewidth": width, "elinewidth": 1.0, "marker": "o"}
        axis.errorbar([r["n"] for r in own], [r["bias"] for r in own], bars, markersize=4, label=label, **drawn)
        axis.axhline(own[0]["limit"], color=color, linewidth=1.2, linestyle=":", zorder=0)


def distinct(rows: Rows, column: str) -> list[Any]:
    """The values of a column in the order of their first appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def select(rows: Rows, **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have these values."""
    return [row for row in rows if all(row[column] == value for column, value in wanted.items())]


def _finish(figure: Figure, path: Path, labelled: Axes, title: str, legend_columns: int) -> None:
    handles, labels = labelled.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns, frameon=False)
    figure.suptitle(title)
    figures.save(figure, path)
