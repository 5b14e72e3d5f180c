"""Members under comparison by name: what each changes in the model, which rows it sees, and its width at equal size."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from iadd_tr.dynamics import monolith, stages
from iadd_tr.settings import Algorithm, Model, unless_asked


@dataclass(frozen=True)
class Design:
    """A member, and the collected rows that it is fitted to."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the model's settings that differ from the algorithm's own."""
    algo: Algorithm = "iadd"
    """Whose member and fit it has: `mbpo` is monolithic."""
    zeros: bool = True
    """Whether it sees the zero-action rows at all."""

    @property
    def two_stage(self) -> bool:
        return self.algo == "iadd"


@dataclass(frozen=True)
class Study:
    """Which designs are compared, on what data."""

    tasks: tuple[str, ...] = ("hopper", "halfcheetah", "walker2d")
    forms: tuple[str, ...] = ("monolith", "direct", "residual", "smooth", "iadd")
    """Names of designs; two monoliths are always among them."""
    seeds: int = 5
    """Agents whose replay is learned from, each with its own models."""
    sizes: tuple[int, ...] = (5000, 20_000, 60_000)
    """Environment steps after which a replay is learned from: early, middle, late."""
    warm_up: int = 1000
    """Uniform actions before the agents act."""
    epoch_length: int = 1000
    states: int = 2000
    """Held-out states that each policy visits, for test rows."""
    paths: int = 500
    """How many of them start a fixed action sequence."""
    members: int = 7
    elites: int = 5
    width: int = 200
    """Of the monolith; the other designs get the width that makes them as large."""
    fit_epochs: int = 500
    """A fit ends after this many epochs even where the holdout error still falls."""


QUICK = {
    "tasks": ("hopper",),
    "sizes": (600, 1200), "warm_up": 200, "epoch_length": 200, "states": 200, "paths": 50, "seeds": 2,
    "members": 3, "elites": 2, "width": 64, "fit_epochs": 5,
}  # fmt: skip


RAW = {"normalise_target": False}
TEXT = {**RAW, "zero_rows": "generated", "linear_path": False}
PAPER = {**TEXT, "depths": (2, 2), "evolve_from": "state"}

DESIGNS: dict[str, Design] = {
    "monolith": Design(RAW, algo="mbpo"),
    "monolith-normal": Design(algo="mbpo"),
    "monolith-no-zeros": Design(algo="mbpo", zeros=False),
    "monolith-members-14": Design({"members": 14, "elites": 10}, algo="mbpo"),
    "direct": Design({**PAPER, "form": "direct"}),
    "residual": Design({**PAPER, "form": "residual"}),
    "smooth": Design({**TEXT, "depths": (1, 3)}),
    "iadd": Design(),
    "raw-target": Design(RAW),
    "generated": Design({"zero_rows": "generated"}),
    "generated-30": Design({"zero_rows": "generated", "zero_fraction": 0.3}),
    "no-zeros": Design(zeros=False),
    "anchor-direct": Design({"form": "direct"}),
    "anchor-residual": Design({"form": "residual"}),
    "from-state": Design({"evolve_from": "state"}),
    "depths-1+3": Design({"depths": (1, 3)}),
    "depths-2+2": Design({"depths": (2, 2)}),
    "depths-2+3": Design({"depths": (2, 3)}),
    "depths-2+2-from-state": Design({"depths": (2, 2), "evolve_from": "state"}),
    "depths-3+1": Design({"depths": (3, 1)}),
    "latent-0": Design({"latent_width": 0}),
    "latent-4": Design({"latent_width": 4}),
    "latent-64": Design({"latent_width": 64}),
    "latent-gaussian": Design({"latent": "gaussian"}),
    "no-path": Design({"linear_path": False}),
    "members-14": Design({"members": 14, "elites": 10}),
}
"""MBPO's monolith and better equipped ones; three anchors as a text would have them, with generated zero rows, plain
targets and no linear path; the default, and what it becomes when one thing is changed."""

BASES = ("monolith", "monolith-normal")
"""What every design is compared with: MBPO's member, and the same with targets in units of their deviations."""


def quick(study: Study) -> Study:
    """The study made small wherever it says nothing else than the defaults."""
    return unless_asked(study, **QUICK)


def sized(design: Design, base: Model, observations: int, actions: int) -> Model:
    """The design's model at the size of the monolith of `base`."""
    model = replace(base, **design.changes)
    target = parameter_count(base, False, observations, actions)
    return replace(model, width=matched_width(model, design.two_stage, observations, actions, target))


def matched_width(model: Model, two_stage: bool, observations: int, actions: int, target: int) -> int:
    """The width at which a member has as close to `target` parameters as it can."""

    def count(width: int) -> int:
        return parameter_count(replace(model, width=width), two_stage, observations, actions)

    above = bisect_left(range(1, 8 * model.width), target, key=count) + 1
    return min((width for width in (above - 1, above) if width), key=lambda width: abs(count(width) - target))


def parameter_count(model: Model, two_stage: bool, observations: int, actions: int) -> int:
    """Trained numbers of one member."""
    sizes = (model, observations, actions)
    if not two_stage:
        return _leaves(jax.eval_shape(lambda key: monolith.init(key, *sizes), jax.random.key(0)))
    member = jax.eval_shape(lambda key: stages.init(key, *sizes, jnp.zeros(actions)), jax.random.key(0))
    return _leaves(member) - actions


def _leaves(member: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(member))
