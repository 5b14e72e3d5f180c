from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr.dynamics import monolith, stages
from iadd_tr.dynamics.member import Scale
from iadd_tr.dynamics.stages import Stages
from iadd_tr.settings import Model

OBS, ACT, LATENT = 4, 2, 3
MODEL = Model(width=16, depths=(1, 2), latent_width=LATENT)
PLAIN = Scale(jnp.zeros(OBS), jnp.ones(OBS), jnp.zeros(ACT), jnp.ones(ACT), jnp.ones(OBS + 1))
FAR = Scale(
    jnp.array([50.0, -3.0, 0.0, 1e3]),
    jnp.array([1e-2, 7.0, 1e3, 1.0]),
    jnp.full(ACT, 0.3),
    jnp.full(ACT, 0.05),
    jnp.array([1e2, 3.0, 1e-2, 1.0, 0.1]),
)
REFERENCES = {"zero": jnp.zeros(ACT), "other": jnp.array([0.3, -0.7])}
FORMS = ("direct", "residual", "smooth")
LATENTS = ("deterministic", "gaussian")
intervene = jax.jit(Stages.intervene)
KINDS = [(form, latent, start, True) for form in FORMS for latent in LATENTS for start in ("intermediate", "state")]
KINDS += [("smooth", "deterministic", "intermediate", False), ("direct", "gaussian", "state", False)]


def make(
    form="smooth", latent="gaussian", start="intermediate", reference=REFERENCES["other"], seed=0, **more
) -> Stages:
    """A member with random biases and no zero weights, so that no term of it vanishes."""
    model = replace(MODEL, form=form, latent=latent, evolve_from=start, **more)
    member = stages.init(jax.random.key(seed), model, OBS, ACT, reference)
    random = np.random.default_rng(seed)

    def vary(x):
        return jnp.asarray(random.normal(size=x.shape), x.dtype) if x.ndim == 1 or not x.any() else x

    return eqx.tree_at(lambda m: m.reference, jax.tree.map(vary, member), reference)


def states(seed: int, count: int = 64):
    """States of many magnitudes, and latent noise."""
    key, size_key, noise_key = jax.random.split(jax.random.key(seed), 3)
    size = 10.0 ** jax.random.uniform(size_key, (count, OBS), minval=-4, maxval=4)
    return size * jax.random.normal(key, (count, OBS)), jax.random.normal(noise_key, (count, LATENT))


def actions(seed: int, count: int = 64):
    return jax.random.uniform(jax.random.key(seed), (count, ACT), minval=-1, maxval=1)


def repeated(row, count: int = 64):
    return jnp.broadcast_to(row, (count, row.size))


def plain_net(net, x):
    for layer in net.layers[:-1]:
        x = x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias)
        x = x / (1 + np.exp(-x))
    return x @ np.asarray(net.layers[-1].weight, np.float64) + np.asarray(net.layers[-1].bias)


def plain_member(member: Stages, scale: Scale, s, a, noise):
    """The member again, row by row, in numpy's double precision."""
    scale, s, a, noise, a0 = jax.tree.map(lambda x: np.asarray(x, np.float64), (scale, s, a, noise, member.reference))
    rows = []
    for s_i, a_i, noise_i in zip(s, a, noise, strict=True):
        z = (s_i - scale.observation_mean) / scale.observation_std
        first, still = (
            plain_net(member.intervention, np.concatenate([z, (b - scale.action_mean) / scale.action_std]))
            for b in (a_i, a0)
        )
        anchor = {
            "direct": scale.observation_mean,
            "residual": s_i,
            "smooth": s_i - still[:OBS] * scale.observation_std,
        }
        moved = anchor[member.form] + first[:OBS] * scale.observation_std
        observable = s_i if np.array_equal(a_i, a0) else moved
        latent = first[OBS:]
        if member.gaussian:
            latent = first[OBS : OBS + LATENT] + np.exp(np.clip(first[OBS + LATENT :], -5, 2)) * noise_i
        z = np.concatenate([(observable - scale.observation_mean) / scale.observation_std, latent])
        output = plain_net(member.evolution, z)
        if member.path is not None:
            output += z @ np.asarray(member.path.weight) + np.asarray(member.path.bias)
        output[: OBS + 1] *= scale.target_std
        if member.from_intermediate:
            output[1 : OBS + 1] += observable - s_i
        rows.append(output)
    return np.stack(rows)


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("scale", [PLAIN, FAR], ids=["plain", "far"])
@pytest.mark.parametrize("latent", LATENTS)
@pytest.mark.parametrize("form", FORMS)
def test_the_anchor_is_exact_at_the_reference_action(form, latent, scale, reference):
    member = make(form, latent, reference=reference)
    a0 = repeated(reference)

    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 2**31 - 1))
    def check(seed):
        s, noise = states(seed)
        np.testing.assert_array_equal(intervene(member, scale, s, a0, noise)[0], s)

    check()
    s, noise = states(0)
    np.testing.assert_array_equal(member.intervene(scale, s, a0, noise)[0], s)


