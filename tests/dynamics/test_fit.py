from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr import devices, products, replay
from iadd_tr.dynamics import ensemble, fit
from iadd_tr.dynamics import split as splits
from iadd_tr.dynamics.examples import Extra, examples, minibatch
from iadd_tr.dynamics.folded import Folded, each, halve
from iadd_tr.dynamics.member import Scale, decay_rates
from iadd_tr.dynamics.split import Split
from iadd_tr.replay import Replay
from iadd_tr.settings import Model
from iadd_tr.shuffle import shuffle
from iadd_tr.types import Transition

OBS, ACT, CAPACITY, SIZE = 3, 2, 120, 100
MODEL = Model(members=3, elites=2, width=8, depths=(1, 1), monolith_depth=2, fit_batch=16, patience=2, fit_epochs=7)
DEEP = replace(MODEL, monolith_depth=4)
SCALE = Scale(jnp.full(OBS, 2.0), jnp.full(OBS, 3.0), jnp.full(ACT, 0.1), jnp.full(ACT, 0.6), jnp.ones(OBS + 1))
init = jax.jit(ensemble.init, static_argnums=(1, 2, 3))
train = jax.jit(fit.fit, static_argnames=("model", "learn_ending"))
split_rows, bootstrap = jax.jit(splits.split_rows), jax.jit(splits.bootstrap, static_argnums=2)
gradient_step = jax.jit(fit.gradient_step, static_argnames=("members", "noise_width", "learn_ending"))


def arrays(*columns) -> list:
    return [jnp.asarray(column, jnp.float32) for column in columns]


def filled(size: int = SIZE, capacity: int = CAPACITY, seed: int = 0) -> Replay:
    """Rows of a linear system without noise; the dead ones would spoil every number they entered."""
    random = np.random.default_rng(seed)
    s, a = random.normal(2.0, 3.0, (capacity, OBS)), random.uniform(-1, 1, (capacity, ACT))
    discount = random.random(capacity) < 0.7
    columns = [s, a, np.zeros(capacity), s[:, 0] - a[:, 1], 0.9 * s + 0.5 * a[:, :1], 1.0 * discount]
    for column in columns:
        column[size:] = 1e3
    return Replay(Transition(*arrays(*columns)), jnp.array(size), jnp.array(size % capacity), jnp.array(capacity))


def fresh(seed: int = 0, reference=None, model: Model = MODEL, sizes=(OBS, ACT)) -> ensemble.Ensemble:
    return init(jax.random.key(seed), model, *sizes, reference)


def noisy(tree):
    """The same parameters, none of them zero or shared."""
    random = np.random.default_rng(9)
    return jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.3, x.shape), jnp.float32), tree)


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def plain_outputs(member, scale, s, a):
    """A monolithic member's raw outputs in numpy: mean, log-variance, end logit."""
    member, scale = double((member, scale))
    s, a = (s - scale.observation_mean) / scale.observation_std, (a - scale.action_mean) / scale.action_std
    x = np.concatenate([s, a], axis=1)
    for layer in member.net.layers[:-1]:
        x = x @ layer.weight + layer.bias
        x = x / (1 + np.exp(-x))
    x = x @ member.net.layers[-1].weight + member.net.layers[-1].bias
    return x[:, : OBS + 1], x[:, OBS + 1 : -1], x[:, -1]


def plain_target(rows):
    return np.concatenate([rows.reward[:, None], rows.next_observation - rows.observation], axis=1)


def plain_error(member, scale, rows, split: Split) -> float:
    held = double(replay.take(rows, split.order[: int(split.holdout)]))
    mean, _, _ = plain_outputs(member, scale, held.observation, held.action)
    return np.mean((mean - plain_target(held) / double(scale.target_std)) ** 2)


