"""Theorem 2: latent components are recovered, each up to a bijection, when contexts vary them enough, and else not."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from scipy import optimize, stats

from iadd_tr import adam
from iadd_tr.dynamics import stages
from iadd_tr.dynamics.member import Scale
from iadd_tr.dynamics.stages import Stages
from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp
from iadd_tr.settings import Model
from iadd_tr.types import PRNGKey

Variation = Literal["full", "shared", "none"]
"""Every component has its own mean and deviation in every context; all share one deviation; all contexts are alike."""

WIDTH = 4  # latent components, and as many observed numbers
OBSERVATIONS, ACTIONS = 2, 2  # a context is a state and an action that lead to the same observable


@dataclass(frozen=True)
class Latents:
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    contexts: int = 40
    rows: int = 20_000
    steps: int = 3000
    batch: int = 512
    couplings: int = 6
    hidden: int = 32


FULL = Latents()
QUICK = Latents(seeds=(1, 2), rows=4000, steps=700, batch=256)


class World(eqx.Module):
    """Rows of the truth on one fibre of the observable: contexts, latents, and what is seen of them."""

    observation: Float[Array, "N O"]
    action: Float[Array, "N A"]
    latent: Float[Array, "N L"]
    seen: Float[Array, "N L"]


class Flow(eqx.Module):
    """An invertible natural evolution (A1), read from what is seen to the latents."""

    couplings: tuple[MLP, ...]

    def __call__(self, seen: Float[Array, "B L"]) -> tuple[Float[Array, "B L"], Float[Array, " B"]]:
        """Latents, and the logarithm of the volume's change."""
        half, value, volume = seen.shape[1] // 2, seen, jnp.zeros(seen.shape[0])
        for net in self.couplings:
            fixed, moved = value[:, :half], value[:, half:]
            log_scale, shift = jnp.split(net(fixed), 2, axis=-1)
            log_scale = 2.0 * jnp.tanh(0.5 * log_scale)
            value = jnp.concatenate([moved * jnp.exp(log_scale) + shift, fixed], axis=-1)
            volume = volume + jnp.sum(log_scale, axis=-1)
        return value, volume


class Learned(eqx.Module):
    """The product's intervention stage gives the latents' conditional density; the flow stands for the evolution."""

    intervention: Stages
    flow: Flow


def run(scale: Latents) -> list[dict[str, Any]]:
    """The mean correlation coefficient of every seed under every kind of variation."""
    rows = []
    for variation in get_args(Variation):
        one = jax.vmap(lambda seed, variation=variation: _one(jax.random.key(seed), scale, variation))
        true, learned = jax.device_get(jax.jit(one)(jnp.array(scale.seeds)))
        for seed, first, second in zip(scale.seeds, true, learned, strict=True):
            rows.append({"variation": variation, "seed": seed, "correlation": mean_correlation(first, second)})
    return rows


def _one(key: PRNGKey, scale: Latents, variation: Variation) -> tuple[Float[Array, "N L"], Float[Array, "N L"]]:
    world_key, fit_key = jax.random.split(key)
    world = draw(world_key, scale, variation)
    learned = fit(fit_key, world, scale)
    return world.latent, learned.flow(world.seen)[0]


def draw(key: PRNGKey, scale: Latents, variation: Variation) -> World:
    """Latents that are Gaussian and independent given the context, mixed by two bent rotations."""
    context_key, choice_key, moment_key, noise_key, mix_key = jax.random.split(key, 5)
    contexts = jax.random.normal(context_key, (scale.contexts, OBSERVATIONS + ACTIONS))
    mean, log_std = moments(moment_key, scale.contexts, variation)
    chosen = jax.random.randint(choice_key, (scale.rows,), 0, scale.contexts)
    latent = mean[chosen] + jnp.exp(log_std[chosen]) * jax.random.normal(noise_key, (scale.rows, WIDTH))
    context = contexts[chosen]
    return World(context[:, :OBSERVATIONS], context[:, OBSERVATIONS:], latent, mixture(mix_key, latent))


