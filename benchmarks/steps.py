"""How long a gradient step of many runs' ensembles takes in long epochs, by fits of five epochs to random rows; and,
where a file is named, when each operation of a few steps began and how long it took.

python benchmarks/steps.py [--runs 5] [--algo mbpo] [--rows 60000] [--timeline FILE]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from kernels import traced

from iadd_tr import loops
from iadd_tr.bench import full, parts
from iadd_tr.tasks.task import resolve

SHOWN = 80  # operations of a timeline


def random_rows(count: int) -> full.Rows:
    """Rows of Hopper's shape that nothing can be learned from."""
    random, task = np.random.default_rng(0), resolve("hopper")
    states = dict.fromkeys(("observation", "next_observation"), (count, task.observations))
    numbers = dict.fromkeys(("log_density", "reward"), (count,))
    shapes = {"action": (count, task.actions), **states, **numbers}
    drawn = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**drawn, "discount": np.ones(count, np.float32)}


def timeline(events: list[dict[str, Any]]) -> str:
    """The operations in the middle of a trace, with microseconds."""
    events = sorted(events, key=lambda event: event["ts"])
    shown = events[len(events) // 2 :][:SHOWN]
    return "\n".join(f"{e['ts'] - shown[0]['ts']:9.2f} {e['dur']:7.2f} {e['name'][:90]}" for e in shown) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--algo", choices=("mbpo", "iadd"), default="mbpo")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--timeline", type=Path)
    options = parser.parse_args()
    loops.shrinking = lambda rows: iter([rows])  # no run ends before the others, so that one program is enough
    batch, state = parts.fitting(options.runs, options.algo, random_rows(options.rows))
    steps = parts.STEP_EPOCHS * parts.steps_per_epoch(batch.problem, options.rows)

    def fit() -> float:
        return parts.timed_fit(batch, parts.FIT_MAIN, options.rows, state.models, state.memory)[1]

    fit()
    each = [1e6 * fit() / steps for _ in range(5)]
    print(
        f"{options.runs} runs of {options.algo}: " + ", ".join(f"{time:.1f}" for time in each) + " us a gradient step"
    )
    if options.timeline is not None:
        options.timeline.write_text(timeline(traced(fit)))


if __name__ == "__main__":
    main()
