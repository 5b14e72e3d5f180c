import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.dynamics import ensemble
from iadd_tr.dynamics.ensemble import Ensemble, Parameters
from iadd_tr.dynamics.monolith import Monolith
from iadd_tr.dynamics.stages import Stages
from iadd_tr.settings import Model

OBS, ACT, MEMBERS = 2, 1, 5
MODEL = Model(members=MEMBERS, elites=2, width=4, depths=(1, 1), monolith_depth=2, latent="gaussian")
init = jax.jit(ensemble.init, static_argnums=(1, 2, 3))
sample = jax.jit(ensemble.sample, static_argnames="least_noise")


def constant(means, log_variance: float, elites: list[int], lower: float = -60.0) -> Ensemble:
    """Members that answer the same to every row: `means` [M, D] with one log-variance."""
    model = init(jax.random.key(0), MODEL, OBS, ACT, None)
    means = jnp.asarray(means, jnp.float32)
    bias = jnp.concatenate([means, jnp.full_like(means, log_variance), means[:, :1]], axis=1)
    model = jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim == 3 else x, model)
    return eqx.tree_at(
        lambda e: (e.parameters.members.net.layers[-1].bias, e.parameters.lower, e.elites),
        model,
        (bias, jnp.full(OBS + 1, lower), jnp.array(elites)),
    )


