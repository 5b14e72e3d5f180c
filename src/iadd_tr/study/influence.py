"""Theorem 3 by simulation: the influence function has mean zero, and the efficient estimator has its variance."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from iadd_tr.study import bandit as bandits
from iadd_tr.study.bandit import BANDIT, COMPONENTS, Bandit, Scale
from iadd_tr.types import PRNGKey, Transition

FULL = Scale(samples=(250, 1000, 4000), replications=4000)
QUICK = Scale(samples=(1000,), replications=300)
ESTIMATORS = ("one-step, true critic", "one-step, fitted critic", "importance-weighted", "plug-in, misspecified critic")
RIGHT, WRONG = (3, 5), (0, 5)  # degrees in state and action; the misspecified critic does not see the state
FOLDS = 5
CHUNK = 4000  # rows per program


def influence(
    theta: Float[Array, " 3"], rows: Transition, value: Float[Array, " N"], expected: Float[Array, "N 3"]
) -> Float[Array, "N 3"]:
    """Eq. 16 before psi is taken off, from Q at the rows and E[Q g] at their states."""
    where = rows.observation, rows.action
    ratio = jnp.exp(bandits.log_density(theta, *where) - rows.log_density)
    return (ratio * (rows.reward - value))[:, None] * bandits.score(theta, *where) + expected


def with_true_critic(theta: Float[Array, " 3"], rows: Transition, along: Float[Array, "N K 3"]) -> Float[Array, "N 3"]:
    """Eq. 16 before psi is taken off."""
    table = bandits.mean_outcome(*bandits.pairs(rows.observation, bandits.nodes()[0]))
    value = bandits.mean_outcome(rows.observation, rows.action)
    return influence(theta, rows, value, bandits.expected(along, table))


def cross_fitted(theta: Float[Array, " 3"], rows: Transition, along: Float[Array, "N K 3"]) -> Float[Array, "N 3"]:
    """The same, the rows of each fold with a critic fitted to the others."""
    fold = jnp.arange(len(along)) // (len(along) // FOLDS)
    own, own_along = jax.tree.map(lambda x: x.reshape(FOLDS, -1, *x.shape[1:]), (rows, along))

    def one(index: Int[Array, ""], own: Transition, along: Float[Array, "N K 3"]) -> Float[Array, "N 3"]:
        critic = bandits.fit(rows, (fold != index).astype(jnp.float32), RIGHT)
        expected = bandits.expected(along, critic.table(own.observation, bandits.nodes()[0]))
        return influence(theta, own, critic(own.observation, own.action), expected)

    return jax.vmap(one)(jnp.arange(FOLDS), own, own_along).reshape(-1, 3)


def draw(key: PRNGKey, bandit: Bandit, count: int) -> Float[Array, "N 3"]:
    """The influence function, Eq. 16, at fresh rows."""
    rows = bandits.sample(key, bandit, count)
    along = bandits.policy_weight(bandit.theta, rows.observation)
    return with_true_critic(bandit.theta, rows, along) - bandits.gradient(bandit.theta)[None]


def estimates(key: PRNGKey, bandit: Bandit, count: int) -> Float[Array, "E 3"]:
    """One replication of the estimators, in the order of their names."""
    theta, rows = bandit.theta, bandits.sample(key, bandit, count)
    along = bandits.policy_weight(theta, rows.observation)
    wrong = bandits.fit(rows, jnp.ones(count), WRONG).table(rows.observation, bandits.nodes()[0])
    every = (
        with_true_critic(theta, rows, along),
        cross_fitted(theta, rows, along),
        influence(theta, rows, jnp.zeros(count), jnp.zeros((count, 3))),
        bandits.expected(along, wrong),
    )
    return jnp.stack([jnp.mean(x, axis=0) for x in every])


def summarise(
    errors: Float[np.ndarray, "R 3"], count: int, efficient: Float[np.ndarray, " 3"]
) -> list[dict[str, float | str | int]]:
    """Mean and n times variance of each component, with 95 % limits from the errors' fourth moments."""
    replications = len(errors)
    mean, variance = errors.mean(0), errors.var(0, ddof=1)
    fourth = ((errors - mean[None]) ** 4).mean(0)
    ratio = count * variance / efficient
    width = 1.96 * count * np.sqrt((fourth - errors.var(0) ** 2) / replications) / efficient
    return [
        {
            "n": count,
            "component": name,
            "mean_error": float(mean[i]),
            "standard_error": float(np.sqrt(variance[i] / replications)),
            "scaled_variance": float(count * variance[i]),
            "efficient_variance": float(efficient[i]),
            "ratio": float(ratio[i]),
            "ratio_low": float(ratio[i] - width[i]),
            "ratio_high": float(ratio[i] + width[i]),
        }
        for i, name in enumerate(COMPONENTS)
    ]


def run(scale: Scale, bandit: Bandit = BANDIT) -> list[dict[str, float | str | int]]:
    """The influence function itself as n = 1, then every estimator at every n."""
    key = jax.random.key(scale.seed)
    efficient = np.diag(bandits.efficient_covariance(bandit, bandit.theta)).astype(float)
    truth = np.asarray(bandits.gradient(bandit.theta), float)
    draws = replicate(jax.random.split(jax.random.fold_in(key, 0), -(-scale.replications // 10)), draw, bandit, CHUNK)
    alone = summarise(np.asarray(draws, float).reshape(-1, 3), 1, efficient)
    table = [{"estimator": "influence function", **row} for row in alone]
    for count in scale.samples:
        keys = jax.random.split(jax.random.fold_in(key, count), scale.replications)
        errors = np.asarray(replicate(keys, estimates, bandit, count), float) - truth
        for i, name in enumerate(ESTIMATORS):
            table += [{"estimator": name, **row} for row in summarise(errors[:, i], count, efficient)]
    return table


@partial(jax.jit, static_argnames=("once", "bandit", "count"))
def replicate(keys: Key[Array, " R"], once: Callable, bandit: Bandit, count: int) -> Float[Array, "R _ 3"]:
    """A function of a key, a bandit and a number of rows for every key, a few keys at a time."""
    return jax.lax.map(lambda key: once(key, bandit, count), keys, batch_size=max(1, CHUNK // count))
