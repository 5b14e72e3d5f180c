"""What agents knew of the ends of their episodes, as a figure and as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iadd_tr.report.figures import plt, save

Row = dict[str, Any]


def summary_lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each run."""
    return [
        [
            str(row["run"]),
            f"{row['steps']:.0f}",
            f"{100 * row['ended']:.0f} %",
            *(f"{row[name]:.1f}" for name in ("return", "discounted_return", "value")),
        ]
        for row in rows
    ]


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each run and number of steps before an end."""
    return [
        [
            *(str(row[name]) for name in ("run", "before", "episodes")),
            *(f"{row[name]:.1f}" for name in ("value", "to_go")),
            f"{100 * row['foreseen']:.0f} %",
        ]
        for row in rows
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Values beside the rewards that came, and the share of ends that the model saw coming."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for number, run in enumerate(sorted({row["run"] for row in rows})):
        own, colour = [row for row in rows if row["run"] == run], f"C{number % 10}"
        steps = [row["before"] for row in own]
        left.plot(steps, [row["value"] for row in own], "o-", color=colour, markersize=3, label=f"run {run}")
        left.plot(steps, [row["to_go"] for row in own], "--", color=colour)
        right.plot(steps, [100 * row["foreseen"] for row in own], "o-", color=colour, markersize=3)
    left.plot([], [], "k-", label="critics")
    left.plot([], [], "k--", label="what came")
    left.set(ylabel="discounted rewards to come")
    right.set(ylabel="futures that end within\ntwice as many steps, %", ylim=(-3, 103))
    for axis in (left, right):
        axis.set(xscale="log", xlabel="steps before the end")
        axis.set_xticks(ticks := sorted({row["before"] for row in rows}), [str(tick) for tick in ticks], minor=False)
        axis.minorticks_off()
    left.legend(frameon=False, fontsize=8)
    save(figure, path)