def plain_loss(parameters, scale, rows, learn_ending: bool) -> float:
    lower, upper = double((parameters.lower, parameters.upper))
    total = 0.01 * (upper.sum() - lower.sum())
    for m in range(3):
        member, own = jax.tree.map(lambda x, m=m: x[m], (parameters.members, rows))
        own = double(own)
        mean, log_variance, logit = plain_outputs(member, scale, own.observation, own.action)
        log_variance = upper - np.logaddexp(0, upper - log_variance)
        log_variance = lower + np.logaddexp(0, log_variance - lower)
        total += np.mean((mean - plain_target(own)) ** 2 / np.exp(log_variance) + log_variance)
        rates = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4]
        total += sum(0.5 * r * np.sum(double(w.weight) ** 2) for r, w in zip(rates, member.net.layers, strict=True))
        if learn_ending:
            ended, probability = 1 - own.discount, 1 / (1 + np.exp(-logit))
            total -= np.mean(ended * np.log(probability) + (1 - ended) * np.log(1 - probability))
    return total


@pytest.mark.parametrize("learn_ending", [False, True])
def test_loss_is_what_plain_numpy_computes(learn_ending):
    parameters = noisy(fresh(model=DEEP).parameters)
    rows = jax.tree.map(lambda x: x[:96].reshape(3, 32, *x.shape[1:]), filled().rows)
    loss = jax.jit(fit.loss, static_argnums=5)
    ours = loss(parameters, None, SCALE, examples(rows), jnp.zeros((3, 32, 0)), learn_ending)
    assert float(ours) == pytest.approx(plain_loss(parameters, SCALE, rows, learn_ending), rel=1e-5)


@pytest.mark.parametrize("learn_ending", [False, True])
@pytest.mark.parametrize("reference", [None, jnp.zeros(ACT)], ids=["monolith", "two-stage"])
def test_members_in_turn_have_the_gradient_of_all_together_and_spare_ones_change_no_other(reference, learn_ending):
    parameters = noisy(fresh(model=DEEP, reference=reference).parameters)
    shown = examples(jax.tree.map(lambda x: x[:96].reshape(4, 24, *x.shape[1:]), filled().rows))
    noise = jnp.zeros((4, 24, 0))
    first = jax.tree.map(lambda x: x[:3], shown)
    expected = jax.jit(jax.grad(fit.loss), static_argnums=5)(parameters, None, SCALE, first, noise[:3], learn_ending)
    in_turn = jax.jit(fit.gradient_in_turn, static_argnums=(4, 5))
    alone = in_turn(parameters, SCALE, first, noise[:3], 3, learn_ending)
    broken = jax.tree.map(lambda x: x.at[3].set(jnp.nan), shown)  # a spare one may have lost its way
    spare = in_turn(ensemble.resize(parameters, 4), SCALE, broken, noise, 3, learn_ending)
    assert spare.count == 4
    for ours in (alone, ensemble.resize(spare, 3)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, expected)


@pytest.mark.parametrize("cpu", [True, False], ids=["CPU", "GPU"])
@pytest.mark.parametrize("reference", [None, jnp.zeros(ACT)], ids=["monolith", "two-stage"])
def test_steps_in_half_precision_are_those_in_single_precision_up_to_rounding(monkeypatch, reference, cpu):
    """Adam's first moments are sums of gradients; what is trained comes back in the shape it had."""
    ensemble = fresh(model=DEEP, reference=reference)
    shown = examples(jax.tree.map(lambda x: x[:96].reshape(3, 32, *x.shape[1:]), filled().rows))

    def stepped():
        trained = fit.prepare(noisy(ensemble.parameters), ensemble.optimiser)
        for step in range(3):
            key, rate = jax.random.key(step), jnp.array(1e-3)
            trained = gradient_step(key, trained, SCALE, shown, rate, 3, ensemble.noise_width, learn_ending=True)
        return trained, *fit.finish(trained)

    plain, *single = stepped()
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(devices, "on_cpu", lambda: cpu)
    monkeypatch.setattr(products, "WIDE", 1)
    trained, *half = stepped()
    assert plain.rounded is None
    assert jax.tree.structure(half) == jax.tree.structure(single)
    assert jax.tree.map(jnp.shape, half) == jax.tree.map(jnp.shape, single)
    assert int(half[1].count) == 3
    slopes, exact = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(o.mu)]) for _, o in (half, single))
    assert 1e-4 < np.linalg.norm(slopes - exact) / np.linalg.norm(exact) < 0.03
    for a, b in zip(*map(jax.tree.leaves, (half[0], single[0])), strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, atol=3e-3)
    expected = None if cpu else each(halve, Folded, trained.parameters)
    jax.tree.map(np.testing.assert_array_equal, trained.rounded, expected)


