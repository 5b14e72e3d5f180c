"""A run folder's replay, gone through again by other designs."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import jax

from iadd_tr.experiment import Batch
from iadd_tr.shell.counterfactual import known
from iadd_tr.shell.errors import UserError, require
from iadd_tr.shell.output import progress
from iadd_tr.shell.replays import load
from iadd_tr.study import hindsight
from iadd_tr.study.designs import DESIGNS


def run(folder: Path, forms: Sequence[str], every: int, cold: bool) -> list[dict[str, Any]]:
    """A line for each design, run and moment."""
    require(
        [
            (bool(forms), "--forms must name one design or more"),
            known(forms),
            (every >= 1, "--every must be 1 or more"),
        ]
    )
    problem, start = load(folder)
    memory = getattr(start.state, "memory", None)
    if memory is None:
        raise UserError(f"'{folder}' was trained by {problem.settings.algo}, which keeps no replay; take another run.")
    real = jax.device_put(memory.real)
    times = hindsight.moments(problem, int(real.size.min()), every)
    if not times:
        raise UserError(f"'{folder}' has fewer than {hindsight.AHEAD} rows after its warm-up; train it longer.")
    table = []
    with progress("fits", len(forms) * len(times)) as tick:
        for name in forms:
            with closing(Batch(hindsight.problem_of(problem, DESIGNS[name]))) as batch:
                for lines in hindsight.retrace(batch, real, times, cold):
                    table += [{"design": name, **line} for line in lines]
                    tick()
    return table