def moments(key: PRNGKey, contexts: int, variation: Variation) -> tuple[Float[Array, "K L"], Float[Array, "K L"]]:
    """Mean and log-deviation of every component in every context."""
    mean_key, std_key = jax.random.split(key)
    log_std = 0.6 * jax.random.normal(std_key, (contexts, WIDTH))
    match variation:
        case "full":
            return 0.7 * jax.random.normal(mean_key, (contexts, WIDTH)), log_std
        case "shared":
            return jnp.zeros((contexts, WIDTH)), jnp.broadcast_to(log_std[:, :1], (contexts, WIDTH))
        case "none":
            return jnp.zeros((contexts, WIDTH)), jnp.zeros((contexts, WIDTH))


def mixture(key: PRNGKey, latent: Float[Array, "N L"]) -> Float[Array, "N L"]:
    """A smooth bijection that mixes all components."""
    first, second = jnp.linalg.qr(jax.random.normal(key, (2, WIDTH, WIDTH)))[0]
    rotated = latent @ first
    return (rotated + 0.4 * jnp.sin(rotated)) @ second


def fit(key: PRNGKey, world: World, scale: Latents) -> Learned:
    """Maximum likelihood of what is seen given its context."""
    init_key, order_key = jax.random.split(key)
    learned = init(init_key, scale)

    def step(i: Array, carry: tuple[Learned, optax.OptState]) -> tuple[Learned, optax.OptState]:
        chosen = jax.random.randint(jax.random.fold_in(order_key, i), (scale.batch,), 0, scale.rows)
        batch = jax.tree.map(lambda x: x[chosen], world)
        rate = 3e-3 * (1.0 - i / scale.steps)
        return adam.descend(*carry, jax.grad(surprise)(carry[0], batch), rate)

    return jax.lax.fori_loop(0, scale.steps, step, (learned, adam.init(learned)))[0]


def init(key: PRNGKey, scale: Latents) -> Learned:
    """Fresh networks; the flow starts near the identity."""
    stage_key, flow_key = jax.random.split(key)
    model = Model(width=2 * scale.hidden, depths=(2, 1), latent="gaussian", latent_width=WIDTH)
    sizes = [WIDTH // 2, scale.hidden, scale.hidden, WIDTH]
    nets = [mlp(k, sizes, jax.nn.swish, GLOROT_UNIFORM) for k in jax.random.split(flow_key, scale.couplings)]
    nets = [eqx.tree_at(lambda n: n.layers[-1].weight, net, 0.1 * net.layers[-1].weight) for net in nets]
    return Learned(stages.init(stage_key, model, OBSERVATIONS, ACTIONS, jnp.zeros(ACTIONS)), Flow(tuple(nets)))


def surprise(learned: Learned, world: World) -> Float[Array, ""]:
    """The negative log-likelihood: a factorised Gaussian of the context (Eq. 7), pulled back through the flow."""
    unit = Scale(
        jnp.zeros(OBSERVATIONS),
        jnp.ones(OBSERVATIONS),
        jnp.zeros(ACTIONS),
        jnp.ones(ACTIONS),
        jnp.ones(OBSERVATIONS + 1),
    )
    mean, log_std = learned.intervention.latent_distribution(unit, world.observation, world.action)
    latent, volume = learned.flow(world.seen)
    normal = 0.5 * ((latent - mean) * jnp.exp(-log_std)) ** 2 + log_std
    return jnp.mean(jnp.sum(normal, axis=-1) - volume)


def mean_correlation(true: np.ndarray, learned: np.ndarray) -> float:
    """The mean absolute rank correlation of components after the best matching; ranks forgive any bijection."""
    size = true.shape[1]
    table = np.abs(np.asarray(stats.spearmanr(true, learned)[0])[:size, size:])
    return float(table[optimize.linear_sum_assignment(-table)].mean())
