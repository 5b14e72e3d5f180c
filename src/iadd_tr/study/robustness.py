"""Theorem 4 by simulation: which estimates are right when the critic or the density is wrong.

The proof (Eqs. 46 to 56) is about the curve mu(a), the mean outcome of an action over all states. The gradient of a
policy that sees the state weighs the states of one action unequally: there a correction epsilon(a) does not solve the
score equation of Eq. 16, which the theorem presupposes, and one along pi(a | s) g(s, a), with a coefficient for each
component of the gradient, does.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from iadd_tr.agent import targeted
from iadd_tr.study import bandit as bandits
from iadd_tr.study.bandit import BANDIT, Bandit, Scale
from iadd_tr.types import Transition

FULL = Scale(samples=(250, 1000, 4000, 16000), replications=200)
QUICK = Scale(samples=(500, 4000), replications=12)
CASES = ("right", "wrong")
CRITICS = ((3, 5), (0, 5))  # degrees in state and action: the wrong critic does not see the state
DEGREE = 8  # of epsilon(a)
RIDGE = 1e-3
NO_FLOOR = -np.inf
ESTIMATORS = ("plug-in", "targeted", "targeted along the gradient", "targeted, policy's density")
POLICIES = ("gradient, policy ignores the state", "gradient, policy sees the state")


class Nuisance(eqx.Module):
    """Two critics, right and wrong, as twins, and one density: at the rows, and at every state with every node."""

    residual: Float[Array, "2 N"]
    values: Float[Array, "2 N K"]
    log_density: Float[Array, " N"]
    log_densities: Float[Array, "N K"]


def nuisance(bandit: Bandit, rows: Transition, weight: Float[Array, " N"]) -> Nuisance:
    """Both critics fitted to the rows, and the behaviour's density as this bandit states it."""
    action, _ = bandits.nodes()
    critics = [bandits.fit(rows, weight, degrees) for degrees in CRITICS]
    return Nuisance(
        residual=jnp.stack([rows.reward - critic(rows.observation, rows.action) for critic in critics]),
        values=jnp.stack([critic.table(rows.observation, action) for critic in critics]),
        log_density=bandits.behaviour_log_density(bandit, rows.observation, rows.action),
        log_densities=bandits.behaviour_log_density(bandit, *bandits.pairs(rows.observation, action)),
    )


def target(
    nuisance: Nuisance,
    features: Float[Array, "N F"],
    features_at_nodes: Float[Array, "N K F"],
    log_densities: Float[Array, "N K"],
    weight: Float[Array, " N"],
) -> Float[Array, "2 N K"]:
    """Both critics adjusted at the nodes, Eq. 17, by the correction linear in the features that minimises Eq. 48."""
    floor = jnp.array(NO_FLOOR)
    sums = targeted.normal_equations(features, nuisance.residual, nuisance.log_density, floor, weight)
    epsilon = targeted.linear(targeted.solve(*sums, RIDGE))
    values, rows = nuisance.values.reshape(2, -1), features_at_nodes.reshape(-1, features.shape[1])
    return targeted.adjust(epsilon, values, rows, log_densities.reshape(-1), floor).reshape(nuisance.values.shape)


def of_action(rows: Transition) -> tuple[Float[Array, "N F"], Float[Array, "N K F"]]:
    """Features of epsilon(a) at the rows and at the nodes."""
    at_nodes = targeted.features(bandits.nodes()[0], DEGREE)
    return targeted.features(rows.action, DEGREE), jnp.broadcast_to(at_nodes[None], (len(rows.action), *at_nodes.shape))


def of_policy(theta: Float[Array, " 3"], rows: Transition) -> tuple[Float[Array, "N 3"], Float[Array, "N K 3"]]:
    """pi(a | s) g(s, a) at the rows and at the nodes: a correction along it solves the score equation of Eq. 16."""
    at_nodes = bandits.density_gradient(theta, *bandits.pairs(rows.observation, bandits.nodes()[0]))
    return bandits.density_gradient(theta, rows.observation, rows.action), at_nodes


def gradients(
    theta: Float[Array, " 3"], nuisance: Nuisance, rows: Transition, weight: Float[Array, " N"]
) -> Float[Array, "4 2 3"]:
    """Eq. 21 of each estimator with both critics; the last adds epsilon / pi(a | s) in place of epsilon / e(a | s)."""
    own = bandits.log_density(theta, *bandits.pairs(rows.observation, bandits.nodes()[0]))
    adjusted = jnp.stack(
        [
            nuisance.values,
            target(nuisance, *of_action(rows), nuisance.log_densities, weight),
            target(nuisance, *of_policy(theta, rows), nuisance.log_densities, weight),
            target(nuisance, *of_action(rows), own, weight),
        ]
    )
    along = bandits.policy_weight(theta, rows.observation)
    return jnp.einsum("n,nkp,ecnk->ecp", weight / jnp.sum(weight), along, adjusted)


