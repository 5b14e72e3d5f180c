"""The controlled synthetic study (Q3, Appendix B): does a two-stage model recover the post-intervention state?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from iadd_tr import adam, replay
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Parameters
from iadd_tr.dynamics.member import Prediction, Scale
from iadd_tr.gaussian import gaussian_nll
from iadd_tr.settings import Form, Model
from iadd_tr.tasks import oscillator
from iadd_tr.types import PRNGKey

TABLE_3 = [  # ratio, mse_mid, effect_pearson, mse_next of the paper's single run
    (0.0, 4.0435, 0.3455, 2.3250e-4),
    (0.1, 0.3794, 0.7178, 2.1564e-4),
    (0.2, 0.2378, 0.6039, 2.3252e-4),
    (0.3, 0.03725, 0.8876, 2.4168e-4),
    (0.4, 0.01090, 0.9735, 2.4344e-4),
]

METRICS = ("mse_mid", "effect_pearson", "velocity_pearson", "mse_next", "zero_action_error")


@dataclass(frozen=True)
class Study:
    """What is trained: every form with every ratio and every seed."""

    ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4)
    """Shares of zero-action rows in the training set."""
    seeds: tuple[int, ...] = (1,)
    forms: tuple[Form, ...] = ("direct", "residual", "smooth")
    rows: int = 100_000
    epochs: int = 100
    held_out: int = 10_000
    noise: float = 0.02
    """Deviation of the noise on the training rows' next states."""
    zero_extent: tuple[float, ...] = oscillator.EXTENT
    """Half widths of the box that zero-action rows start in; ordinary rows always take the whole one."""
    members: int = 3
    width: int = 4
    depths: tuple[int, ...] = (2, 2)
    """Hidden layers of the intervention and of the evolution."""
    latent_width: int = 2
    """Width of the latent block beside the post-intervention state; 0 leaves the evolution that state alone."""
    batch: int = 256
    rate: float = 1e-3

    def model(self, form: Form) -> Model:
        """The member of Appendix B in one of its forms."""
        return Model(
            members=self.members,
            elites=self.members,
            width=self.width,
            depths=self.depths,
            form=form,
            evolve_from="state",
            latent_width=self.latent_width,
            linear_path=False,
        )


class Rows(eqx.Module):
    state: Float[Array, "N 2"]
    action: Float[Array, "N 1"]
    next_state: Float[Array, "N 2"]


class Fitted(eqx.Module):
    """One ensemble while it is being fitted."""

    parameters: Parameters
    moments: optax.OptState


class Data(eqx.Module):
    """The rows one ensemble sees: positions in its seed's pool, and the scales of inputs and targets."""

    index: Int[Array, " N"]
    scale: Scale
    target_mean: Float[Array, " 2"]
    target_std: Float[Array, " 2"]


