"""Targeted regularization: a density-scaled correction for each critic, fitted with the critic fixed.

The correction is a network that descends the targeted loss, or linear in features of the action and solved for: then
the adjusted twins meet their own Bellman target, in which they stand too, on average over the rows times the features.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import GLOROT_UNIFORM, MLP, Linear, mlp, twin_values, zero_last
from iadd_tr.types import PRNGKey


def init(key: PRNGKey, actions: int, hidden: int) -> MLP:
    """Two networks from action to correction, zero before they are trained."""

    def one(key: PRNGKey) -> MLP:
        return zero_last(mlp(key, [actions, hidden, hidden, 1], jax.nn.relu, GLOROT_UNIFORM))

    return jax.vmap(one)(jax.random.split(key))


class Polynomial(eqx.Module):
    """A correction linear in `features` of the action."""

    coefficients: Float[Array, "*T F"]
    degree: int = eqx.field(static=True)

    def __call__(self, action: Float[Array, "B A"]) -> Float[Array, "B 1"]:
        return features(action, self.degree) @ self.coefficients[:, None]


Epsilon = MLP | Polynomial


def correction(
    epsilon: Epsilon,
    action: Float[Array, "B A"],
    log_density: Float[Array, " B"],
    log_floor: Float[Array, ""],
) -> Float[Array, "2 B"]:
    """epsilon(a) / max(e, floor) for both twins."""
    inverse = jnp.exp(-jnp.maximum(log_density, log_floor))
    return twin_values(epsilon, action) * inverse[None]


def adjust(
    epsilon: Epsilon | None,
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
    epsilon: Epsilon,
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
    scaled = over_density(features, log_density, log_floor)
    weighted = scaled * weight[:, None]
    return exact(weighted.T, scaled), exact(residual, weighted)


def over_density(
    features: Float[Array, "B F"], log_density: Float[Array, " B"], log_floor: Float[Array, ""]
) -> Float[Array, "B F"]:
    """f / max(e, floor)."""
    return features * jnp.exp(-jnp.maximum(log_density, log_floor))[:, None]


def exact(left: Float[Array, "*I K"], right: Float[Array, "K J"]) -> Float[Array, "*I J"]:
    """A product in full single precision, also where the device would round: small differences of it are solved for."""
    return jnp.dot(left, right, precision="highest")


def solve(
    matrix: Float[Array, "F F"], vector: Float[Array, "*T F"], ridge: float | Float[Array, ""]
) -> Float[Array, "*T F"]:
    """Coefficients of the correction, drawn towards zero by the ridge."""
    factor = jax.scipy.linalg.cho_factor(matrix + ridge * jnp.eye(len(matrix)))
    return jax.scipy.linalg.cho_solve(factor, vector.T).T


def linear(coefficients: Float[Array, "2 F"]) -> MLP:
    """Twin corrections linear in features: perceptrons of one layer, which read `features` in place of the action."""
    return jax.vmap(lambda c: MLP((Linear(c[:, None], jnp.zeros(1)),), jax.nn.relu))(coefficients)


class Solved(eqx.Module):
    """Twin polynomials, and the decayed means that they are solved from: of f f', of f r and of f g'.

    f are the features over the density in units of its floor, which lie in [-1, 1]; r is a twin's TD error; and g is
    what the coefficients of both twins add to the target: the discounted f of the next action, or 0 for the twin that
    is not the minimum there.
    """

    value: Polynomial
    square: Float[Array, "F F"]
    moment: Float[Array, "2 F"]
    bootstrap: Float[Array, "2 F F"]


def unsolved(actions: int, degree: int) -> Solved:
    """No correction, and no rows seen."""
    size = features(jnp.zeros((1, actions)), degree).shape[1]
    zeros = jnp.zeros((2, size))
    return Solved(Polynomial(zeros, degree), jnp.zeros((size, size)), zeros, jnp.zeros((2, size, size)))


class Seen(eqx.Module):
    """A batch's means of f f', of f r and of f g'."""

    square: Float[Array, "F F"]
    moment: Float[Array, "2 F"]
    bootstrap: Float[Array, "2 F F"]


def see(
    degree: int,
    now: tuple[Float[Array, "B A"], Float[Array, " B"]],
    after: tuple[Float[Array, "B A"], Float[Array, " B"]],
    residual: Float[Array, "2 B"],
    discount: Float[Array, "2 B"],
    log_floor: Float[Array, ""],
) -> Seen:
    """The means of a batch: of actions and their log-densities now and after, and what discounts each twin there."""
    zero = jnp.zeros(())
    here, there = (features(action, degree) for action, _ in (now, after))
    added = discount[:, None] * over_density(there, after[1] - log_floor, zero).T[None]
    share = jnp.full(residual.shape[1], 1 / residual.shape[1])
    sides = jnp.concatenate([residual[:, None], added], axis=1)
    square, means = normal_equations(here, sides, now[1] - log_floor, zero, share)
    return Seen(square, means[:, 0], means[:, 1:])


def observe(solved: Solved, seen: Seen, decay: float) -> Solved:
    """Let a batch into the means."""

    def mixed(old: Array, new: Array) -> Array:
        return decay * old + (1 - decay) * new

    return replace(
        solved,
        square=mixed(solved.square, seen.square),
        moment=mixed(solved.moment, seen.moment),
        bootstrap=mixed(solved.bootstrap, seen.bootstrap),
    )


def fixed_point(solved: Solved, ridge: float) -> Float[Array, "2 F"]:
    """Coefficients c of both twins with <f (f c_i - g c)> = <f r_i>, Eq. 18 with Eq. 19's first-order condition.

    The matrix need not be positive: it comes close to being singular where the replay's densities are far from the
    policy's. So the system is met in least squares, and a ridge bounds the coefficients, also at large densities.
    """
    size = len(solved.square)
    own = jnp.kron(jnp.eye(2), solved.square)
    target = jnp.tile(solved.bootstrap.reshape(2 * size, size).T, (2, 1))
    matrix = own - target
    normal = exact(matrix.T, matrix)
    weight = ridge**2 * (1.0 + jnp.trace(normal))
    return solve(normal, exact(solved.moment.reshape(-1), matrix), weight).reshape(2, size)


def resolve(solved: Solved, beta: Float[Array, ""], log_floor: Float[Array, ""], ridge: float) -> Solved:
    """The correction of what has been seen so far, times beta."""
    coefficients = beta * jnp.exp(log_floor) * fixed_point(solved, ridge)
    return replace(solved, value=Polynomial(coefficients, solved.value.degree))