@pytest.mark.parametrize("elites", [[3, 1], [0, 4], [2, 0, 1], [4]])
def test_every_row_is_computed_by_one_elite_in_equal_blocks(elites):
    means = 10.0 * np.arange(MEMBERS)[:, None] + np.arange(OBS + 1)
    s = jax.random.normal(jax.random.key(0), (12, OBS))
    outcome = sample(jax.random.key(1), constant(means, -200.0, elites), s, jnp.zeros((12, ACT)))
    chosen = np.repeat(elites, 12 // len(elites))
    np.testing.assert_allclose(outcome.reward, 10.0 * chosen, atol=1e-4)
    np.testing.assert_allclose(outcome.next_observation, s + means[chosen, 1:], atol=1e-4)
    np.testing.assert_allclose(outcome.end_logit, 10.0 * chosen, atol=1e-4)


def test_rows_keep_their_place():
    """Each row's outcome is its elite's prediction for that very row."""
    model = init(jax.random.key(0), MODEL, OBS, ACT, None)
    model = eqx.tree_at(
        lambda e: (e.parameters.lower, e.parameters.upper), model, (jnp.full(OBS + 1, -60.0), jnp.full(OBS + 1, -50.0))
    )
    s, a = jax.random.normal(jax.random.key(1), (12, OBS)), jax.random.normal(jax.random.key(2), (12, ACT))
    outcome = sample(jax.random.key(3), model, s, a)
    for row in range(12):
        member = jax.tree.map(lambda x, m=row // 6: x[m], model.parameters.members)
        mean = member(model.scale, s[row : row + 1], a[row : row + 1], jnp.zeros((1, 0))).mean[0]
        np.testing.assert_allclose(outcome.reward[row], mean[0], atol=1e-5)
        np.testing.assert_allclose(outcome.next_observation[row], s[row] + mean[1:], atol=1e-5)


def test_observations_scatter_by_the_least_noise_where_the_model_is_surer():
    """The model's deviation is 1 for all; the data's are 4 and 1, half of which is 2 and 0.5; rewards have no least."""
    model = constant(np.ones((MEMBERS, OBS + 1)), 0.0, [1, 3])
    model = eqx.tree_at(
        lambda e: (e.parameters.upper, e.scale.observation_std), model, (jnp.full(OBS + 1, 60.0), jnp.array([4.0, 1.0]))
    )
    count = 40_000
    given = (jax.random.key(2), model, jnp.zeros((count, OBS)), jnp.zeros((count, ACT)))
    own, floored = sample(*given), sample(*given, least_noise=0.5)
    np.testing.assert_array_equal(floored.reward, own.reward)
    np.testing.assert_array_equal(floored.next_observation[:, 1], own.next_observation[:, 1])
    np.testing.assert_allclose(floored.next_observation.std(0), [2.0, 1.0], rtol=0.02)
    np.testing.assert_allclose(floored.next_observation.mean(0), [1.0, 1.0], atol=0.03)


@pytest.mark.parametrize("raw", [-2.0, 5.0, -9.0])
def test_outcomes_scatter_with_the_bounded_variance(raw):
    count = 40_000
    model = constant(np.ones((MEMBERS, OBS + 1)), raw, [1, 3], lower=-6.0)
    outcome = sample(jax.random.key(0), model, jnp.zeros((count, OBS)), jnp.zeros((count, ACT)))
    drawn = np.column_stack([outcome.reward, outcome.next_observation])
    below = 0.5 - np.logaddexp(0, 0.5 - raw)
    deviation = np.exp(0.5 * (-6.0 + np.logaddexp(0, below + 6.0)))
    np.testing.assert_allclose(drawn.std(0), np.full(OBS + 1, deviation), rtol=0.02)
    np.testing.assert_allclose((drawn.mean(0) - 1) / deviation, np.zeros(OBS + 1), atol=0.025)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(OBS + 1), atol=0.025)
    assert len(np.unique(drawn[:, 0])) > 0.9 * count


def test_the_latent_of_a_two_stage_ensemble_is_drawn_for_every_row():
    model = init(jax.random.key(0), MODEL, OBS, ACT, jnp.zeros(ACT))
    tight = (jnp.full(OBS + 1, -60.0), jnp.full(OBS + 1, -50.0))
    model = eqx.tree_at(lambda e: (e.parameters.lower, e.parameters.upper), model, tight)
    outcome = sample(jax.random.key(0), model, jnp.zeros((200, OBS)), jnp.zeros((200, ACT)))
    assert model.noise_width == OBS
    assert len(np.unique(outcome.reward)) > 190


def test_members_are_two_stage_where_there_is_a_reference_action():
    whole = init(jax.random.key(0), MODEL, OBS, ACT, None)
    split = init(jax.random.key(0), MODEL, OBS, ACT, jnp.full(ACT, 0.3))
    assert isinstance(whole.parameters.members, Monolith)
    assert isinstance(split.parameters.members, Stages)
    np.testing.assert_array_equal(split.parameters.members.reference, np.full((MEMBERS, ACT), np.float32(0.3)))
    assert whole.noise_width == 0


def test_members_start_apart_and_share_bounds_of_a_half_and_minus_ten():
    model = init(jax.random.key(0), MODEL, OBS, ACT, None)
    weight = np.asarray(model.parameters.members.net.layers[0].weight)
    assert weight.shape == (MEMBERS, OBS + ACT, 4)
    assert len(np.unique(weight)) == weight.size
    assert model.parameters.upper.tolist() == [0.5] * (OBS + 1)
    assert model.parameters.lower.tolist() == [-10.0] * (OBS + 1)


def test_choosing_goes_member_by_member_and_takes_the_new_bounds():
    old = init(jax.random.key(0), MODEL, OBS, ACT, None).parameters
    new = Parameters(jax.tree.map(lambda x: x + 1.0, old.members), old.lower - 1, old.upper + 1)
    improved = np.array([True, False, False, True, False])
    chosen = ensemble.choose(jnp.array(improved), new, old)
    for a, b, c in zip(*map(jax.tree.leaves, (chosen.members, new.members, old.members)), strict=True):
        np.testing.assert_array_equal(a[improved], b[improved])
        np.testing.assert_array_equal(a[~improved], c[~improved])
    np.testing.assert_array_equal(chosen.lower, new.lower)
    np.testing.assert_array_equal(chosen.upper, new.upper)


def test_elites_are_picked_with_the_shared_bounds():
    model = constant(10.0 * np.arange(MEMBERS)[:, None] + np.zeros(OBS + 1), 0.0, [4, 2])
    picked = ensemble.pick_elites(model)
    assert picked.members.net.layers[-1].bias[:, 0].tolist() == [40.0, 20.0]
    np.testing.assert_array_equal(picked.lower, model.parameters.lower)
