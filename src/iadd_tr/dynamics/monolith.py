"""MBPO's member: one network from state and action to reward and state difference."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr.dynamics.member import Prediction, Scale, layer_weights, split_output
from iadd_tr.nets import MLP, TRUNCATED_NORMAL, mlp
from iadd_tr.settings import Model
from iadd_tr.types import PRNGKey


class Monolith(eqx.Module):
    net: MLP

    def __call__(
        self,
        scale: Scale,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
        noise: Float[Array, "B L"],
    ) -> Prediction:
        del noise
        inputs = jnp.concatenate([scale.observation(observation), scale.action(action)], axis=-1)
        return split_output(scale, self.net(inputs))

    def weights(self) -> list[Float[Array, "I J"]]:
        return layer_weights(self.net)


def init(key: PRNGKey, model: Model, observations: int, actions: int) -> Monolith:
    """A member with `monolith_depth` hidden layers."""
    sizes = [observations + actions, *[model.width] * model.monolith_depth, 2 * (observations + 1) + 1]
    return Monolith(mlp(key, sizes, jax.nn.swish, TRUNCATED_NORMAL))
