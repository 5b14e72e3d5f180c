"""Which design would have foreseen best what a run met next? All are fitted along its replay, as the loop does it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from iadd_tr import replay
from iadd_tr.algorithm import mbpo
from iadd_tr.algorithm.collect import Memory
from iadd_tr.algorithm.mbpo import FIT, Models
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.dynamics.member import Prediction
from iadd_tr.experiment import Batch
from iadd_tr.replay import Replay
from iadd_tr.settings import Model
from iadd_tr.stage import Problem, Stage
from iadd_tr.study import accuracy
from iadd_tr.study.accuracy import Score, Unit
from iadd_tr.study.designs import Design, sized
from iadd_tr.types import Run, Transition

AHEAD = 1000
"""Rows behind those of a fit that it is judged by."""
SHARED = ("members", "elites", "width", "monolith_depth", "fit_batch", "fit_epochs", "patience", "model_rate")


class Judged(eqx.Module):
    """One ensemble on the rows that came next."""

    score: Score
    deviation: Float[Array, ""]  # of the elites' own noise, in deviations of the observations
    disagreement: Float[Array, ""]  # between the elites' means, in the same unit


def problem_of(source: Problem, design: Design) -> Problem:
    """A run's problem with the design's member at the size that the run's monolith has or would have."""
    task, settings = source.task, source.settings
    base = replace(Model(), **{name: getattr(settings.model, name) for name in SHARED})
    model = replace(sized(design, base, task.observations, task.actions), zero_rows="collected")
    return Problem(task, replace(settings, algo=design.algo, model=model))


def moments(source: Problem, rows: int, every: int) -> range:
    """After how many rows models are fitted: from the warm-up on, as long as there are rows to judge them by."""
    return range(source.settings.loop.warm_up, rows - AHEAD + 1, every)


def retrace(batch: Batch, real: Replay, times: range, cold: bool) -> Iterator[list[dict[str, Any]]]:
    """Models fitted to more and more rows of every run, from where they stood or, `cold`, from scratch."""
    models = None
    for seen in times:
        if cold or models is None:
            models = batch(INIT)
        earlier = jax.vmap(partial(replay.shortened, count=seen))(real)
        models = batch(FIT, seen, seen, models, Memory(earlier, None))
        said = batch.report()[0]["fit"]
        judged = jax.device_get(batch(JUDGE, seen, models.main, real.rows))
        yield [
            {
                "run": number,
                "seed": row.seed,
                "rows": seen,
                **{name: float(column[number]) for name, column in vars(judged.score).items()},
                "deviation": float(judged.deviation[number]),
                "disagreement": float(judged.disagreement[number]),
                "holdout_error": said[number]["holdout_error"],
                "fit_epochs": said[number]["epochs"],
            }
            for number, row in enumerate(batch.rows)
        ]


def fresh(problem: Problem, run: Run) -> tuple[Models, None]:
    """Members that have seen nothing."""
    key, zero_key = jax.random.split(run.at(0, 0))
    return mbpo.init_models(key, zero_key, problem), None


def judge(
    problem: Problem, seen: Int[Array, ""], run: Run, ensemble: Ensemble, rows: Transition
) -> tuple[Judged, None]:
    """The rows after the first `seen`."""
    del problem, run
    following = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, seen, AHEAD), rows)
    prediction = accuracy.predict(ensemble, following.observation, following.action)
    unit = accuracy.units(following)
    return Judged(accuracy.judge(prediction, following, unit), *spreads(prediction, unit)), None


def spreads(prediction: Prediction, unit: Unit) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Geometric means over coordinates of the elites' mean deviation and of the deviation between their means."""
    own = jnp.mean(jnp.exp(0.5 * prediction.log_variance), axis=(0, 1))
    between = jnp.mean(jnp.std(prediction.mean, axis=0), axis=0)
    least = np.finfo(np.float32).tiny

    def mean(value: Float[Array, " D"]) -> Float[Array, ""]:
        return jnp.exp(jnp.mean(jnp.log(value[1:] / unit.observation + least)))

    return mean(own), mean(between)


INIT = Stage("init", fresh)
JUDGE = Stage("judge", judge, shared=1)
