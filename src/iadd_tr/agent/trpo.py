"""Trust-region policy optimisation: a natural gradient by conjugate gradients, and a line search inside the bound."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from iadd_tr.agent.gaussian_policy import Policy, log_density

BACKTRACKS = 10


class Info(eqx.Module):
    """How one step went."""

    divergence: Float[Array, ""]
    gain: Float[Array, ""]  # of the surrogate
    accepted: Float[Array, ""]


def divergence(old: Policy, new: Policy, observation: Float[Array, "B O"]) -> Float[Array, ""]:
    """Mean Kullback-Leibler divergence of the new policy from the old one."""
    difference = new.actor(observation) - old.actor(observation)
    ratio = jnp.exp(2.0 * (old.log_std - new.log_std))
    spread = 0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio))
    return spread + jnp.mean(jnp.sum(0.5 * (difference * jnp.exp(-new.log_std)[None]) ** 2, axis=-1))


def surrogate(
    policy: Policy,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    acted: Float[Array, " B"],
    advantage: Float[Array, " B"],
    entropy_weight: float,
) -> Float[Array, ""]:
    """The importance-weighted advantage plus a little entropy."""
    ratio = jnp.exp(log_density(policy, observation, action) - acted)
    return jnp.mean(ratio * advantage) + entropy_weight * jnp.sum(policy.log_std)


def conjugate_gradient(
    product: Callable[[Float[Array, " P"]], Float[Array, " P"]], right: Float[Array, " P"], steps: int
) -> Float[Array, " P"]:
    """An approximate solution x of A x = b for a positive definite A given by its product."""

    def step(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        solution, residual, direction, square = carry
        along = product(direction)
        length = square / jnp.maximum(direction @ along, 1e-20)
        solution, residual = solution + length * direction, residual - length * along
        new = residual @ residual
        return solution, residual, residual + new / jnp.maximum(square, 1e-20) * direction, new

    start = (jnp.zeros_like(right), right, right, right @ right)
    return jax.lax.fori_loop(0, steps, step, start)[0]


def update(
    policy: Policy,
    observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
    acted: Float[Array, " B"],
    advantage: Float[Array, " B"],
    bound: float,
    steps: int,
    damping: float,
    entropy_weight: float,
) -> tuple[Policy, Info]:
    """The longest of the halved natural steps that stays inside the bound and improves the surrogate."""
    flat, restore = ravel_pytree(policy)

    def objective(parameters: Float[Array, " P"]) -> Float[Array, ""]:
        return surrogate(restore(parameters), observation, action, acted, advantage, entropy_weight)

    def distance(parameters: Float[Array, " P"]) -> Float[Array, ""]:
        return divergence(policy, restore(parameters), observation)

    def curvature(vector: Float[Array, " P"]) -> Float[Array, " P"]:
        return jax.jvp(jax.grad(distance), (flat,), (vector,))[1] + damping * vector

    before, gradient = jax.value_and_grad(objective)(flat)
    direction = conjugate_gradient(curvature, gradient, steps)
    length = jnp.sqrt(2.0 * bound / jnp.maximum(direction @ curvature(direction), 1e-20))

    def worse(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        number, _, gain, far = carry
        return (number < BACKTRACKS) & ~((gain > 0.0) & (far <= bound))

    def halve(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        number, *_ = carry
        candidate = flat + length * 0.5 ** number.astype(jnp.float32) * direction
        return number + 1, candidate, objective(candidate) - before, distance(candidate)

    start = (jnp.zeros((), int), flat, jnp.array(-1.0), jnp.zeros(()))
    _, candidate, gain, far = jax.lax.while_loop(worse, halve, start)
    good = (gain > 0.0) & (far <= bound)
    info = Info(jnp.where(good, far, 0.0), jnp.where(good, gain, 0.0), good.astype(jnp.float32))
    return restore(jnp.where(good, candidate, flat)), info
