"""Tables and figures of the counterfactual study: errors beside the monolith's, by how unlikely the action was."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iadd_tr.report import figures
from iadd_tr.report.statistics import interval
from iadd_tr.report.theory import distinct, select
from iadd_tr.study.designs import BASES

Rows = Sequence[dict[str, Any]]

ERRORS = ("error", "reward_error", "open_loop_5", "open_loop_10", "open_loop_25")  # these have ratios
METRICS = (*ERRORS, "nll", "coverage_50", "coverage_90")


def summary(table: Rows) -> list[dict[str, Any]]:
    """Each metric's median over seeds with its interval, and those of the ratios to the same seed's monoliths."""
    groups = dict.fromkeys((row["task"], row["steps"], row["design"], row["action"]) for row in table)
    return [
        {
            **dict(zip(("task", "steps", "design", "action", "metric"), (*group, metric), strict=True)),
            "seeds": len(values),
            **_spread("", values),
            **_beside(lambda base, group=group, metric=metric: ratios(table, base, *group, metric)),
        }
        for group in groups
        for metric in METRICS
        if (values := _values(table, *group, metric)).size
    ]


def overall(table: Rows) -> list[dict[str, Any]]:
    """Over all sizes: the median over seeds of each seed's geometric mean of one-step error ratios."""
    sizes = distinct(table, "steps")
    groups = dict.fromkeys((row["task"], row["design"], row["action"]) for row in table)

    def together(base: str, task: str, design: str, action: str) -> np.ndarray:
        found = [ratios(table, base, task, size, design, action, "error") for size in sizes]
        return np.exp(np.mean(np.log(found), axis=0))

    return [
        {
            **dict(zip(("task", "design", "action"), group, strict=True)),
            **_beside(lambda base, group=group: together(base, *group)),
        }
        for group in groups
    ]


def ratios(table: Rows, base: str, task: str, steps: int, design: str, action: str, metric: str) -> np.ndarray:
    """A design's numbers over a monolith's, seed by seed; none where the metric is no error."""
    own, other = (_values(table, task, steps, name, action, metric) for name in (design, base))
    return own / other if metric in ERRORS else own[:0]


def _values(table: Rows, task: str, steps: int, design: str, action: str, metric: str) -> np.ndarray:
    """One number per seed; none where the metric does not apply."""
    own = select(table, task=task, steps=steps, design=design, action=action)
    values = np.array([row[metric] for row in sorted(own, key=lambda row: row["seed"])])
    return values[:0] if np.all(np.isnan(values)) else values


def _beside(ratios_to: Callable[[str], np.ndarray]) -> dict[str, Any]:
    """The spreads of ratios to each of the monoliths."""
    plain, normal = map(ratios_to, BASES)
    return _spread("ratio_", plain) | _spread("ratio_normal_", normal)


def _spread(prefix: str, values: np.ndarray) -> dict[str, Any]:
    names = (f"{prefix}median", f"{prefix}low", f"{prefix}high")
    if not values.size or not np.all(np.isfinite(values)):
        return dict.fromkeys(names, "")
    return dict(zip(names, (float(np.median(values)), *interval(values, statistic=np.median)), strict=True))


def lines(table: Rows, metric: str) -> list[tuple[str, ...]]:
    """For the screen: task, steps, design, and for each kind of action the median, with ratios where it has them."""
    groups = dict.fromkeys((row["task"], row["steps"], row["design"]) for row in table)
    actions = columns(table, metric)
    return [
        (task, f"{steps}", design, *(_cell(table, task, steps, design, action, metric) for action in actions))
        for task, steps, design in groups
    ]


def columns(table: Rows, metric: str) -> list[str]:
    """The kinds of action that a metric speaks of."""
    return [
        kind for kind in distinct(table, "action") if any(r[metric] == r[metric] for r in select(table, action=kind))
    ]


def _cell(table: Rows, task: str, steps: int, design: str, action: str, metric: str) -> str:
    values = _values(table, task, steps, design, action, metric)
    if metric not in ERRORS:
        return f"{np.median(values):.3g}"
    beside = [np.median(ratios(table, base, task, steps, design, action, metric)) for base in BASES]
    return f"{np.median(values):.3g} " + " ".join(f"×{ratio:.2f}" for ratio in beside)


def relative(bins: Rows) -> list[dict[str, Any]]:
    """The bins with every error over that of the same seed's monolith."""
    place = ("task", "steps", "seed", "bin")
    base = {tuple(row[key] for key in place): row["error"] for row in select(bins, design=BASES[0])}
    return [{**row, "error": row["error"] / base[tuple(row[key] for key in place)]} for row in bins]


def draw(bins: Rows, label: str, path: Path) -> None:
    """Error against -log pi(a|s), bins at equal distances: a column per task, a row per size, a line per design."""
    tasks, sizes = distinct(bins, "task"), sorted(distinct(bins, "steps"))
    shape = {"nrows": len(sizes), "ncols": len(tasks), "figsize": (4.6 * len(tasks), 3.1 * len(sizes) + 0.6)}
    figure, axes = plt.subplots(**shape, squeeze=False, layout="constrained")
    for i, size in enumerate(sizes):
        for axis, task in zip(axes[i], tasks, strict=True):
            for design in distinct(bins, "design"):
                _line(axis, select(bins, task=task, steps=size, design=design), design)
            places = {row["bin"]: f"{row['surprise']:.3g}" for row in select(bins, task=task, steps=size)}
            axis.set_xticks(sorted(places), [places[number] for number in sorted(places)])
            axis.set_title(f"{task}, {size} steps")
        axes[i, 0].set_ylabel(label)
    for axis in axes[-1]:
        axis.set_xlabel("how unlikely the action was: bins of −log π(a|s)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * len(tasks)), frameon=False)
    figures.save(figure, path)


def _line(axis: Any, rows: Rows, design: str) -> None:
    """The median over seeds in every bin, its interval shaded."""
    places = sorted(distinct(rows, "bin"))
    errors = [[row["error"] for row in select(rows, bin=number)] for number in places]
    drawn = {"color": "black", "linestyle": "--"} if design == BASES[0] else {}
    figures.band(axis, places, errors, design, **drawn)
