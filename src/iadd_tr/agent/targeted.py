"""Targeted regularization: a density-scaled correction for each critic, fitted with the critic fixed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import GLOROT_UNIFORM, MLP, Linear, mlp, zero_last
from iadd_tr.types import PRNGKey


def init(key: PRNGKey, actions: int, hidden: int) -> MLP:
    """Two networks from action to correction, zero before they are trained."""

    def one(key: PRNGKey) -> MLP:
        return zero_last(mlp(key, [actions, hidden, hidden, 1], jax.nn.relu, GLOROT_UNIFORM))

    return jax.vmap(one)(jax.random.split(key))


def correction(
    epsilon: MLP,
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
) -> Float[Array, "2 B"]:
    """epsilon(a) / max(e, floor) for both twins."""
    inverse = jnp.exp(-jnp.maximum(log_density, log_floor))
    return jax.vmap(lambda net: net(action)[..., 0])(epsilon) * inverse[None]


def adjust(
    epsilon: MLP | None,
    values: Float[Array, "2 B"],
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
) -> Float[Array, "2 B"]:
    """The adjusted twins of Eq. 17; the twins themselves where there is no correction."""
    if epsilon is None:
        return values
    return values + correction(epsilon, action, log_density, log_floor)


def loss(
    epsilon: MLP,
    values: Float[Array, "2 B"],
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
    target: Float[Array, " B"],
) -> tuple[Float[Array, ""], Float[Array, "2 B"]]:
    """Mean squared adjusted TD error with the critic's values given, Eq. 19, and the correction."""
    shift = correction(epsilon, action, log_density, log_floor)
    return jnp.sum(jnp.mean((values + shift - target[None]) ** 2, axis=1)), shift


def features(action: Float[Array, "B A"], degree: int) -> Float[Array, "B F"]:
    """One, and the Legendre polynomials up to a degree of each coordinate of an action in [-1, 1]^A."""
    powers = [jnp.ones_like(action), action]
    for k in range(1, degree):
        powers.append(((2 * k + 1) * action * powers[k] - k * powers[k - 1]) / (k + 1))
    return jnp.concatenate([powers[0][:, :1], *powers[1 : degree + 1]], axis=-1)


def normal_equations(
    features: Float[Array, "B F"],
    residual: Float[Array, "*T B"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
    weight: Float[Array, " B"],
) -> tuple[Float[Array, "F F"], Float[Array, "*T F"]]:
    """Sums of w f f' / e^2 and w f r / e, whose solution minimises Eq. 19 over corrections f c; batches add up."""
    scaled = features * jnp.exp(-jnp.maximum(log_density, log_floor))[:, None]
    weighted = scaled * weight[:, None]
    return weighted.T @ scaled, residual @ weighted


def solve(matrix: Float[Array, "F F"], vector: Float[Array, "*T F"], ridge: float) -> Float[Array, "*T F"]:
    """Coefficients of the correction, drawn towards zero by the ridge."""
    factor = jax.scipy.linalg.cho_factor(matrix + ridge * jnp.eye(len(matrix)))
    return jax.scipy.linalg.cho_solve(factor, vector.T).T


def linear(coefficients: Float[Array, "2 F"]) -> MLP:
    """Twin corrections linear in features: perceptrons of one layer, which read `features` in place of the action."""
    return jax.vmap(lambda c: MLP((Linear(c[:, None], jnp.zeros(1)),), jax.nn.relu))(coefficients)