@pytest.mark.parametrize(("cut", "idle"), [(3, [0, 1, 2, 4]), (4, [0, 1, 2, 3])])
def test_weights_that_cannot_matter_only_decay_each_layer_at_its_own_rate(cut, idle):
    parameters = noisy(fresh(model=DEEP).parameters)
    layers = parameters.members.net.layers
    silent = jax.tree.map(jnp.zeros_like, layers[cut])
    parameters = eqx.tree_at(lambda p: p.members.net.layers[cut], parameters, silent)
    shown = examples(jax.tree.map(lambda x: x[:96].reshape(3, 32, *x.shape[1:]), filled().rows))
    gradient = jax.jit(jax.grad(fit.loss), static_argnums=5)
    gradient = gradient(parameters, None, SCALE, shown, jnp.zeros((3, 32, 0)), True)
    for i in idle:
        rate = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4][i]
        np.testing.assert_allclose(gradient.members.net.layers[i].weight, rate * layers[i].weight, rtol=1e-5)
    assert np.abs(gradient.members.net.layers[4].bias).max() > 0.1


def test_a_deeper_member_repeats_the_middle_rate_of_decay():
    assert decay_rates(5) == [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4]
    assert decay_rates(6) == [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 7.5e-5, 1e-4]
    assert decay_rates(2) == [2.5e-5, 1e-4]


def test_a_fit_standardises_on_the_training_rows_alone():
    buffer, key = filled(), jax.random.key(3)
    fitted, _ = train(key, fresh(), buffer, jnp.array(SIZE), jnp.array(0.0), MODEL, False)
    split = split_rows(jax.random.split(key, 3)[0], buffer, jnp.array(SIZE))
    training = double(replay.take(buffer.rows, split.order[20:SIZE]))
    np.testing.assert_allclose(fitted.scale.observation_mean, training.observation.mean(0), rtol=1e-5)
    np.testing.assert_allclose(fitted.scale.observation_std, training.observation.std(0), rtol=1e-5)
    np.testing.assert_allclose(fitted.scale.action_mean, training.action.mean(0), rtol=1e-4)
    np.testing.assert_allclose(fitted.scale.action_std, training.action.std(0), rtol=1e-5)


def test_a_fit_that_never_improves_ends_when_its_patience_does():
    before = fresh()
    after, info = train(jax.random.key(0), before, filled(), jnp.array(SIZE), jnp.array(0.0), MODEL, False)
    assert int(info.epochs) == 1 + MODEL.patience + 1
    jax.tree.map(np.testing.assert_array_equal, before.parameters, after.parameters)


def test_an_improvement_of_less_than_one_percent_is_none():
    _, info = train(jax.random.key(0), fresh(), filled(), jnp.array(SIZE), jnp.array(1e-5), MODEL, False)
    assert int(info.epochs) == 1 + MODEL.patience + 1


def test_a_fit_that_keeps_improving_ends_at_the_cap():
    _, info = train(jax.random.key(0), fresh(), filled(), jnp.array(SIZE), jnp.array(0.01), MODEL, False)
    assert int(info.epochs) == MODEL.fit_epochs


@pytest.mark.parametrize(("size", "in_units"), [(SIZE, False), (SIZE, True), (1500, True)])
def test_holdout_error_is_what_plain_numpy_computes(size, in_units):
    buffer = filled(size * 5, size * 5 + 20)
    split = split_rows(jax.random.key(1), buffer, buffer.size)
    scale, parameters = fit.fit_scale(buffer.rows, split, in_units), noisy(fresh().parameters)
    ours = jax.jit(fit.holdout_error, static_argnums=5)(parameters, scale, buffer.rows, split, buffer.size, 0)
    members = [jax.tree.map(lambda x, m=m: x[m], parameters.members) for m in range(3)]
    np.testing.assert_allclose(ours, [plain_error(m, scale, buffer.rows, split) for m in members], rtol=1e-4)


