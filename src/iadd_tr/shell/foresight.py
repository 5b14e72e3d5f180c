"""A run folder's agents, asked about the ends of their episodes."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from iadd_tr.algorithm import mbpo
from iadd_tr.evaluate import resets
from iadd_tr.runs import rows
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.output import progress
from iadd_tr.shell.replays import EVALUATION_STREAM, load
from iadd_tr.study import foresight

Table = list[dict[str, Any]]


def run(folder: Path, episodes: int) -> tuple[Table, Table]:
    """A line for each run, and a line for each run and number of steps before an end."""
    problem, start = load(folder)
    settings, task, state = problem.settings, problem.task, start.state
    if not isinstance(state, mbpo.State):
        raise UserError(
            f"'{folder}' was trained by {settings.algo}, which has no model to ask; take a run of mbpo or iadd."
        )
    summary, table, batch = [], [], rows(settings)
    with progress("runs", len(batch)) as tick:
        for number, (row, reflex) in enumerate(zip(batch, mbpo.reflexes(state), strict=True)):
            agent, model = jax.tree.map(lambda x, n=number: x[n], (state.agent, state.models.main))
            played = foresight.play(task, reflex, resets(row.seed, EVALUATION_STREAM, episodes))
            about = {"run": number, **asdict(row)}
            gamma, key = settings.agent.gamma, jax.random.key(row.seed)
            summary.append(about | foresight.summary(agent, played, gamma))
            least_noise = settings.loop.imagined_noise
            lines = foresight.before_ends(key, agent, model, task.ending, played, gamma, least_noise)
            table += [about | line for line in lines]
            tick()
    return summary, table
