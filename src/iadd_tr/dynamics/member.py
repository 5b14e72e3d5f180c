"""What both kinds of member share: their inputs' scale, their output, their weight decay."""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.nets import Layered


class Scale(eqx.Module):
    """Mean and deviation of the training inputs, and the unit of the outputs, set at each fit."""

    observation_mean: Float[Array, " O"]
    observation_std: Float[Array, " O"]
    action_mean: Float[Array, " A"]
    action_std: Float[Array, " A"]
    target_std: Float[Array, " D"]

    def observation(self, value: Float[Array, "B O"]) -> Float[Array, "B O"]:
        return (value - self.observation_mean[None]) / self.observation_std[None]

    def action(self, value: Float[Array, "B A"]) -> Float[Array, "B A"]:
        return (value - self.action_mean[None]) / self.action_std[None]


class Prediction(eqx.Module):
    """Mean and log-variance of [r, s' - s], and the logit of a true end."""

    mean: Float[Array, "B D"]
    log_variance: Float[Array, "B D"]
    end_logit: Float[Array, " B"]


@runtime_checkable
class Member(Protocol):
    """One dynamics network: p(r, s' | s, a), written for a batch of rows."""

    def __call__(
        self,
        scale: Scale,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
        noise: Float[Array, "B L"],
    ) -> Prediction: ...

    def weights(self) -> list[Float[Array, "I J"]]:
        """Weight matrices from input to output."""
        ...


def split_output(scale: Scale, output: Float[Array, "B N"]) -> Prediction:
    """Read a network's 2 D + 1 outputs; log-variances stay in the outputs' unit, in which they are bounded."""
    size = output.shape[-1] // 2
    return Prediction(output[..., :size] * scale.target_std[None], output[..., size : 2 * size], output[..., -1])


def layer_weights(*nets: Layered) -> list[Float[Array, "I J"]]:
    """The weight matrices of networks that follow each other."""
    return [layer.weight for net in nets for layer in net.layers]


def decay_rates(count: int) -> list[float]:
    """Weight decay per layer: MBPO's five numbers, the middle one repeated for deeper members."""
    inner = [5e-5, *[7.5e-5] * max(count - 3, 0)][: max(count - 2, 0)]
    return [2.5e-5, *inner, 1e-4][:count]


def decay_loss(member: Member) -> Float[Array, ""]:
    """Half the squared weights, each layer at its own rate."""
    weights = member.weights()
    terms = [0.5 * rate * jnp.sum(weight**2) for rate, weight in zip(decay_rates(len(weights)), weights, strict=True)]
    return jnp.sum(jnp.stack(terms))