def test_targets_in_units_make_a_fit_blind_to_the_rewards_unit():
    """Rewards a thousand times as large give predictions a thousand times as large, and nothing else changes."""
    buffer = filled()
    large = eqx.tree_at(lambda b: b.rows.reward, buffer, 1000.0 * buffer.rows.reward)
    own, other = (
        train(jax.random.key(0), fresh(), b, jnp.array(SIZE), jnp.array(0.01), MODEL, False)[0] for b in (buffer, large)
    )
    rows = [jnp.stack([x[:10]] * 3) for x in (buffer.rows.observation, buffer.rows.action)]
    first, second = (
        ensemble.predict_members(e.parameters, e.scale, *rows, jnp.zeros((3, 10, 0))) for e in (own, other)
    )
    unit = np.array([1000.0, *[1.0] * OBS])
    np.testing.assert_allclose(second.mean, np.asarray(first.mean) * unit, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(second.log_variance, np.asarray(first.log_variance) + 2 * np.log(unit), atol=1e-2)
    training = split_rows(jax.random.split(jax.random.key(0), 3)[0], buffer, buffer.size).order[20:SIZE]
    np.testing.assert_allclose(own.scale.target_std[0], np.std(np.asarray(buffer.rows.reward)[training]), rtol=1e-4)


def plain_fit(key, start, buffer: Replay, rate: float):
    """The loop over epochs in Python: each member's best parameters, their errors and when they were found."""
    split_key, boot_key, epoch_key = jax.random.split(key, 3)
    split = split_rows(split_key, buffer, buffer.size)
    scale, boot = fit.fit_scale(buffer.rows, split, True), bootstrap(boot_key, split, 3)
    trained = fit.prepare(start.parameters, start.optimiser)
    best, errors, found, stale, epoch = [None] * 3, [np.inf] * 3, [0] * 3, 0, 0
    while stale <= MODEL.patience and epoch < MODEL.fit_epochs:
        order_key, batch_key = jax.random.split(jax.random.fold_in(epoch_key, epoch))
        order = shuffle(order_key, CAPACITY, split.train)
        for i in range(5):
            shown = examples(replay.take(buffer.rows, boot[:, order[(16 * i + np.arange(16)) % 80]]))
            step_key = jax.random.fold_in(batch_key, i)
            trained = gradient_step(
                step_key, trained, scale, shown, jnp.array(rate), 3, noise_width=0, learn_ending=False
            )
        epoch, stale = epoch + 1, stale + 1
        for m in range(3):
            member = jax.tree.map(lambda x, m=m: x[m], fit.finish(trained)[0].members)
            error = plain_error(member, scale, buffer.rows, split)
            if error < 0.99 * errors[m]:
                best[m], errors[m], found[m], stale = member, error, epoch, 0
    return best, errors, found, epoch


def test_a_fit_is_the_plain_loop_that_restores_each_members_own_best():
    key, start, buffer = jax.random.key(5), fresh(1), filled()
    best, errors, found, epochs = plain_fit(key, start, buffer, 0.1)
    assert len(set(found)) > 1
    assert min(found) < epochs
    fitted, info = train(key, start, buffer, buffer.size, jnp.array(0.1), MODEL, False)
    assert int(info.epochs) == epochs
    members = jax.tree.map(lambda *x: np.stack(x), *best)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), fitted.parameters.members, members
    )
    assert fitted.elites.tolist() == np.argsort(errors)[:2].tolist()
    assert float(info.holdout_error) == pytest.approx(np.sort(errors)[:2].mean(), rel=1e-3)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_elites_are_the_members_with_the_lowest_holdout_error(broken):
    start = fresh()
    start = eqx.tree_at(
        lambda e: e.parameters.members.net.layers[-1].bias, start, replace_fn=lambda b: b.at[broken].add(50.0)
    )
    fitted, _ = train(jax.random.key(0), start, filled(), jnp.array(SIZE), jnp.array(1e-3), MODEL, False)
    assert set(fitted.elites.tolist()) == {0, 1, 2} - {broken}