@pytest.mark.parametrize("form", FORMS)
def test_the_anchor_is_exact_under_vmap_over_members_and_runs(form):
    members = [[make(form, seed=3 * run + m) for m in range(3)] for run in range(2)]
    runs = [jax.tree.map(lambda *x: jnp.stack(x), *run) for run in members]
    runs = jax.tree.map(lambda *x: jnp.stack(x), *runs)
    scales = jax.tree.map(lambda *x: jnp.stack(x), PLAIN, FAR)
    over_members = jax.vmap(Stages.intervene, in_axes=(0, None, None, None, None))
    s, noise = states(0)
    call = jax.jit(jax.vmap(over_members, in_axes=(0, 0, None, None, None)))
    observable, _ = call(runs, scales, s, repeated(REFERENCES["other"]), noise)
    np.testing.assert_array_equal(observable, np.broadcast_to(s, (2, 3, *s.shape)))


@pytest.mark.parametrize("scale", [PLAIN, FAR], ids=["plain", "far"])
@pytest.mark.parametrize("form", FORMS)
def test_away_from_the_reference_action_the_observable_block_moves(form, scale):
    s, noise = states(0)
    s = scale.observation_mean[None] + scale.observation_std[None] * jnp.clip(s, -1, 1)
    observable, _ = intervene(make(form), scale, s, actions(1), noise)
    moved = np.abs(observable - s) / np.asarray(scale.observation_std)
    assert np.all(np.any(moved > 1e-3, axis=1))


def test_one_equal_coordinate_is_not_the_reference_action():
    s, noise = states(0)
    half = repeated(jnp.array([0.3, 0.1]))
    member = make("direct")
    assert not member.anchored(half).any()
    assert np.all(np.any(member.intervene(PLAIN, s, half, noise)[0] != s, axis=1))


@pytest.mark.parametrize("form", FORMS)
def test_smooth_alone_is_continuous_around_the_reference_action(form):
    member = make(form)
    s = jax.random.normal(jax.random.key(0), (64, OBS))

    def moved(distance):
        near = repeated(member.reference + distance * jnp.array([0.6, 0.8]))
        return np.linalg.norm(intervene(member, PLAIN, s, near, jnp.zeros((64, LATENT)))[0] - s, axis=1)

    if form == "smooth":
        assert np.all(moved(1e-2) < 5e-2)
        assert np.all(moved(1e-4) < 5e-4)
    else:
        assert np.all(moved(1e-4) > 1e-2)
        assert np.median(moved(1e-4)) > 0.5


@pytest.mark.parametrize(("form", "latent", "start", "path"), KINDS)
def test_a_member_is_what_plain_numpy_computes(form, latent, start, path):
    member = make(form, latent, start, linear_path=path)
    s, noise = jax.random.normal(jax.random.key(5), (12, OBS)), states(0, 12)[1]
    unit = jnp.array([0.2, 1.0, 3.0, 0.5, 2.0])
    scale = Scale(jnp.arange(4.0), jnp.array([0.5, 1.0, 2.0, 3.0]), jnp.full(ACT, 0.1), jnp.full(ACT, 0.6), unit)
    a = actions(1, 12).at[3].set(member.reference)
    prediction = member(scale, s, a, noise)
    ours = np.concatenate([prediction.mean, prediction.log_variance, prediction.end_logit[:, None]], axis=1)
    np.testing.assert_allclose(ours, plain_member(member, scale, s, a, noise), rtol=1e-4, atol=1e-4)


class Held(Stages):
    """A member whose intermediate state does not listen to the action."""

    def intervene(self, scale, observation, action, noise):
        return super().intervene(scale, observation, jnp.full_like(action, 0.25), noise)


@pytest.mark.parametrize(("form", "latent", "start", "path"), KINDS)
def test_the_action_reaches_the_outcome_through_the_intermediate_alone(form, latent, start, path):
    member = make(form, latent, start, linear_path=path)
    held = Held(**vars(member))
    s, noise = jax.random.normal(jax.random.key(0), (8, OBS)), states(0, 8)[1]

    def derivative(member):
        return jax.jvp(lambda a: jax.tree.leaves(member(PLAIN, s, a, noise)), (actions(1, 8),), (actions(2, 8),))[1]

    assert all(np.all(np.abs(part) > 0) for part in derivative(member))
    assert not any(part.any() for part in derivative(held))
    first, second = (held(PLAIN, s, actions(seed, 8), noise) for seed in (1, 2))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_an_intervention_that_ignores_the_action_makes_the_outcome_ignore_it():
    member = make("residual")
    deaf = eqx.tree_at(lambda m: m.intervention.layers[0].weight, member, replace_fn=lambda w: w.at[OBS:].set(0.0))
    s, noise = states(0)
    first, second = (deaf(PLAIN, s, actions(seed), noise) for seed in (1, 2))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    heard, again = (member(PLAIN, s, actions(seed), noise).mean for seed in (1, 2))
    assert not np.allclose(heard, again)


