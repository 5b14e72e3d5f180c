"""IADD's member: an intervention that sees the action, then a natural evolution that does not."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from iadd_tr.dynamics.member import Prediction, Scale, activation, beside, layer_weights, linear_path, split_output
from iadd_tr.nets import MLP, TRUNCATED_NORMAL, Linear, mlp
from iadd_tr.settings import Form, Model
from iadd_tr.types import PRNGKey


class Stages(eqx.Module):
    """s, a -> (s_o, s_l) -> s', r (Eqs. 6 to 8), with s_o = s exactly at the reference action."""

    intervention: MLP
    evolution: MLP
    skip: Linear | None
    log_gain: Float[Array, " O"] | None
    reference: Float[Array, " A"]  # a_0; never trained, see `intervene`
    form: Form = eqx.field(static=True)
    from_intermediate: bool = eqx.field(static=True)
    gaussian: bool = eqx.field(static=True)
    anchor_latent: bool = eqx.field(static=True)
    standardise: bool = eqx.field(static=True)
    decay: tuple[float, ...] = eqx.field(static=True)

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
        if self.form == "smooth" or (self.anchor_latent and self.form != "affine"):
            still = self._first(scale, observation, self._reference(action))
        effect = output[..., :size] * scale.observation_std[None]
        match self.form:
            case "direct":
                moved = scale.observation_mean[None] + effect
            case "residual" | "affine":
                moved = observation + effect
            case "smooth":
                moved = observation + effect - still[..., :size] * scale.observation_std[None]
        if self.log_gain is not None:
            moved = observation + jnp.exp(self.log_gain)[None] * (moved - observation)
        observable = jnp.where(self.anchored(action)[..., None], observation, moved)
        latent = output[..., size:]
        if self.anchor_latent and self.form != "affine":
            latent = latent - still[..., size:]
        return observable, self._latent(latent, noise)

    def evolve(self, scale: Scale, observable: Float[Array, "B O"], latent: Float[Array, "B L"]) -> Prediction:
        """The action-free second stage of Eq. 8, with the reward head."""
        seen = scale.observation(observable) if self.standardise else observable
        inputs = jnp.concatenate([seen, latent], axis=-1)
        return split_output(scale, beside(self.evolution, self.skip, inputs))

    def latent_distribution(
        self, scale: Scale, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> tuple[Float[Array, "B L"], Float[Array, "B L"]]:
        """Mean and log-deviation of the Gaussian latent block given the context."""
        return split_latent(self._first(scale, observation, action)[..., observation.shape[-1] :])

    def anchored(self, action: Float[Array, "B A"]) -> Bool[Array, " B"]:
        """Which rows carry exactly the reference action."""
        return jnp.all(action == self._reference(action), axis=-1)

    def weights(self) -> list[Float[Array, "I J"]]:
        before, after = (factor**0.5 for factor in self.decay)
        first, second = layer_weights(self.intervention), layer_weights(self.evolution)
        return [before * weight for weight in first] + [after * weight for weight in second]

    def _reference(self, action: Float[Array, "B A"]) -> Float[Array, "B A"]:
        return jax.lax.stop_gradient(jnp.broadcast_to(self.reference, action.shape))

    def _first(
        self, scale: Scale, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> Float[Array, "B N"]:
        if self.form == "affine":
            return self._affine(scale, observation, action)
        inputs = jnp.concatenate([scale.observation(observation), scale.action(action)], axis=-1)
        return self.intervention(inputs)

    def _affine(
        self, scale: Scale, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> Float[Array, "B N"]:
        """A matrix that depends on the state, times the distance from the reference action, and a latent offset."""
        push = (action - self._reference(action)) / scale.action_std[None]
        output = self.intervention(scale.observation(observation))
        inner = (output.shape[-1] + observation.shape[-1]) // (action.shape[-1] + 1)
        matrix, offset = jnp.split(output, [inner * action.shape[-1]], axis=-1)
        effect = jnp.einsum("bia,ba->bi", matrix.reshape(-1, inner, action.shape[-1]), push)
        return effect if self.anchor_latent else effect + jnp.pad(offset, ((0, 0), (observation.shape[-1], 0)))

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
    """A member whose stages have as many hidden layers as `depths` says."""
    first, second = jax.random.split(key)
    before, after = model.depths
    latents = latent_width(model, observations)
    gaussian = model.latent == "gaussian"
    inner = observations + latents * (2 if gaussian else 1)
    inputs, outputs, outcome = observations + actions, inner, 2 * (observations + 1) + 1
    if model.form == "affine":
        inputs, outputs = observations, inner * actions + inner - observations
    return Stages(
        intervention=mlp(first, [inputs, *[model.width] * before, outputs], activation(model), TRUNCATED_NORMAL),
        evolution=mlp(
            second,
            [observations + latents, *[model.width] * after, outcome],
            activation(model),
            TRUNCATED_NORMAL,
        ),
        skip=linear_path(model, observations + latents, outcome),
        log_gain=jnp.zeros(observations) if model.learned_gain else None,
        reference=reference,
        form=model.form,
        from_intermediate=model.evolve_from == "intermediate",
        gaussian=gaussian,
        anchor_latent=model.anchor_latent,
        standardise=model.standardise,
        decay=model.stage_decay,
    )
