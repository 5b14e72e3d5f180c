"""The records every stage speaks in, and the letters of their axes.

R runs, M members, B batch, C capacity, H imagined steps, O observation, A action, L latent.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

PRNGKey = Key[Array, ""]
Ending = Callable[[Float[Array, "B O"]], Bool[Array, " B"]]


class Transition(eqx.Module):
    """A replay row (s, a, log e, r, s', d); d is 0 at a true end and 1 everywhere else, also at a time limit."""

    observation: Float[Array, "*B O"]
    action: Float[Array, "*B A"]
    log_density: Float[Array, "*B"]
    reward: Float[Array, "*B"]
    next_observation: Float[Array, "*B O"]
    discount: Float[Array, "*B"]


class Step(eqx.Module):
    """What one environment step gave, before any reset; made on the host, read on the device.

    All its numbers are one array: each array that is sent to a GPU takes the host as long as a small program.
    """

    numbers: Float[Any, "*R N"]

    @classmethod
    def of(
        cls,
        observation: Float[Any, "*R O"],
        reward: Float[Any, "*R"],
        next_observation: Float[Any, "*R O"],
        ended: Bool[Any, "*R"],
        last: Bool[Any, "*R"],
    ) -> "Step":
        single = np.stack([reward, ~ended, last], axis=-1)
        return cls(np.concatenate([observation, next_observation, single], axis=-1, dtype=np.float32))

    @property
    def observation(self) -> Float[Any, "*R O"]:
        return self.numbers[..., : self._width]

    @property
    def next_observation(self) -> Float[Any, "*R O"]:
        return self.numbers[..., self._width : 2 * self._width]

    @property
    def reward(self) -> Float[Any, "*R"]:
        return self.numbers[..., -3]

    @property
    def discount(self) -> Float[Any, "*R"]:
        """0 only at a true end."""
        return self.numbers[..., -2]

    @property
    def last(self) -> Bool[Any, "*R"]:
        """The episode is over, by an end or by its time limit."""
        return self.numbers[..., -1] > 0

    @property
    def _width(self) -> int:
        return (self.numbers.shape[-1] - 3) // 2


class Run(eqx.Module):
    """What may differ between the runs of one batch: a row of scalars, traced, so that a sweep is one program."""

    key: PRNGKey
    beta: Float[Array, ""]  # weight of targeted regularization, Eq. 20
    zero_ratio: Float[Array, ""]  # lambda_0, share of collected actions replaced by a_0
    log_floor: Float[Array, ""]  # densities below exp(log_floor) are raised to it before they divide
    agent_rate: Float[Array, ""]
    targeted_rate: Float[Array, ""]
    model_rate: Float[Array, ""]
    target_entropy: Float[Array, ""]

    def at(self, stage: int, step: Int[Array, ""] | int) -> PRNGKey:
        """The key of one stage at one step: streams are positions, so resuming needs no stored generator."""
        return jax.random.fold_in(jax.random.fold_in(self.key, stage), step)
