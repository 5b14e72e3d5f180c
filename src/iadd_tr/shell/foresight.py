"""A run folder's agents, asked about the ends of their episodes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from iadd_tr.algorithm import mbpo
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.replays import EVALUATION_STREAM, Player
from iadd_tr.study import foresight
from iadd_tr.tasks.host import EVALUATION, episode_seed

Bar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
Table = list[dict[str, Any]]


def run(folder: Path, episodes: int, bar: Bar) -> tuple[Table, Table]:
    """A line for each run, and a line for each run and number of steps before an end."""
    player = Player(folder)
    settings, task = player.problem.settings, player.problem.task
    if not isinstance(player.state, mbpo.State):
        raise UserError(
            f"'{folder}' was trained by {settings.algo}, which has no model to ask; take a run of mbpo or iadd."
        )
    summary, table = [], []
    with bar("runs", len(player.rows)) as tick:
        for number, (row, reflex) in enumerate(zip(player.rows, player.policies, strict=True)):
            agent, model = jax.tree.map(lambda x, n=number: x[n], (player.state.agent, player.state.models.main))
            first = EVALUATION_STREAM * episodes
            seeds = [episode_seed(row.seed, first + episode, EVALUATION) for episode in range(episodes)]
            played = foresight.play(task, reflex, seeds)
            about = {"run": number, **asdict(row)}
            gamma, key = settings.agent.gamma, jax.random.key(row.seed)
            summary.append(about | foresight.summary(agent, played, gamma))
            lines = foresight.before_ends(key, agent, model, task.ending, played, gamma)
            table += [about | line for line in lines]
            tick()
    return summary, table
