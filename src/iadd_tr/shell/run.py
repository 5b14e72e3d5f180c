"""Training with a run folder, a progress bar and checkpoints."""

import math
from pathlib import Path

import jax

from iadd_tr.experiment import over_runs
from iadd_tr.runs import rows, traced
from iadd_tr.settings import Settings
from iadd_tr.shell import checkpoint, config
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.progress import Progress
from iadd_tr.shell.runlog import RunLog, read_metrics, update_config, write_config
from iadd_tr.stage import Problem
from iadd_tr.tasks.task import resolve
from iadd_tr.training import Start, algorithm_of, train


def start(settings: Settings, folder: Path, wandb: bool = False) -> Path:
    """Train from the beginning into a new folder, and return it."""
    config.check(settings)
    problem = Problem(resolve(settings.task, settings.zero_action), settings)
    write_config(folder, settings)
    return _train(problem, folder, None, wandb)


def resume(settings: Settings, folder: Path, wandb: bool = False) -> Path:
    """Go on from a folder's last checkpoint, with the settings it was started with."""
    config.check(settings)
    started = config.load(folder)
    if config.fingerprint(settings) != config.fingerprint(started):
        raise UserError(
            f"'{folder}' was started with other settings; resume it with those in its config.json "
            f"(only {', '.join(config.FREE_OPTIONS)} may change), or give another folder with --out."
        )
    problem = Problem(resolve(settings.task, settings.zero_action), settings)
    begin = restore(problem, folder)
    if begin is not None and begin.epoch > settings.loop.epochs:
        raise UserError(f"'{folder}' has {begin.epoch} epochs already; give --epochs {begin.epoch} or more.")
    update_config(folder, settings)
    return _train(problem, folder, begin, wandb)


def restore(problem: Problem, folder: Path) -> Start | None:
    """A folder's last checkpoint, if it has one."""
    settings = problem.settings
    table, init = rows(settings), algorithm_of(settings).INIT
    template = jax.eval_shape(over_runs(problem, init, None), traced(settings, table))[0]
    environments = len(table) * math.prod(settings.seats)
    return checkpoint.load(folder, config.fingerprint(settings), template, environments)


def _train(problem: Problem, folder: Path, begin: Start | None, wandb: bool) -> Path:
    settings = problem.settings
    epoch = 0 if begin is None else begin.epoch
    log = RunLog(folder, epoch, settings, wandb)
    with Progress(settings, epoch, read_metrics(folder)) as progress:
        for done in train(problem, begin, progress.step):
            log.write(done.metrics)
            last = done.number + 1 == settings.loop.epochs
            if last or (done.number + 1) % settings.checkpoint_every == 0:
                fingerprint = config.fingerprint(settings)
                checkpoint.save(folder, fingerprint, done.number + 1, done.state, done.places)
            progress.epoch(done.metrics)
    log.close()
    return folder
