"""The policy-gradient diagnostic (Q4): does targeting turn the critic's policy gradient towards the truth?

Critics with and without targeted regularization are trained on the same rows of a frozen agent, by the agent's own
updates, from the same weights, with the same minibatches and noise. The gradient of a value V is the mean of
grad log pi(a | s) V over fixed pairs of held-out states and the policy's actions, so it is linear in V: instead of
gradients the values are accumulated over all critic updates, and one gradient of their mean is taken at the end.
V is the smaller of the adjusted twins, which is what the actor ascends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iadd_tr.settings import Settings, override
from iadd_tr.study import paired
from iadd_tr.study.frozen import Frozen, Pairs, Sizes, cosine, score_gradients
from iadd_tr.study.paired import Variant
from iadd_tr.study.variants import GRADIENT, MAIN, VARIANTS
from iadd_tr.tasks import presets

PAPER = {50: (0.728, 0.771), 300: (0.918, 0.928)}
"""Cosines without and with TR that the paper's text gives; its gains over all checkpoints are 0.009 to 0.044."""


@dataclass(frozen=True)
class Study:
    """An agent, where it is frozen, and how much is asked of the critics and of the simulator there."""

    checkpoints: tuple[int, ...] = (50, 100, 150, 200, 250, 300)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    task: str = "hopper"
    agent_seed: int = 1
    epoch_length: int = 1000
    warm_up: int = 5000
    hidden: int = 256
    rows: int = 50_000
    critic_epochs: int = 20
    states: int = 256
    trajectories: int = 32
    horizon: int = 500
    every_program: bool = True
    """Also the variants that need a program of their own, which may compile for longer than it runs."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compared."""
        return tuple(v for v in (*MAIN, *VARIANTS) if self.every_program or v.agent in {m.agent for m in MAIN})

    def settings(self, epochs: int, variant: Variant = GRADIENT) -> Settings:
        """Of the agent that is frozen after so many epochs, and of a variant's critics."""
        loop = {"epochs": epochs, "epoch_length": self.epoch_length, "warm_up": self.warm_up}
        own = {"seed": self.agent_seed, "hidden": self.hidden, "checkpoint_every": 10}
        return override(presets.settings(self.task, "sac"), **loop, **own, **dict(variant.agent))

    def sizes(self, epochs: int) -> Sizes:
        """The paper's rows, or all there are besides the held-out ones."""
        collected = self.warm_up + epochs * self.epoch_length
        return Sizes(min(self.rows, collected - self.states), self.states, self.hidden)


FULL = Study()
QUICK = Study(
    checkpoints=(4, 8),
    seeds=(1, 2, 3),
    epoch_length=500,
    warm_up=1000,
    hidden=64,
    rows=2500,
    critic_epochs=20,
    states=64,
    trajectories=8,
    horizon=100,
    every_program=False,
)


def diagnose(
    study: Study,
    epochs: int,
    frozen: Frozen,
    pairs: Pairs,
    variants: Sequence[Variant],
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Train critics with each of some variants that make one program, and without; compare their gradients."""
    settings = study.settings(epochs, variants[0])
    runs, choices = paired.batch(settings, variants, study.seeds)
    critics, corrections = paired.begin(settings.agent, frozen, pairs, runs, choices)
    for number in range(study.critic_epochs):
        critics, corrections = paired.epoch(
            settings.agent, frozen.rows, pairs, number, runs, choices, critics, corrections
        )
        jax.block_until_ready(corrections.value)
        advance()
    updates = study.critic_epochs * paired.minibatches(study.sizes(epochs).rows, settings.agent.batch)
    values = jnp.concatenate([critics.value[:, None], corrections.value], axis=1) / updates
    found = alignments(frozen, pairs, values.swapaxes(0, 1).reshape(-1, pairs.soft.size), study.states, len(runs.beta))
    sizes = {"value": np.asarray(critics.size) / updates, "correction": np.asarray(corrections.size) / updates}
    return table(study, epochs, frozen, variants, sizes, found)


def alignments(
    frozen: Frozen, pairs: Pairs, values: Float[Array, "R P"], states: int, seeds: int
) -> dict[str, Float[np.ndarray, " R"]]:
    """Cosines to the Monte-Carlo gradient, of soft returns but for one, under four readings of the values."""

    def centred(value: Float[Array, "V P"]) -> Float[Array, "V P"]:
        by_state = value.reshape(len(value), states, -1)
        return (by_state - by_state.mean(axis=2, keepdims=True)).reshape(value.shape)

    return {
        "cosine": towards(frozen, pairs, pairs.soft, values),
        "centred_cosine": towards(frozen, pairs, centred(pairs.soft[None])[0], centred(values)),
        "plain_cosine": towards(frozen, pairs, pairs.plain, values),
        "level_cosine": towards(frozen, pairs, pairs.soft, raised(values, seeds)),
    }


def towards(
    frozen: Frozen, pairs: Pairs, truth: Float[Array, " P"], values: Float[Array, "R P"]
) -> Float[np.ndarray, " R"]:
    """Cosines of the values' gradients to that of the truth."""
    found = score_gradients(frozen.actor, pairs, jnp.concatenate([truth[None], values]))
    return np.asarray(cosine(found[1:], found[0]), float)


def raised(values: Float[Array, "R P"], seeds: int) -> Float[Array, "R P"]:
    """The critics without targeting, which come first, moved at all pairs alike to the mean of each of the others.

    A control: scores have mean zero over a policy's actions but not over a sample of them, so that the level of a
    value, which says nothing about actions, moves its cosine to the gradient of returns that have a level too.
    """
    own = jnp.tile(values[:seeds], (len(values) // seeds, 1))
    return own + jnp.mean(values - own, axis=1, keepdims=True)


def table(
    study: Study,
    epochs: int,
    frozen: Frozen,
    variants: Sequence[Variant],
    sizes: dict[str, Float[np.ndarray, " S *V"]],
    found: dict[str, Float[np.ndarray, " R"]],
) -> list[dict[str, Any]]:
    """A row for every variant and seed beside the critic of the same seed without targeting."""
    density = np.asarray(frozen.rows.log_density)
    return [
        {
            "checkpoint": epochs,
            "variant": variant.name,
            "seed": seed,
            **compare(found, len(study.seeds) * (place + 1) + number, number),
            "value": float(sizes["value"][number]),
            "correction": float(sizes["correction"][number, place]),
            "floored": float(np.mean(density < np.log(variant.floor))),
        }
        for place, variant in enumerate(variants)
        for number, seed in enumerate(study.seeds)
    ]


def compare(found: dict[str, Float[np.ndarray, " R"]], with_targeting: int, without: int) -> dict[str, float]:
    """Each cosine with, without, and the gain."""
    columns = {}
    for name, cosines in found.items():
        columns[f"{name}_with"], columns[f"{name}_without"] = float(cosines[with_targeting]), float(cosines[without])
        columns[name.replace("cosine", "gain")] = float(cosines[with_targeting] - cosines[without])
    return columns
