"""The only file that knows there are many members: their shared state, and one elite's prediction for each row."""

from dataclasses import replace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import adam
from iadd_tr.dynamics import monolith, stages
from iadd_tr.dynamics.member import Member, Prediction, Scale
from iadd_tr.gaussian import soft_bound
from iadd_tr.settings import Model
from iadd_tr.types import PRNGKey

Trained = TypeVar("Trained")


class Parameters(eqx.Module):
    """What a fit trains: members stacked along M, and the log-variance bounds they share."""

    members: Member
    lower: Float[Array, " D"]
    upper: Float[Array, " D"]

    @property
    def count(self) -> int:
        """How many members there are."""
        return jax.tree.leaves(self.members)[0].shape[0]


class Ensemble(eqx.Module):
    parameters: Parameters
    optimiser: optax.OptState
    scale: Scale
    elites: Int[Array, " E"]
    noise_width: int = eqx.field(static=True)


class Outcome(eqx.Module):
    """A sampled transition of the learned dynamics."""

    reward: Float[Array, " B"]
    next_observation: Float[Array, "B O"]
    end_logit: Float[Array, " B"]


def init(key: PRNGKey, model: Model, observations: int, actions: int, reference: Float[Array, " A"] | None) -> Ensemble:
    """Fresh members: two-stage ones anchored at `reference`, monolithic ones where there is none."""

    def member(key: PRNGKey) -> Member:
        if reference is None:
            return monolith.init(key, model, observations, actions)
        return stages.init(key, model, observations, actions, reference)

    members = jax.vmap(member)(jax.random.split(key, model.members))
    bound = jnp.ones(observations + 1)
    parameters = Parameters(members, -10.0 * bound, 0.5 * bound)
    scale = Scale(jnp.zeros(observations), jnp.ones(observations), jnp.zeros(actions), jnp.ones(actions), bound)
    noisy = reference is not None and model.latent == "gaussian"
    width = stages.latent_width(model, observations) if noisy else 0
    return Ensemble(parameters, adam.init(parameters), scale, jnp.arange(model.elites), width)


def predict_members(
    parameters: Parameters,
    scale: Scale,
    observation: Float[Array, "M B O"],
    action: Float[Array, "M B A"],
    noise: Float[Array, "M B L"],
) -> Prediction:
    """Each member on its own rows, log-variances bounded and in the data's units; the answer's leaves lead with M."""

    def one(member, observation, action, noise):
        return member(scale, observation, action, noise)

    prediction = jax.vmap(one)(parameters.members, observation, action, noise)
    log_variance = soft_bound(prediction.log_variance, parameters.lower, parameters.upper)
    log_variance = log_variance + 2.0 * jnp.log(scale.target_std)[None, None]
    return eqx.tree_at(lambda p: p.log_variance, prediction, log_variance)


def sample(
    key: PRNGKey,
    ensemble: Ensemble,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    least_noise: float = 0.0,
) -> Outcome:
    """A transition for each row by exactly one elite; the caller shuffles rows so that the elite is random.

    An observation is drawn with a deviation of at least `least_noise` of the data's own.
    """
    latent_key, output_key = jax.random.split(key)
    count = ensemble.elites.size
    states, actions = (x.reshape(count, -1, x.shape[-1]) for x in (observation, action))
    noise = jax.random.normal(latent_key, (*states.shape[:2], ensemble.noise_width))
    prediction = predict_members(pick_elites(ensemble), ensemble.scale, states, actions, noise)
    least = least_noise * jnp.pad(ensemble.scale.observation_std, (1, 0))
    deviation = jnp.maximum(jnp.exp(0.5 * prediction.log_variance), least[None, None])
    drawn = prediction.mean + deviation * jax.random.normal(output_key, deviation.shape)
    drawn = drawn.reshape(-1, drawn.shape[-1])
    return Outcome(drawn[:, 0], observation + drawn[:, 1:], prediction.end_logit.reshape(-1))


def pick_elites(ensemble: Ensemble) -> Parameters:
    """The parameters of the elite members alone."""
    parameters = ensemble.parameters
    elites = jax.tree.map(lambda x: x[ensemble.elites], parameters.members)
    return Parameters(elites, parameters.lower, parameters.upper)


def resize(trained: Trained, count: int) -> Trained:
    """A tree whose ensembles have so many members: the first ones, or all and copies of the last."""

    def one(node: Any) -> Any:
        if not isinstance(node, Parameters) or node.count == count:
            return node
        more = count - node.count
        return replace(
            node, members=jax.tree.map(lambda x: jnp.concatenate([x, *[x[-1:]] * more])[:count], node.members)
        )

    return jax.tree.map(one, trained, is_leaf=lambda node: isinstance(node, Parameters))


def choose(improved: Bool[Array, " M"], new: Parameters, old: Parameters) -> Parameters:
    """Member by member, the new parameters where improved; the shared bounds are always the new ones."""
    members = jax.tree.map(
        lambda a, b: jnp.where(improved.reshape(-1, *[1] * (a.ndim - 1)), a, b), new.members, old.members
    )
    return Parameters(members, new.lower, new.upper)
