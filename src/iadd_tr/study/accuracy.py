"""How far an ensemble is from the simulator: one step ahead, in its intervals, and along a fixed action sequence."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Bool, Float

from iadd_tr import replay
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics import examples
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.dynamics.member import Prediction
from iadd_tr.gaussian import LOG_TWO_PI
from iadd_tr.types import Transition

HORIZONS = (5, 10, 25)


class Paths(eqx.Module):
    """True trajectories under fixed actions; `live[h]` says that no true end came before step h."""

    start: Float[Any, "*P O"]
    action: Float[Any, "*P H A"]
    reached: Float[Any, "*P H O"]
    live: Bool[Any, "*P H"]


class Unit(eqx.Module):
    """What errors are divided by: deviations over the rows of the policy's own actions."""

    difference: Float[Array, " O"]
    reward: Float[Array, ""]
    observation: Float[Array, " O"]


class Score(eqx.Module):
    """One ensemble on one kind of action."""

    error: Float[Array, ""]
    reward_error: Float[Array, ""]
    nll: Float[Array, ""]
    coverage_50: Float[Array, ""]
    coverage_90: Float[Array, ""]


def units(rows: Transition) -> Unit:
    """The deviations of s' - s, r and s over some rows."""

    def deviation(value: Float[Array, "B D"]) -> Float[Array, " D"]:
        return replay.moments(value, jnp.ones(value.shape[0], bool))[1]

    truth = deviation(examples.target(rows))
    return Unit(truth[1:], truth[0], deviation(rows.observation))


def predict(ensemble: Ensemble, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Prediction:
    """Every elite on every row, leaves [E, B]; a noisy latent block stands at its mean, as in a fit's holdout."""
    count = ensemble.elites.size
    observations, actions = (jnp.broadcast_to(x, (count, *x.shape)) for x in (observation, action))
    noise = jnp.zeros((count, observation.shape[0], ensemble.noise_width))
    return ensembles.predict_members(ensembles.pick_elites(ensemble), ensemble.scale, observations, actions, noise)


def judge(prediction: Prediction, rows: Transition, unit: Unit) -> Score:
    """Root mean squares of the elites' mean in units; likelihood and intervals of the elites' mixture."""
    truth = examples.target(rows)
    miss = jnp.sqrt(jnp.mean((jnp.mean(prediction.mean, axis=0) - truth) ** 2, axis=0))
    rank = mixture_rank(prediction, truth)
    return Score(
        error=jnp.mean(miss[1:] / unit.difference),
        reward_error=miss[0] / unit.reward,
        nll=mixture_nll(prediction, truth),
        coverage_50=jnp.mean(jnp.abs(rank - 0.5) <= 0.25),
        coverage_90=jnp.mean(jnp.abs(rank - 0.5) <= 0.45),
    )


def squared_errors(prediction: Prediction, rows: Transition, unit: Unit) -> Float[Array, " B"]:
    """Each row's mean over coordinates of the squared error of s' - s in units."""
    miss = jnp.mean(prediction.mean, axis=0) - examples.target(rows)
    return jnp.mean((miss[:, 1:] / unit.difference[None]) ** 2, axis=-1)


def mixture_nll(prediction: Prediction, truth: Float[Array, "B D"]) -> Float[Array, ""]:
    """Mean over rows and coordinates of -log of the elites' equal mixture, which is what a rollout draws from."""
    centred = (truth[None] - prediction.mean) ** 2 * jnp.exp(-prediction.log_variance)
    density = -0.5 * jnp.sum(centred + prediction.log_variance + LOG_TWO_PI, axis=-1)
    return -jnp.mean(logsumexp(density, axis=0) - jnp.log(density.shape[0])) / truth.shape[-1]


def mixture_rank(prediction: Prediction, truth: Float[Array, "B D"]) -> Float[Array, "B D"]:
    """Where the truth falls in the mixture's distribution of each coordinate: uniform where the mixture is right."""
    return jnp.mean(ndtr((truth[None] - prediction.mean) * jnp.exp(-0.5 * prediction.log_variance)), axis=0)


def open_loop(ensemble: Ensemble, paths: Paths, unit: Unit) -> Float[Array, " 3"]:
    """Median distance in units after 5, 10 and 25 steps, over the paths that had not ended before."""

    def step(state: Float[Array, "P O"], action: Float[Array, "P A"]):
        state = state + jnp.mean(predict(ensemble, state, action).mean, axis=0)[:, 1:]
        return state, state

    _, reached = jax.lax.scan(step, paths.start, jnp.swapaxes(paths.action, 0, 1))
    miss = (jnp.swapaxes(reached, 0, 1) - paths.reached) / unit.observation[None, None]
    distance = jnp.sqrt(jnp.mean(miss**2, axis=-1))
    distance = jnp.where(jnp.isfinite(distance), distance, jnp.inf)
    ends = jnp.array(HORIZONS) - 1
    return jnp.nanmedian(jnp.where(paths.live, distance, jnp.nan)[:, ends], axis=0)
