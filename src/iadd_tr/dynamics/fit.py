"""One fit is one program: epochs of bootstrapped minibatches with early stopping on a shared holdout."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import adam, devices, replay
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Ensemble, Parameters
from iadd_tr.dynamics.examples import Examples, Extra, examples, minibatch, target
from iadd_tr.dynamics.folded import Folded, each, fold, halve, runs_at_once, unfold
from iadd_tr.dynamics.losses import decay, loss, misfit, pull
from iadd_tr.dynamics.member import Member, Scale
from iadd_tr.dynamics.split import Split, bootstrap, holdout_count, split_rows
from iadd_tr.loops import in_chunks, while_going
from iadd_tr.nets import MLP, in_training, multiplying
from iadd_tr.replay import Replay
from iadd_tr.settings import Model
from iadd_tr.shuffle import shuffle
from iadd_tr.types import PRNGKey, Transition

HOLDOUT_CHUNK, CACHED_CHUNK = 1000, 200  # held-out rows at once; a CPU's cache holds what few of them lead to


class Info(eqx.Module):
    """How a fit went."""

    epochs: Int[Array, ""]
    holdout_error: Float[Array, ""]  # mean squared error of the elites' means


class Data(eqx.Module):
    """What an epoch reads and does not change."""

    key: PRNGKey
    rows: Transition
    split: Split
    boot: Int[Array, "M C"]
    scale: Scale
    rate: Float[Array, ""]
    steps: Int[Array, ""]
    pace: Int[Array, ""]
    extra: Extra | None


class Trained(eqx.Module):
    """What a gradient step changes; on a GPU layers may read a copy rounded to bfloat16."""

    parameters: Parameters
    optimiser: optax.OptState
    rounded: Parameters | None


class Progress(eqx.Module):
    """Where the loop over epochs stands."""

    parameters: Parameters
    optimiser: optax.OptState
    best: Parameters
    best_error: Float[Array, " M"]
    stale: Int[Array, ""]
    epoch: Int[Array, ""]


def fit(
    key: PRNGKey,
    ensemble: Ensemble,
    buffer: Replay,
    pace: Int[Array, ""],
    rate: Float[Array, ""],
    model: Model,
    learn_ending: bool,
    extra: Extra | None = None,
) -> tuple[Ensemble, Info]:
    """Fit to a buffer; `pace` rows make an epoch, the same for all runs so that they step together."""
    split_key, boot_key, epoch_key = jax.random.split(key, 3)
    split = split_rows(split_key, buffer, pace)
    scale = fit_scale(buffer.rows, split, model.normalise_target)
    count = model.members + devices.spare(model.members)
    boot = bootstrap(boot_key, split, count)
    training = pace - holdout_count(pace)
    steps = jnp.maximum((training + model.fit_batch - 1) // model.fit_batch, 1)
    data = Data(epoch_key, buffer.rows, split, boot, scale, rate, steps, pace, extra)
    one_epoch = partial(epoch, model=model, noise_width=ensemble.noise_width, learn_ending=learn_ending)
    start = devices.spread(devices.whole(begin(ensembles.resize(ensemble, count))), count)
    end = while_going(partial(going, model=model), one_epoch, start, data)
    best, optimiser = ensembles.resize(devices.whole((end.best, end.optimiser)), model.members)
    elites = jnp.argsort(end.best_error)[: model.elites]
    info = Info(end.epoch, jnp.mean(end.best_error[elites]))
    return Ensemble(best, optimiser, scale, elites, ensemble.noise_width), info


def begin(ensemble: Ensemble) -> Progress:
    """Before the first epoch: no error has been seen."""
    unknown, zero = jnp.full(ensemble.parameters.count, jnp.inf), jnp.zeros((), int)
    return Progress(ensemble.parameters, ensemble.optimiser, ensemble.parameters, unknown, zero, zero)


def going(progress: Progress, model: Model) -> Bool[Array, ""]:
    """Whether some member improved in the last epochs, and the cap is not reached."""
    return (progress.stale <= model.patience) & (progress.epoch < model.fit_epochs)


def epoch(progress: Progress, data: Data, model: Model, noise_width: int, learn_ending: bool) -> Progress:
    """All training rows once in minibatches; members that improve on the holdout by a hundredth are kept."""
    order_key, batch_key = jax.random.split(jax.random.fold_in(data.key, progress.epoch))
    order = shuffle(order_key, data.split.order.size, data.split.train)

    def draw(i: Int[Array, ""], fixed: tuple[Data, PRNGKey, Int[Array, " C"]]) -> tuple[PRNGKey, Examples]:
        data, batch_key, order = fixed
        position = order[(i * model.fit_batch + jnp.arange(model.fit_batch)) % data.split.train]
        row_key, noise_key = jax.random.split(jax.random.fold_in(batch_key, i))
        return noise_key, examples(minibatch(row_key, data.rows, data.boot[:, position], data.extra))

    def step(drawn: tuple[PRNGKey, Examples], trained: Trained, fixed: Any) -> Trained:
        (noise_key, shown), (data, *_) = drawn, fixed
        return gradient_step(noise_key, trained, data.scale, shown, data.rate, model.members, noise_width, learn_ending)

    start = prepare(progress.parameters, progress.optimiser)
    at_once = runs_at_once(start.rounded, model.fit_batch)
    parameters, optimiser = finish(in_chunks(data.steps, draw, step, start, (data, batch_key, order), at_once))
    error = holdout_error(parameters, data.scale, data.rows, data.split, data.pace, noise_width)
    error = jnp.where(jnp.arange(error.size) < model.members, error, jnp.inf)
    improved = error < 0.99 * progress.best_error
    return Progress(
        parameters,
        optimiser,
        ensembles.choose(improved, parameters, progress.best),
        jnp.where(improved, error, progress.best_error),
        jnp.where(jnp.any(improved), 0, progress.stale + 1),
        progress.epoch + 1,
    )


def prepare(parameters: Parameters, optimiser: optax.OptState) -> Trained:
    """What the steps of an epoch train: perceptrons that a CPU multiplies as it likes, and that are folded for a GPU
    which multiplies bfloat16."""
    if devices.multiplies_bfloat16() and not devices.on_cpu():
        parameters, optimiser = each(fold, MLP, (parameters, optimiser))
        return Trained(parameters, optimiser, each(halve, Folded, parameters))
    return Trained(*in_training((parameters, optimiser)), None)


def finish(trained: Trained) -> tuple[Parameters, optax.OptState]:
    """What they have trained, as it was before."""
    return multiplying(jnp.dot, each(unfold, Folded, (trained.parameters, trained.optimiser)))


def fit_scale(rows: Transition, split: Split, targets: bool) -> Scale:
    """Standardise inputs, and targets where asked, on the training rows."""
    position = jnp.arange(split.order.size)
    training = (position >= split.holdout) & (position < split.size)
    live = jnp.zeros(position.size, bool).at[split.order].set(training)
    outputs = target(rows)
    unit = replay.moments(outputs, live)[1] if targets else jnp.ones(outputs.shape[-1])
    return Scale(*replay.moments(rows.observation, live), *replay.moments(rows.action, live), unit)


@partial(jax.jit, static_argnames=("members", "noise_width", "learn_ending"))
def gradient_step(
    key: PRNGKey,
    trained: Trained,
    scale: Scale,
    shown: Examples,
    rate: Float[Array, ""],
    members: int,
    noise_width: int,
    learn_ending: bool,
) -> Trained:
    """One step of Adam on all members; what is shown to any beyond the first `members` teaches the others nothing."""
    noise = jax.random.normal(key, (*shown.discount.shape, noise_width))
    parameters, rounded = trained.parameters, trained.rounded
    if devices.on_cpu() and (devices.shares() == 1 or devices.NESTS):
        own, through = gradient_in_turn(parameters, scale, shown, noise, members, learn_ending), None
    else:
        own, through = jax.grad(loss, (0, 1))(parameters, rounded, scale, shown, noise, learn_ending)
    if rounded is None:
        return Trained(*adam.descend(parameters, trained.optimiser, own, rate), None)
    gradient = jax.tree.map(lambda a, b: a + b.astype(a.dtype), own, through)
    return Trained(*adam.descend_in_turn(parameters, trained.optimiser, gradient, rate, rounded))


def gradient_in_turn(
    parameters: Parameters,
    scale: Scale,
    shown: Examples,
    noise: Float[Array, "M B L"],
    members: int,
    learn_ending: bool,
) -> Parameters:
    """The gradient of the loss, one member after another, so that what a core computes for one stays in its cache."""

    def one(given: tuple[Member, Examples, Float[Array, "B L"]], whole: Any) -> tuple[Member, Any]:
        (scale, *bounds), (member, rows, own_noise) = whole, jax.tree.map(lambda x: x[None], given)

        def own_loss(own: Parameters) -> Float[Array, ""]:
            return misfit(own, scale, rows, own_noise, learn_ending) + decay(own)

        gradient = jax.grad(own_loss)(Parameters(member, *bounds))
        return jax.tree.map(lambda x: x[0], gradient.members), (gradient.lower, gradient.upper)

    def each(own: Any, whole: Any) -> tuple[Member, Any]:
        given, real = own
        gradients, pulls = jax.lax.map(lambda given: one(given, whole), given)
        return gradients, devices.total(jax.tree.map(lambda x: jnp.sum(x, axis=0, where=real[:, None]), pulls))

    bounds = parameters.lower, parameters.upper
    real = jnp.arange(parameters.count) < members
    gradients, pulls = devices.by_share(each)(((parameters.members, shown, noise), real), (scale, *bounds))
    return Parameters(gradients, *jax.tree.map(jnp.add, pulls, jax.grad(pull, (0, 1))(*bounds)))


def holdout_error(
    parameters: Parameters,
    scale: Scale,
    rows: Transition,
    split: Split,
    pace: Int[Array, ""],
    noise_width: int,
) -> Float[Array, " M"]:
    """Each member's mean squared error, in the outputs' unit, on the held-out rows, chunk by chunk."""
    members = parameters.count
    chunk = min(CACHED_CHUNK if devices.on_cpu() else HOLDOUT_CHUNK, split.order.size)
    chunks = (holdout_count(pace) + chunk - 1) // chunk

    def add(i: Int[Array, ""], total: Float[Array, " M"]) -> Float[Array, " M"]:
        position = i * chunk + jnp.arange(chunk)
        batch = replay.take(rows, split.order[jnp.minimum(position, split.order.size - 1)])
        batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *x.shape)), batch)
        noise = jnp.zeros((members, chunk, noise_width))
        prediction = ensembles.predict_members(parameters, scale, batch.observation, batch.action, noise)
        error = jnp.mean(((prediction.mean - target(batch)) / scale.target_std[None, None]) ** 2, axis=-1)
        return total + error @ (position < split.holdout).astype(error.dtype)

    total = jax.lax.fori_loop(0, chunks, add, jnp.zeros(members))
    return total / jnp.maximum(split.holdout, 1)
