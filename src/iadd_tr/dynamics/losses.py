"""What the members of an ensemble have to learn."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Parameters
from iadd_tr.dynamics.examples import Examples
from iadd_tr.dynamics.member import Prediction, Scale, decay_loss
from iadd_tr.gaussian import gaussian_nll

BOUND_WEIGHT = 0.01


def loss(
    parameters: Parameters,
    rounded: Parameters | None,
    scale: Scale,
    shown: Examples,
    noise: Float[Array, "M B L"],
    learn_ending: bool,
) -> Float[Array, ""]:
    """What members have to learn, their weight decay, and the pull of the bounds that they share."""
    read = parameters if rounded is None else rounded
    learned = misfit(read, scale, shown, noise, learn_ending)
    return learned + decay(parameters) + pull(parameters.lower, parameters.upper)


def misfit(
    parameters: Parameters, scale: Scale, shown: Examples, noise: Float[Array, "M B L"], learn_ending: bool
) -> Float[Array, ""]:
    """Sum over members of the Gaussian loss and, if asked, the end's."""
    prediction = ensembles.predict_members(parameters, scale, shown.observation, shown.action, noise)
    members = shown.discount.shape[0]
    likelihood = members * gaussian_nll(prediction.mean, prediction.log_variance, shown.target)
    return likelihood + (members * end_loss(prediction, shown) if learn_ending else 0.0)


def decay(parameters: Parameters) -> Float[Array, ""]:
    """The members' weight decay."""
    return jnp.sum(jax.vmap(decay_loss)(parameters.members))


def pull(lower: Float[Array, " D"], upper: Float[Array, " D"]) -> Float[Array, ""]:
    """What draws the bounds together."""
    return BOUND_WEIGHT * (jnp.sum(upper) - jnp.sum(lower))


def end_loss(prediction: Prediction, shown: Examples) -> Float[Array, ""]:
    """Cross-entropy of a true end, which is where the discount is 0."""
    return jnp.mean(optax.sigmoid_binary_cross_entropy(prediction.end_logit, 1.0 - shown.discount))