def run(study: Study, on_epoch: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
    """Train all ensembles as one program, and measure each; rows of the results."""
    fitted, data = train(study, on_epoch)
    truth = held_out(study)
    for form in study.forms:
        measured = jax.jit(jax.vmap(jax.vmap(lambda f, d: measure(f, d, truth))))(fitted[form], data)
        yield from _table(study, form, jax.device_get(measured))


def train(study: Study, on_epoch: Callable[[], None] = lambda: None) -> tuple[dict[Form, Fitted], Data]:
    """The ensembles of every form, [S, R], and the data each was fitted to."""
    pools = jax.jit(jax.vmap(lambda seed: pool(seed_key(seed, 0), study)))(jnp.array(study.seeds))
    data = jax.jit(jax.vmap(jax.vmap(mix, (None, 0)), (0, None)))(pools, jnp.array(study.ratios))
    fitted: dict[Form, Fitted] = {form: begin(study, form) for form in study.forms}
    advance = jax.jit(lambda fitted, number: _advance(study, fitted, number, pools, data), donate_argnums=0)
    for number in range(study.epochs):
        fitted = jax.block_until_ready(advance(fitted, number))
        on_epoch()
    return fitted, data


def seed_key(seed: Int[Array, ""], stream: int) -> PRNGKey:
    """One random stream of a seed: 0 its pools, 1 its weights, 2 the order of its rows."""
    return jax.random.fold_in(jax.random.key(seed), stream)


def pool(key: PRNGKey, study: Study) -> Rows:
    """As many zero-action rows as ordinary ones behind them, all with noisy next states; ratios share them."""
    state_key, action_key, noise_key = jax.random.split(key, 3)
    zero = (jnp.arange(2 * study.rows) < study.rows)[:, None]
    state = oscillator.draw_states(state_key, 2 * study.rows)
    inner = jnp.array(study.zero_extent) / jnp.array(oscillator.EXTENT)
    state = jnp.where(zero, state * inner[None], state)
    action = jnp.where(zero, 0.0, oscillator.behave(action_key, state))
    clean = oscillator.evolve(oscillator.intervene(state, action))
    return Rows(state, action, clean + study.noise * jax.random.normal(noise_key, clean.shape))


def mix(rows: Rows, ratio: Float[Array, ""]) -> Data:
    """The first of the zero-action rows up to their ratio, and the first of the ordinary ones."""
    count = rows.action.size // 2
    position = jnp.arange(count)
    zeros = jnp.floor(ratio * count + 1e-3).astype(int)  # 0.3 * 100,000 is 30,000
    index = jnp.where(position < zeros, position, count + position - zeros)
    everyone = jnp.ones(count, bool)
    return Data(
        index,
        Scale(
            *replay.moments(rows.state[index], everyone),
            *replay.moments(rows.action[index], everyone),
            jnp.ones(3),
        ),
        *replay.moments(rows.next_state[index], everyone),
    )


def begin(study: Study, form: Form) -> Fitted:
    """Fresh ensembles [S, R]: the ratios of one seed start alike."""
    model = study.model(form)

    def one(seed: Int[Array, ""], ratio: Float[Array, ""]) -> Fitted:
        del ratio
        parameters = ensembles.init(seed_key(seed, 1), model, 2, 1, jnp.zeros(1)).parameters
        return Fitted(parameters, adam.init(parameters))

    grid = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    return jax.jit(grid)(jnp.array(study.seeds), jnp.array(study.ratios))


def _advance(study: Study, fitted: dict[Form, Fitted], number: Int[Array, ""], pools: Rows, data: Data) -> Any:
    """One epoch of every ensemble; the ratios and forms of a seed see their rows in the same order."""

    def one(fitted: Fitted, order: Int[Array, " N"], rows: Rows, data: Data) -> Fitted:
        return epoch(fitted, order, rows, data, study)

    def order(seed: Int[Array, ""]) -> Int[Array, " N"]:
        return jax.random.permutation(jax.random.fold_in(seed_key(seed, 2), number), study.rows)

    orders = jax.vmap(order)(jnp.array(study.seeds))
    grid = jax.vmap(jax.vmap(one, (0, None, None, 0)))
    return {form: grid(one_form, orders, pools, data) for form, one_form in fitted.items()}


def epoch(fitted: Fitted, order: Int[Array, " N"], rows: Rows, data: Data, study: Study) -> Fitted:
    """One pass over the training set in minibatches."""
    batch = min(study.batch, order.size)

    def step(i: Int[Array, ""], fitted: Fitted) -> Fitted:
        chosen = data.index[order[(i * batch + jnp.arange(batch)) % order.size]]
        gradient = jax.grad(loss)(fitted.parameters, jax.tree.map(lambda x: x[chosen], rows), data)
        return Fitted(*adam.descend(fitted.parameters, fitted.moments, gradient, jnp.array(study.rate)))

    return jax.lax.fori_loop(0, -(-order.size // batch), step, fitted)


def loss(parameters: Parameters, rows: Rows, data: Data) -> Float[Array, ""]:
    """The Gaussian likelihood of the standardised next state, summed over members; nothing else."""
    prediction = predict(parameters, data.scale, rows.state, rows.action)
    target = (rows.next_state - data.target_mean[None]) / data.target_std[None]
    target = jnp.broadcast_to(target, prediction.mean[..., 1:].shape)
    return target.shape[0] * gaussian_nll(prediction.mean[..., 1:], prediction.log_variance[..., 1:], target)


def predict(
    parameters: Parameters, scale: Scale, state: Float[Array, "N 2"], action: Float[Array, "N 1"]
) -> Prediction:
    """Every member on the same rows; the state columns of its output are the standardised next state."""
    state, action = (jnp.broadcast_to(x, (parameters.count, *x.shape)) for x in (state, action))
    return ensembles.predict_members(parameters, scale, state, action, jnp.zeros((*state.shape[:2], 0)))


def recover(
    parameters: Parameters, scale: Scale, state: Float[Array, "N 2"], action: Float[Array, "N 1"]
) -> Float[Array, "M N 2"]:
    """Each member's post-intervention state."""

    def one(member: Any) -> Float[Array, "N 2"]:
        return member.intervene(scale, state, action, jnp.zeros((state.shape[0], 0)))[0]

    return jax.vmap(one)(parameters.members)


def held_out(study: Study) -> Rows:
    """Clean rows of the behaviour policy, the same for every ensemble."""
    state_key, action_key = jax.random.split(jax.random.key(0))
    state = oscillator.draw_states(state_key, study.held_out)
    action = oscillator.behave(action_key, state)
    return Rows(state, action, oscillator.evolve(oscillator.intervene(state, action)))


def measure(fitted: Fitted, data: Data, truth: Rows) -> dict[str, Float[Array, ""]]:
    """The metrics of Appendix B in physical units."""
    recovered = recover(fitted.parameters, data.scale, truth.state, truth.action)
    intermediate = oscillator.intervene(truth.state, truth.action)
    effect, true_effect = recovered.mean(0) - truth.state, intermediate - truth.state
    mean = predict(fitted.parameters, data.scale, truth.state, truth.action).mean[..., 1:].mean(0)
    next_state = mean * data.target_std[None] + data.target_mean[None]
    still = recover(fitted.parameters, data.scale, truth.state, jnp.zeros_like(truth.action))
    return {
        "mse_mid": jnp.mean((recovered - intermediate[None]) ** 2),
        "effect_pearson": pearson(effect.ravel(), true_effect.ravel()),
        "velocity_pearson": pearson(effect[:, 1], true_effect[:, 1]),
        "mse_next": jnp.mean((next_state - truth.next_state) ** 2),
        "zero_action_error": jnp.max(jnp.abs(still - truth.state[None])),
    }


def pearson(first: Float[Array, " N"], second: Float[Array, " N"]) -> Float[Array, ""]:
    """The correlation of two samples."""
    first, second = first - first.mean(), second - second.mean()
    return jnp.sum(first * second) / jnp.sqrt(jnp.sum(first**2) * jnp.sum(second**2))


def _table(study: Study, form: Form, measured: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    for s, seed in enumerate(study.seeds):
        for r, ratio in enumerate(study.ratios):
            yield {"form": form, "seed": seed, "ratio": ratio, **{m: float(measured[m][s, r]) for m in METRICS}}