@pytest.mark.parametrize("pace", [20, 100, 300])
def test_the_pace_sets_the_number_of_steps_in_an_epoch_whatever_the_size(pace):
    fitted, info = train(jax.random.key(0), fresh(), filled(), jnp.array(pace), jnp.array(0.01), MODEL, False)
    steps = -(-(pace - pace // 5) // 16)
    assert int(fitted.optimiser.count) == int(info.epochs) * steps
    untrained, before = train(jax.random.key(0), fresh(), filled(), jnp.array(pace), jnp.array(0.0), MODEL, False)
    assert float(info.holdout_error) < float(before.holdout_error)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(fitted))
    jax.tree.map(np.testing.assert_array_equal, fitted.scale, untrained.scale)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_fit_to_no_or_few_rows_gives_numbers(size):
    fitted, info = train(jax.random.key(0), fresh(), filled(size), jnp.array(50), jnp.array(0.01), MODEL, False)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((fitted, info)))


def test_a_fitted_ensemble_needs_no_other_program():
    before = fresh()
    after, _ = train(jax.random.key(0), before, filled(), jnp.array(SIZE), jnp.array(0.01), MODEL, False)
    assert jax.tree.map(jax.typeof, after) == jax.tree.map(jax.typeof, before)


@pytest.mark.parametrize("rates", [[0.0, 0.01], [0.0, 0.01, 0.0, 0.003, 0.0]])
def test_a_run_in_a_batch_is_fitted_as_if_alone(rates):
    """Also where runs that stop early leave a larger batch."""
    count, pace = len(rates), jnp.array(SIZE)
    keys = jax.random.split(jax.random.key(0), count)
    models, buffers = [fresh(i) for i in range(count)], [filled(60 + 10 * i, seed=i + 1) for i in range(count)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *models), jax.tree.map(lambda *x: jnp.stack(x), *buffers)

    def one(key, model, buffer, rate):
        return fit.fit(key, model, buffer, pace, rate, MODEL, False)

    together = jax.jit(jax.vmap(one))(keys, *stacked, jnp.array(rates))
    assert len(set(together[1].epochs.tolist())) > 1
    for run in range(count):
        alone = train(keys[run], models[run], buffers[run], pace, jnp.array(rates[run]), MODEL, False)
        mine = jax.tree.map(lambda x, run=run: x[run], together)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), mine, alone)


def marked(count: int, mark: float) -> Transition:
    """Rows whose every column is a mark plus the row's number."""
    number = mark + jnp.arange(count, dtype=jnp.float32)
    wide = jnp.broadcast_to(number[:, None], (count, 2))
    return Transition(wide, wide, number, number, wide, number)


@pytest.mark.parametrize(("share", "generated"), [(0.0, 0), (0.1, 2), (0.25, 4), (1.0, 16)])
def test_generated_rows_take_their_share_of_every_minibatch(share, generated):
    index = jax.random.randint(jax.random.key(0), (3, 16), 0, 50)
    extra = Extra(marked(40, 1000.0), jnp.array(share))
    batch = minibatch(jax.random.key(1), marked(50, 0.0), index, extra)
    reward = np.asarray(batch.reward)
    assert ((reward >= 1000).sum(axis=1) == generated).all()
    np.testing.assert_array_equal(reward[reward < 1000], np.asarray(index)[reward < 1000])
    for column in (batch.log_density, batch.discount, batch.observation[..., 0], batch.action[..., 1]):
        np.testing.assert_array_equal(column, reward)


def test_generated_rows_are_drawn_anew_for_each_member_and_step():
    index, extra = jnp.zeros((3, 200), int), Extra(marked(40, 1000.0), jnp.array(1.0))
    first, second = (minibatch(jax.random.key(k), marked(50, 0.0), index, extra).reward for k in (0, 1))
    assert np.mean(first == second) < 0.1
    assert np.mean(first[0] == first[1]) < 0.2
    assert set(np.asarray(first).ravel()) == set(range(1000, 1040))
    without = minibatch(jax.random.key(0), marked(50, 0.0), index, None)
    assert not without.reward.any()