def test_a_gaussian_latent_has_the_predicted_mean_and_deviation():
    member, count = make(), 40_000
    s, a = jax.random.normal(jax.random.key(1), (OBS,)), actions(1, 1)[0]
    noise = jax.random.normal(jax.random.key(2), (count, LATENT))
    _, latent = intervene(member, PLAIN, repeated(s, count), repeated(a, count), noise)
    mean, log_deviation = np.split(plain_net(member.intervention, np.concatenate([s, a]))[OBS:], 2)
    np.testing.assert_allclose(latent.std(0), np.exp(log_deviation), rtol=0.02)
    np.testing.assert_allclose((latent.mean(0) - mean) / np.exp(log_deviation), np.zeros(LATENT), atol=0.02)


@pytest.mark.parametrize(("raw", "deviation"), [(10.0, np.exp(2.0)), (-10.0, np.exp(-5.0))])
def test_the_latent_deviation_is_bounded(raw, deviation):
    member = make()
    member = eqx.tree_at(
        lambda m: m.intervention.layers[-1].bias, member, replace_fn=lambda b: b.at[OBS + LATENT :].set(raw)
    )
    s = jnp.zeros((1, OBS))
    low, high = (member.intervene(PLAIN, s, actions(1, 1), jnp.full((1, LATENT), x))[1] for x in (-1.0, 1.0))
    np.testing.assert_allclose((high - low) / 2, np.full((1, LATENT), deviation), rtol=1e-3)


def test_only_a_gaussian_latent_listens_to_the_noise():
    (s, noise), a = states(0), actions(1)
    for latent, listens in (("deterministic", False), ("gaussian", True)):
        member = make(latent=latent)
        first, second = (member(PLAIN, s, a, x).mean for x in (noise, 2 * noise))
        assert np.any(first != second) == listens


@pytest.mark.parametrize("form", FORMS)
def test_where_the_evolution_starts_shifts_the_mean_by_the_effect_and_nothing_else(form):
    (s, noise), a = states(0), actions(1)
    member = make(form, start="intermediate")
    observable, _ = member.intervene(PLAIN, s, a, noise)
    near, far = member(PLAIN, s, a, noise), make(form, start="state")(PLAIN, s, a, noise)
    np.testing.assert_array_equal(near.mean[:, 1:], far.mean[:, 1:] + (observable - s))
    np.testing.assert_array_equal(near.mean[:, 0], far.mean[:, 0])
    np.testing.assert_array_equal(near.log_variance, far.log_variance)
    np.testing.assert_array_equal(near.end_logit, far.end_logit)


def test_every_weight_has_a_gradient_but_the_reference_has_none():
    (s, noise), a, member = states(0), actions(1), make("smooth")

    def total(member):
        return sum(jnp.sum(x) for x in jax.tree.leaves(member(PLAIN, s, a, noise)))

    gradient = jax.jit(jax.grad(total))(member)
    assert not gradient.reference.any()
    assert all(jnp.any(weight != 0) for weight in gradient.weights())


@pytest.mark.parametrize("depths", [(1, 4), (2, 2), (3, 1)])
def test_members_have_the_hidden_layers_asked_for(depths):
    model = replace(MODEL, depths=depths, monolith_depth=3, latent="gaussian")
    member = stages.init(jax.random.key(0), model, OBS, ACT, jnp.zeros(ACT))
    whole = monolith.init(jax.random.key(0), model, OBS, ACT)
    assert (len(member.intervention.layers) - 1, len(member.evolution.layers) - 1) == depths
    assert len(whole.net.layers) - 1 == 3
    assert [w.shape[0] for w in member.weights()] == [OBS + ACT, *[16] * depths[0], OBS + LATENT, *[16] * depths[1]]
    assert [w.shape[0] for w in whole.weights()] == [OBS + ACT, 16, 16, 16]
    assert member.weights()[depths[0]].shape[1] == OBS + 2 * LATENT
    assert member.weights()[-1].shape[1] == whole.weights()[-1].shape[1] == 2 * (OBS + 1) + 1


def test_the_latent_is_as_wide_as_the_observation_unless_configured():
    assert stages.latent_width(Model(), 17) == 17
    assert stages.latent_width(MODEL, 17) == LATENT


def test_the_linear_path_is_silent_before_it_is_trained_and_can_be_left_out():
    (s, noise), a = states(0), actions(1)
    fresh, plain = (
        stages.init(jax.random.key(0), replace(MODEL, linear_path=path), OBS, ACT, jnp.zeros(ACT))
        for path in (True, False)
    )
    assert fresh.path is not None
    assert plain.path is None
    jax.tree.map(np.testing.assert_array_equal, fresh(PLAIN, s, a, noise), plain(PLAIN, s, a, noise))
