"""A batch's runs: every combination of the scalars that may differ between them, as rows for people and as arrays."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from iadd_tr.settings import Settings
from iadd_tr.types import Run


@dataclass(frozen=True)
class Row:
    """One run's scalars, for people."""

    seed: int
    beta: float
    zero_ratio: float
    floor: float


def rows(settings: Settings) -> list[Row]:
    """Every combination of the listed scalars with every seed; seeds vary fastest."""
    seeds = range(settings.seed, settings.seed + settings.runs)
    return [
        Row(seed, beta, ratio, floor)
        for beta, ratio, floor, seed in itertools.product(settings.betas, settings.zero_ratios, settings.floors, seeds)
    ]


def traced(settings: Settings, table: Sequence[Row]) -> Run:
    """The runs' scalars as arrays over R."""

    def one(seed: jax.Array, beta: jax.Array, zero_ratio: jax.Array, floor: jax.Array) -> Run:
        return Run(
            key=jax.random.key(seed),
            beta=beta,
            zero_ratio=zero_ratio,
            log_floor=jnp.log(floor),
            agent_rate=jnp.array(settings.agent.agent_rate),
            targeted_rate=jnp.array(settings.agent.epsilon_rate),
            model_rate=jnp.array(settings.model.model_rate),
            target_entropy=jnp.array(settings.agent.target_entropy),
        )

    seeds = jnp.array([row.seed for row in table])
    scalars = jnp.array([[row.beta, row.zero_ratio, row.floor] for row in table], jnp.float32)
    return jax.vmap(one)(seeds, *scalars.T)