def test_a_two_stage_fit_follows_its_generated_rows_as_far_as_their_share_goes():
    buffer, model = filled(), replace(MODEL, latent="gaussian")
    live = replay.take(buffer.rows, jnp.arange(SIZE))
    misleading = eqx.tree_at(lambda rows: rows.reward, live, live.reward + 20.0)
    start = fresh(0, jnp.zeros(ACT), model)

    def error(share: float) -> float:
        extra = Extra(misleading, jnp.array(share))
        return train(jax.random.key(0), start, buffer, buffer.size, jnp.array(0.03), model, False, extra)[
            1
        ].holdout_error

    assert error(0.0) < error(0.3) < error(1.0)


TRANSITION = np.array([[0.9, 0.2], [-0.3, 0.7]])
PUSH = np.array([[0.5], [-1.0]])
NOISE = np.array([0.2, 0.1, 0.3])  # of reward and both coordinates
LEARNER = Model(members=3, elites=2, width=32, depths=(1, 1), monolith_depth=2, fit_batch=64, patience=1, fit_epochs=5)


def linear(seed: int, count: int):
    """Rows of s' = A s + B a + noise that end where s1 + s2 > 1, and the true means of [r, s' - s]."""
    random = np.random.default_rng(seed)
    s, a = random.normal(size=(count, 2)), random.uniform(-1, 1, (count, 1))
    mean = np.concatenate([s @ [[1.0], [-0.5]] + a, s @ TRANSITION.T + a @ PUSH.T - s], axis=1)
    drawn = mean + NOISE * random.normal(size=mean.shape)
    columns = (s, a, np.zeros(count), drawn[:, 0], s + drawn[:, 1:], 1.0 * (s.sum(axis=1) <= 1))
    return Transition(*arrays(*columns)), mean


REFERENCE = jnp.array([0.3])
both = pytest.mark.parametrize("kind", ["monolith", "stages"])


@cache
def learn(kind: str) -> ensemble.Ensemble:
    """An ensemble after many fits to one buffer: errors settle in the first, variances in the others."""
    rows, _ = linear(0, 2000)
    buffer = Replay(rows, jnp.array(2000), jnp.array(0), jnp.array(2000))
    model = fresh(0, REFERENCE if kind == "stages" else None, LEARNER, (2, 1))
    for key in jax.random.split(jax.random.key(1), 12):
        model, _ = train(key, model, buffer, buffer.size, jnp.array(3e-3), LEARNER, True)
    return model


@cache
def predict(kind: str):
    """The elites' predictions for fresh rows of the linear system, beside the rows and the truth."""
    model, (rows, truth) = learn(kind), linear(1, 500)
    s, a = (jnp.broadcast_to(x, (2, *x.shape)) for x in (rows.observation, rows.action))
    noise = jnp.zeros((2, 500, 0))
    prediction = jax.jit(ensemble.predict_members)(ensemble.pick_elites(model), model.scale, s, a, noise)
    return prediction, rows, truth


@both
def test_a_fit_recovers_the_mean_of_a_linear_system(kind):
    prediction, _, truth = predict(kind)
    error = np.sqrt(np.mean((prediction.mean.mean(0) - truth) ** 2, axis=0))
    assert np.all(error < 0.06), error


@both
def test_a_fit_recovers_the_noise_of_a_linear_system(kind):
    prediction, _, _ = predict(kind)
    deviation = np.exp(0.5 * np.asarray(prediction.log_variance)).mean(axis=(0, 1))
    np.testing.assert_allclose(deviation, NOISE, rtol=0.15)


@both
def test_the_end_head_separates_rows_that_end(kind):
    prediction, rows, _ = predict(kind)
    right = (prediction.end_logit.mean(0) > 0) == (rows.discount == 0)
    assert 0.1 < np.mean(rows.discount == 0) < 0.5
    assert np.mean(right) > 0.95


def test_a_fit_never_moves_the_reference_action():
    np.testing.assert_array_equal(learn("stages").parameters.members.reference, np.full((3, 1), REFERENCE))
