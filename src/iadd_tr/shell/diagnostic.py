"""The stages of the policy-gradient diagnostic, each kept on disk, so that a killed study goes on where it was."""

import time
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from iadd_tr.settings import Settings
from iadd_tr.shell import keep
from iadd_tr.shell import run as runs
from iadd_tr.shell.errors import UserError, require
from iadd_tr.shell.output import progress
from iadd_tr.stage import Problem
from iadd_tr.study import frozen as freezing
from iadd_tr.study import gradient
from iadd_tr.study.frozen import Frozen, Pairs
from iadd_tr.study.gradient import Study
from iadd_tr.study.variants import programs
from iadd_tr.tasks.simulator import Simulator
from iadd_tr.tasks.task import resolve


def check(study: Study) -> None:
    """Refuse what cannot be frozen or trained."""
    room = study.warm_up + min(study.checkpoints, default=0) * study.epoch_length - study.states
    rules = [
        (bool(study.checkpoints), "--checkpoints must name one epoch or more"),
        (all(epoch >= 1 for epoch in study.checkpoints), "--checkpoints must be 1 or more"),
        (bool(study.seeds), "--seeds must name one seed or more"),
        (all(0 <= seed < 2**31 for seed in study.seeds), "--seeds must lie between 0 and 2147483647"),
        (room >= 1, "--checkpoints must be later, so that there are rows to train critics on"),
    ]
    require(rules)


def run(study: Study, folder: Path) -> list[dict[str, Any]]:
    """A row for every checkpoint, variant and seed."""
    keep.same_study(folder, study, "checkpoints")
    simulator = Simulator(resolve(study.task))
    places = sorted(set(study.checkpoints))
    agents = {epochs: frozen_agent(study, epochs, simulator, folder) for epochs in places}
    returns = {epochs: followed(study, epochs, agents[epochs], simulator, folder) for epochs in places}
    return [row for epochs in places for row in diagnoses(study, epochs, agents[epochs], returns[epochs], folder)]


def frozen_agent(study: Study, epochs: int, simulator: Simulator, folder: Path) -> Frozen:
    """The agent after so many epochs."""
    sizes = study.sizes(epochs)

    def make() -> Frozen:
        return freezing.freeze(trained(study.settings(epochs), folder / "sac"), simulator, sizes, study.agent_seed)

    template = jax.eval_shape(lambda: freezing.blank(simulator.task, sizes))
    return keep.arrays(folder / f"agent-{epochs}.safetensors", template, make)


def trained(settings: Settings, folder: Path) -> Any:
    """The state of the agent's run at the end of its epochs, trained up to there where it is not."""
    start = runs.resume if (folder / "config.json").exists() else runs.start
    start(settings, folder)
    found = runs.restore(Problem(resolve(settings.task), settings), folder)
    if found is None or found.epoch != settings.loop.epochs:
        raise UserError(f"'{folder}' holds no epoch {settings.loop.epochs}; give another folder with --out.")
    return found.state


def followed(study: Study, epochs: int, frozen: Frozen, simulator: Simulator, folder: Path) -> Pairs:
    """The Monte-Carlo returns of the policy."""
    gamma, key = study.settings(epochs).agent.gamma, jax.random.fold_in(jax.random.key(study.agent_seed), epochs)
    follow = partial(freezing.trajectories, key, frozen, simulator, study.trajectories, study.horizon, gamma)

    def make() -> Pairs:
        start = time.perf_counter()
        with progress(f"epoch {epochs}: {count} trajectories", study.horizon) as advance:
            pairs = follow(advance)
        steps, seconds = float(jnp.sum(pairs.length)), time.perf_counter() - start
        print(f"{steps:.3g} simulator steps, {steps / seconds:.0f} per second with the policy")
        return pairs

    count = study.states * study.trajectories
    template = jax.eval_shape(lambda: freezing.unfollowed(simulator.task, count))
    return keep.arrays(folder / f"returns-{epochs}.safetensors", template, make)


def diagnoses(study: Study, epochs: int, frozen: Frozen, pairs: Pairs, folder: Path) -> list[dict[str, Any]]:
    """What every variant found, a program at a time."""
    groups = programs(study.variants)
    names = [fingerprint(study.settings(epochs, group[0]).agent, group) for group in groups]
    paths = [folder / f"critics-{epochs}-{name}.json" for name in names]
    left = sum(not path.exists() for path in paths)
    table = []
    with progress(f"epoch {epochs}: critics of {left} programs", left * study.critic_epochs) as advance:
        for path, group in zip(paths, groups, strict=True):
            table += keep.plain(path, partial(gradient.diagnose, study, epochs, frozen, pairs, group, advance))
    return table


def fingerprint(*records: Any) -> str:
    """A short name of what was asked."""
    return sha256(repr(records).encode()).hexdigest()[:12]
