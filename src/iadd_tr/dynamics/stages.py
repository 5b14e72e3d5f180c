"""IADD's member: an intervention that sees the action, then a natural evolution that does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from iadd_tr.dynamics.member import Prediction, Scale, layer_weights, split_output
from iadd_tr.nets import MLP, TRUNCATED_NORMAL, Linear, mlp
from iadd_tr.settings import Form, Model
from iadd_tr.types import PRNGKey


class Stages(eqx.Module):
    """s, a -> (s_o, s_l) -> s', r (Eqs. 6 to 8), with s_o = s exactly at the reference action."""

    intervention: MLP
    evolution: MLP
    path: Linear | None  # past the evolution's hidden layers; its weights do not decay
    reference: Float[Array, " A"]  # a_0; never trained, see `intervene`
    form: Form = eqx.field(static=True)
    from_intermediate: bool = eqx.field(static=True)
    gaussian: bool = eqx.field(static=True)

    def __call__(
        self,
        scale: Scale,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
        noise: Float[Array, "B L"],
    ) -> Prediction:
        """Both stages, Eq. 8; the mean is that of [r, s' - s] wherever the evolution starts."""
        observable, latent = self.intervene(scale, observation, action, noise)
        prediction = self.evolve(scale, observable, latent)
        if not self.from_intermediate:
            return prediction
        effect = jnp.pad(observable - observation, ((0, 0), (1, 0)))
        return eqx.tree_at(lambda p: p.mean, prediction, prediction.mean + effect)

    def intervene(
        self,
        scale: Scale,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
        noise: Float[Array, "B _"],
    ) -> tuple[Float[Array, "B O"], Float[Array, "B L"]]:
        """The post-intervention state of Eq. 6: observable block in the state's own units, and latent block."""
        size = observation.shape[-1]
        output = self._first(scale, observation, action)
        effect = output[..., :size] * scale.observation_std[None]
        match self.form:
            case "direct":
                moved = scale.observation_mean[None] + effect
            case "residual":
                moved = observation + effect
            case "smooth":
                still = self._first(scale, observation, self._reference(action))
                moved = observation + effect - still[..., :size] * scale.observation_std[None]
        observable = jnp.where(self.anchored(action)[..., None], observation, moved)
        return observable, self._latent(output[..., size:], noise)

    def evolve(self, scale: Scale, observable: Float[Array, "B O"], latent: Float[Array, "B L"]) -> Prediction:
        """The action-free second stage of Eq. 8, with the reward head."""
        inputs = jnp.concatenate([scale.observation(observable), latent], axis=-1)
        output = self.evolution(inputs)
        return split_output(scale, output if self.path is None else output + self.path(inputs))

    def latent_distribution(
        self, scale: Scale, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> tuple[Float[Array, "B L"], Float[Array, "B L"]]:
        """Mean and log-deviation of the Gaussian latent block given the context."""
        return split_latent(self._first(scale, observation, action)[..., observation.shape[-1] :])

    def anchored(self, action: Float[Array, "B A"]) -> Bool[Array, " B"]:
        """Which rows carry exactly the reference action."""
        return jnp.all(action == self._reference(action), axis=-1)

    def weights(self) -> list[Float[Array, "I J"]]:
        return layer_weights(self.intervention, self.evolution)

    def _reference(self, action: Float[Array, "B A"]) -> Float[Array, "B A"]:
        return jax.lax.stop_gradient(jnp.broadcast_to(self.reference, action.shape))

    def _first(
        self, scale: Scale, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> Float[Array, "B N"]:
        inputs = jnp.concatenate([scale.observation(observation), scale.action(action)], axis=-1)
        return self.intervention(inputs)

    def _latent(self, output: Float[Array, "B N"], noise: Float[Array, "B _"]) -> Float[Array, "B L"]:
        if not self.gaussian:
            return output
        mean, log_std = split_latent(output)
        return mean + jnp.exp(log_std) * noise


def split_latent(output: Float[Array, "B N"]) -> tuple[Float[Array, "B L"], Float[Array, "B L"]]:
    """Mean and log-deviation of a Gaussian latent, whose components are independent (Eq. 7)."""
    mean, log_std = jnp.split(output, 2, axis=-1)
    return mean, jnp.clip(log_std, -5.0, 2.0)


def latent_width(model: Model, observations: int) -> int:
    """The latent block is as wide as the observation unless configured."""
    return observations if model.latent_width is None else model.latent_width


def init(key: PRNGKey, model: Model, observations: int, actions: int, reference: Float[Array, " A"]) -> Stages:
    """A member whose stages have as many hidden layers as `depths` says, and whose linear path begins silent."""
    first, second = jax.random.split(key)
    before, after = ([model.width] * depth for depth in model.depths)
    latents = latent_width(model, observations)
    gaussian = model.latent == "gaussian"
    inner, outcome = observations + latents, 2 * (observations + 1) + 1
    intermediate = inner + latents if gaussian else inner
    return Stages(
        intervention=mlp(first, [observations + actions, *before, intermediate], jax.nn.swish, TRUNCATED_NORMAL),
        evolution=mlp(second, [inner, *after, outcome], jax.nn.swish, TRUNCATED_NORMAL),
        path=Linear(jnp.zeros((inner, outcome)), jnp.zeros(outcome)) if model.linear_path else None,
        reference=reference,
        form=model.form,
        from_intermediate=model.evolve_from == "intermediate",
        gaussian=gaussian,
    )