def curves(nuisance: Nuisance, rows: Transition, weight: Float[Array, " N"]) -> Float[Array, "2 2 K"]:
    """Eq. 56 without and with the correction, with both critics."""
    adjusted = target(nuisance, *of_action(rows), nuisance.log_densities, weight)
    return jnp.einsum("n,ecnk->eck", weight / jnp.sum(weight), jnp.stack([nuisance.values, adjusted]))


def blind(theta: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """The policy without its slope, so that it ignores the state."""
    return theta * jnp.array([0.0, 1.0, 1.0])


def forgetful(bandit: Bandit) -> Bandit:
    """The bandit whose behaviour ignores the state: its density is the wrong one."""
    return replace(bandit, behaviour=(0.0, *bandit.behaviour[1:]))


@partial(jax.jit, static_argnames="bandit")
def estimates(bandit: Bandit, rows: Transition, weight: Float[Array, " N"]) -> dict[str, Float[Array, "D E 2 _"]]:
    """Curve and gradients, by density, estimator and critic."""
    every = [nuisance(b, rows, weight) for b in (bandit, forgetful(bandit))]
    thetas = blind(bandit.theta), bandit.theta
    by_policy = [jnp.stack([gradients(theta, n, rows, weight) for n in every]) for theta in thetas]
    by_policy[0] = by_policy[0][..., 1:]  # without a slope
    return {"curve": jnp.stack([curves(n, rows, weight) for n in every]), **dict(zip(POLICIES, by_policy, strict=True))}


def truths(bandit: Bandit) -> dict[str, Float[Array, " _"]]:
    """What each estimate should be."""
    ignoring, seeing = bandits.gradient(blind(bandit.theta))[1:], bandits.gradient(bandit.theta)
    return {"curve": bandits.curve(bandits.nodes()[0]), **dict(zip(POLICIES, (ignoring, seeing), strict=True))}


def population(bandit: Bandit, size: float = 1e6) -> tuple[Transition, Float[Array, " N"]]:
    """All states and actions with their probabilities, and mean outcomes: estimates from it are the limits."""
    state, weight = bandits.nodes()
    states, actions = (x.reshape(-1, 1) for x in bandits.pairs(state, state))
    log_density = bandits.behaviour_log_density(bandit, states, actions)
    mean = bandits.mean_outcome(states, actions)
    share = (0.5 * weight[:, None] * weight[None]).reshape(-1) * jnp.exp(log_density)
    return Transition(states, actions, log_density, mean, states, jnp.zeros_like(mean)), size * share


def size(error: Float[np.ndarray, "*B D"], quantity: str) -> Float[np.ndarray, "*B"]:
    """A curve's root mean square over actions, a gradient's length."""
    weight = 0.5 * np.asarray(bandits.nodes()[1], float) if quantity == "curve" else np.ones(error.shape[-1])
    return np.asarray(np.sqrt(error**2 @ weight))


def run(scale: Scale, bandit: Bandit = BANDIT) -> list[dict[str, float | str | int]]:
    """Bias, its standard error, root mean square error and limit of every estimate in the four cases at every n."""
    truth, limit = truths(bandit), estimates(bandit, *population(bandit))
    table = []
    for count in scale.samples:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(scale.seed), count), scale.replications)
        found = replicate(keys, bandit, count)
        for name in truth:
            table += summarise(name, count, found[name], limit[name], truth[name])
    return table


@partial(jax.jit, static_argnames=("bandit", "count"))
def replicate(keys: Key[Array, " R"], bandit: Bandit, count: int) -> dict[str, Float[Array, "R D E 2 _"]]:
    """The estimates from fresh rows, for every key."""
    return jax.lax.map(lambda key: estimates(bandit, bandits.sample(key, bandit, count), jnp.ones(count)), keys)


def summarise(
    name: str,
    count: int,
    found: Float[Array, "R D E 2 P"],
    limit: Float[Array, "D E 2 P"],
    truth: Float[Array, " P"],
) -> list[dict[str, float | str | int]]:
    """A row for each case and estimator of one quantity."""
    error = np.asarray(found, float) - np.asarray(truth, float)
    bias, left = size(error.mean(0), name), size(np.asarray(limit, float) - np.asarray(truth, float), name)
    standard_error = size(error.std(0, ddof=1), name) / np.sqrt(len(error))
    total = np.sqrt((size(error, name) ** 2).mean(0))
    cells = product(enumerate(CASES), enumerate(CASES), enumerate(ESTIMATORS[: error.shape[2]]))
    return [
        {
            "quantity": name,
            "critic": critic,
            "density": density,
            "estimator": estimator,
            "n": count,
            "bias": float(bias[d, e, c]),
            "standard_error": float(standard_error[d, e, c]),
            "error": float(total[d, e, c]),
            "limit": float(left[d, e, c]),
            "size_of_truth": float(size(np.asarray(truth, float), name)),
        }
        for (c, critic), (d, density), (e, estimator) in cells
    ]
