"""Learning curves and their table: one for each thing compared, over its seeds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iadd_tr.report import figures
from iadd_tr.report.statistics import summarise

APART = {"beta": "β", "zero_ratio": "λ₀", "floor": "floor", "variant": ""}
"""What tells the runs of one algorithm apart, and how a name says it; a variant stands for all other settings."""
SETBACK = 0.4
Curve = Mapping[Any, Mapping[int, float]]  # of each run, the measure at each number of environment steps


def curves(lines: Sequence[dict[str, Any]], measure: str = "return") -> dict[str, dict[str, Curve]]:
    """By task and by name, a measure of the runs' evaluations; one of several episodes is their mean."""
    found: dict[str, dict[str, dict[Any, dict[int, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    values = _values(lines)
    for line in lines:
        run = line.get("folder"), line.get("run"), line["seed"]
        found[line["task"]][_name(line, values)][run][line["environment_steps"]] = float(np.mean(line[measure]))
    return {task: dict(sorted(named.items())) for task, named in sorted(found.items())}


def _values(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], set[Any]]:
    """Per task, algorithm and scalar, the values it takes."""
    values = defaultdict(set)
    for line in lines:
        for scalar in APART:
            values[line["task"], line["algorithm"], scalar].add(line.get(scalar))
    return values


def _name(line: dict[str, Any], values: Mapping[tuple[str, str, str], set[Any]]) -> str:
    """The algorithm, and what else is needed to tell it apart."""
    task, algorithm = line["task"], line["algorithm"]
    differing = [scalar for scalar in APART if len(values[task, algorithm, scalar]) > 1]
    return ", ".join([algorithm, *(f"{APART[scalar]} {line.get(scalar)}".strip() for scalar in differing)])


def spread(curve: Curve) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that any run reached, and the mean and deviation there."""
    steps = sorted(set().union(*curve.values()))
    reached = [[run[step] for run in curve.values() if step in run] for step in steps]
    return np.array(steps), np.array([np.mean(r) for r in reached]), np.array([np.std(r) for r in reached])


def draw(lines: Sequence[dict[str, Any]], path: Path, measure: str = "return") -> None:
    """A panel per task: mean and standard deviation."""
    panels = curves(lines, measure)
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.8), squeeze=False, layout="constrained")
    for axis, (task, named) in zip(axes[0], panels.items(), strict=True):
        for name, curve in named.items():
            steps, mean, deviation = spread(curve)
            label = f"{name} ({len(curve)} seed{'s' * (len(curve) > 1)})"
            (line,) = axis.plot(steps / 1000, mean, label=label, linewidth=1.6)
            axis.fill_between(
                steps / 1000, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.18, linewidth=0
            )
        axis.set(title=task, xlabel="environment steps (thousands)", ylabel=measure.replace("_", " "))
        axis.legend(frameon=False, loc="best")
    figures.save(figure, path)


def table(lines: Sequence[dict[str, Any]], measure: str = "return") -> list[dict[str, Any]]:
    """A row per task and name, over the steps that all its runs have reached."""
    return [
        {"task": task, "name": name, "runs": len(curve), **_row(curve)}
        for task, named in curves(lines, measure).items()
        for name, curve in named.items()
    ]


def _row(curve: Curve) -> dict[str, Any]:
    steps = sorted(set.intersection(*(set(run) for run in curve.values())))
    if not steps:
        return {"steps": 0}
    values = np.array([[run[step] for step in steps] for run in curve.values()])
    return {
        "steps": steps[-1],
        "all": summarise(values.mean(axis=1)),
        "last_ten": summarise(values[:, -10:].mean(axis=1)),
        "last": summarise(values[:, -1]),
        "setbacks": int(setbacks(values).sum()),
        "evaluations": values.size,
    }


def setbacks(values: np.ndarray) -> np.ndarray:
    """Where a run lost more than 0.4 of what it had gained: its best value so far over its first."""
    best = np.maximum.accumulate(values, axis=1)
    return values < best - SETBACK * (best - values[:, :1])
