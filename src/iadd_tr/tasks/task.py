"""What the algorithms need to know of an environment."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

from iadd_tr.tasks import endings, presets, probes
from iadd_tr.types import Ending


class TaskError(ValueError):
    """A task that cannot be trained on, in a sentence that says what to do."""


@dataclass(frozen=True)
class Task:
    """An environment's factory, its sizes, its action bounds, the reference action a_0 and its ending, if known."""

    name: str
    make: Callable[..., gym.Env] = field(repr=False)
    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    anchor: tuple[float, ...]
    """a_0 in the agent's units, [-1, 1] per coordinate."""
    ending: Ending | None = field(repr=False)

    @property
    def actions(self) -> int:
        return len(self.low)


def resolve(name: str, zero_action: tuple[float, ...] | None = None) -> Task:
    """A preset's name, `gym:ID` for any Gymnasium environment, or `probe:NAME`."""
    make, environment = _factory(name)
    try:
        env = make()
    except Exception as error:
        raise TaskError(f"Task '{name}' cannot be made: {error}") from error
    low, high = _action_bounds(name, env.action_space)
    observations = _observation_size(name, env.observation_space)
    env.close()
    anchor = _anchor(name, low, high, zero_action)
    return Task(
        name, make, observations, tuple(map(float, low)), tuple(map(float, high)), anchor,
        endings.ENDINGS.get(environment),
    )  # fmt: skip


def _factory(name: str) -> tuple[Callable[..., gym.Env], str]:
    if name in presets.PRESETS:
        preset = presets.PRESETS[name]
        return _quietly(_gymnasium(preset.environment, dict(preset.arguments))), preset.environment
    kind, _, rest = name.partition(":")
    if kind == "gym" and rest:
        return _gymnasium(rest, {}), rest.rpartition(":")[2]
    if kind == "probe" and rest in probes.PROBES:
        return probes.PROBES[rest], name
    known = ", ".join(presets.PRESETS)
    raise TaskError(f"There is no task '{name}'; take one of {known}, or gym:ID for a Gymnasium environment.")


def _gymnasium(environment: str, arguments: dict[str, Any]) -> Callable[..., gym.Env]:
    def make(**more: Any) -> gym.Env:
        return gym.make(environment, **arguments, **more)

    return make


def _quietly(make: Callable[..., gym.Env]) -> Callable[..., gym.Env]:
    """Without MuJoCo's warnings of what is old in Gymnasium's own models, which go to the working folder as well."""

    simulator: Any = mujoco  # these of its names have no types

    def quiet(**more: Any) -> gym.Env:
        before = simulator.get_mju_user_warning()
        simulator.set_mju_user_warning(lambda message: None)
        try:
            return make(**more)
        finally:
            simulator.set_mju_user_warning(before)

    return quiet


def _action_bounds(name: str, space: gym.Space) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise TaskError(f"Task '{name}' has actions {space}; only a flat Box of continuous actions can be trained on.")
    if not (np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high))):
        raise TaskError(
            f"Task '{name}' has unbounded actions; wrap it in gymnasium.wrappers.RescaleAction or ClipAction, "
            "or give its action space finite bounds."
        )
    return space.low.astype(np.float64), space.high.astype(np.float64)


def _observation_size(name: str, space: gym.Space) -> int:
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise TaskError(
            f"Task '{name}' has observations {space}; wrap it in gymnasium.wrappers.FlattenObservation first."
        )
    return space.shape[0]


def _anchor(name: str, low: np.ndarray, high: np.ndarray, zero_action: tuple[float, ...] | None) -> tuple[float, ...]:
    """The reference action in the agent's units."""
    reference = np.zeros_like(low) if zero_action is None else np.asarray(zero_action, np.float64)
    if reference.shape != low.shape:
        raise TaskError(f"--zero-action has {reference.size} numbers; task '{name}' takes {low.size}.")
    if not np.all((low <= reference) & (reference <= high)):
        bounds = f"[{low.min():g}, {high.max():g}]"
        raise TaskError(
            f"The reference action {reference.tolist()} of task '{name}' lies outside its bounds {bounds}; "
            "choose one inside with --zero-action."
        )
    scaled = 2 * (reference - low) / (high - low) - 1
    return tuple(scaled.astype(np.float32).tolist())
