"""Settings as JSON and from the command line."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from iadd_tr.settings import GROUPS, Agent, Model, Settings
from iadd_tr.shell.errors import UserError, require

FREE = ("epochs", "evaluation_episodes", "checkpoint_every")  # may change when a run is resumed
TOLD_BY_LINES = ("task", "algo", "runs", "seed", "betas", "zero_ratios", "floors")  # every line of metrics has its own
FREE_OPTIONS = [f"--{name.replace('_', '-')}" for name in FREE]


def to_json(settings: Settings) -> dict[str, Any]:
    """Plain nested dictionaries and lists."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_json(data: dict[str, Any]) -> Settings:
    """The inverse of `to_json`."""
    fields = {name: GROUPS[name](**_tuples(value)) if name in GROUPS else value for name, value in data.items()}
    return Settings(**_tuples(fields))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def fingerprint(settings: Settings) -> str:
    """What must be the same for a checkpoint to be gone on from."""
    return _without(to_json(settings), FREE)


def variant(data: dict[str, Any]) -> str:
    """What must be the same in the settings of two folders, as JSON, for their runs to be seeds of one experiment."""
    return _without(data, (*FREE, *TOLD_BY_LINES))


def _without(data: dict[str, Any], left_out: tuple[str, ...]) -> str:
    kept = {
        group: {name: value for name, value in values.items() if name not in left_out}
        if isinstance(values, dict)
        else values
        for group, values in data.items()
        if group not in left_out
    }
    return json.dumps(kept, sort_keys=True)


def read(folder: Path) -> dict[str, Any]:
    """A run folder's `config.json`."""
    path = folder / "config.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"'{folder}' holds no run (no config.json); give the folder that train --out made.") from None
    except (json.JSONDecodeError, OSError) as error:
        raise UserError(f"'{path}' cannot be read ({error}); restore it or start a new run.") from None


def load(folder: Path) -> Settings:
    """The settings a run folder was made with."""
    try:
        return from_json(read(folder)["settings"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"'{folder / 'config.json'}' was written by another version of iadd-tr ({error}); start a new run."
        ) from None


COUNTS = {
    "loop": ("epochs", "epoch_length", "updates_per_step", "fit_every", "rollouts_per_step", "kept_epochs",
             "evaluation_episodes"),
    "model": ("width", "monolith_depth", "fit_batch", "fit_epochs"),
    "agent": ("hidden", "batch", "epsilon_hidden"),
    "ppo": ("environments", "rollout_steps", "passes", "minibatches", "ppo_hidden"),
}  # fmt: skip
"""Numbers that must be 1 or more."""
Rule = tuple[bool, str]


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, before anything is made."""
    given = {"runs": settings.runs, "checkpoint_every": settings.checkpoint_every}
    given |= {name: getattr(getattr(settings, group), name) for group, names in COUNTS.items() for name in names}
    counts = [(count >= 1, f"--{name.replace('_', '-')} must be 1 or more") for name, count in given.items()]
    require(counts)
    require(
        [
            *batch_rules(settings),
            *loop_rules(settings),
            *model_rules(settings.model),
            *agent_rules(settings.agent),
            *ppo_rules(settings),
        ]
    )


def batch_rules(settings: Settings) -> list[Rule]:
    """Of the scalars that the runs of a batch have."""
    ratios = settings.zero_ratios
    return [
        (0 <= settings.seed < 2**31 - settings.runs, "--seed must lie between 0 and 2147483647"),
        (bool(settings.betas) and min(settings.betas) >= 0, "--betas must be 0 or more"),
        (all(0 <= ratio < 1 for ratio in ratios) and bool(ratios), "--zero-ratios must lie in [0, 1)"),
        (bool(settings.floors) and min(settings.floors) > 0, "--floors must be positive"),
        (
            settings.two_stage or not any(ratios),
            f"--zero-ratios belongs to iadd and iadd-tr; {settings.algo} keeps its own action sampling",
        ),
    ]


def loop_rules(settings: Settings) -> list[Rule]:
    loop, on_policy = settings.loop, settings.algo in ("ppo", "slbo")
    whole_fits = loop.epoch_length % max(loop.fit_every, 1) == 0
    return [
        (on_policy or loop.warm_up >= 10, "--warm-up must be 10 or more, so that there is something to fit"),
        (on_policy or settings.algo == "sac" or whole_fits, "--fit-every must divide --epoch-length"),
        (loop.imagined_noise >= 0, "--imagined-noise must be 0 or more"),
        (0 <= loop.real_share <= 1, "--real-share must lie in [0, 1]"),
        (len(loop.horizon) == 4 and loop.horizon[2] < loop.horizon[3], "--horizon must be x,y,a,b with a < b"),
        (len(loop.horizon) == 4 and 1 <= loop.horizon[0] <= loop.horizon[1], "--horizon must have 1 <= x <= y"),
    ]


def model_rules(model: Model) -> list[Rule]:
    return [
        (1 <= model.elites <= model.members, "--elites must lie between 1 and --members"),
        (len(model.depths) == 2 and min(model.depths) >= 1, "--depths must be two positive numbers"),
        (model.latent_width is None or model.latent_width >= 0, "--latent-width must be 0 or more"),
        (0 <= model.zero_fraction < 1, "--zero-fraction must lie in [0, 1)"),
    ]


def agent_rules(agent: Agent) -> list[Rule]:
    return [
        (agent.epsilon_degree >= 0, "--epsilon-degree must be 0 or more"),
        (0 <= agent.epsilon_decay < 1, "--epsilon-decay must lie in [0, 1)"),
        (agent.epsilon_ridge > 0, "--epsilon-ridge must be positive"),
    ]


def ppo_rules(settings: Settings) -> list[Rule]:
    ppo, length = settings.ppo, settings.loop.epoch_length
    shared = [total % ppo.environments == 0 for total in (length, ppo.rollout_steps)]
    return [
        (all(shared), "--environments must divide --epoch-length and --rollout-steps"),
        (ppo.rollout_steps % ppo.minibatches == 0, "--minibatches must divide --rollout-steps"),
    ]
