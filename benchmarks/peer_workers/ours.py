"""This library's SAC or MBPO on Hopper: the loop that `iadd-tr train` runs, up to its evaluation."""

from contextlib import suppress
from typing import Any

import numpy as np
from clock import Clock, Finished, begin

from iadd_tr.experiment import Batch
from iadd_tr.settings import Settings, override, rollouts_per_fit
from iadd_tr.shell import config, machine
from iadd_tr.stage import Problem
from iadd_tr.tasks import presets
from iadd_tr.tasks.task import resolve
from iadd_tr.training import algorithm_of


def main() -> None:
    plan, answers = begin(("jax", "jaxlib", "equinox", "gymnasium", "mujoco", "numpy"))
    machine.use_cores()
    settings = make_settings(plan)
    config.check(settings)
    batch = Batch(Problem(resolve(settings.task, settings.zero_action), settings))
    algorithm = algorithm_of(settings)
    state = algorithm.begin(batch)
    batch.report()
    clock = Clock(answers, plan, lambda: counts(batch, clock.steps))
    batch.on_step = clock
    with suppress(Finished):
        algorithm.epoch(batch, state, 0)


def make_settings(plan: dict[str, Any]) -> Settings:
    """Hopper's preset for one epoch that is long enough for all blocks."""
    return override(
        presets.settings("hopper", plan["algo"]),
        runs=plan["runs"],
        epochs=1,
        epoch_length=plan["length"],
        warm_up=plan["warm_up"],
        updates_per_step=plan["updates_per_step"],
        fit_every=plan["fit_every"],
        horizon=(1, 1, 0, 1),
    )


def counts(batch: Batch, steps: int) -> dict[str, float]:
    """What has been done so far, and the seconds of the stages that the host waits for."""
    settings = batch.problem.settings
    done: dict[str, float] = {"updates": steps * settings.loop.updates_per_step * settings.runs}
    if settings.algo == "sac":
        return done
    epochs = [float(np.mean(info.epochs)) for info in batch.infos["fit"]]
    rows = [settings.loop.warm_up + number * settings.loop.fit_every for number in range(len(epochs))]
    return done | {
        "fit_seconds": batch.seconds["fit"],
        "fit_epochs": sum(epochs),
        "gradient_steps": sum(e * minibatches(r, settings.model.fit_batch) for e, r in zip(epochs, rows, strict=True)),
        "rollout_seconds": batch.seconds["rollout"],
        "imagined_rows": len(epochs) * rollouts_per_fit(settings.loop, settings.model),
    }


def minibatches(rows: int, batch: int) -> int:
    """Gradient steps of one epoch of a fit that holds out a fifth of the rows."""
    return -(-(rows - rows // 5) // batch)


if __name__ == "__main__":
    main()
