from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr import replay, rollout
from iadd_tr.agent import policy
from iadd_tr.dynamics import ensemble
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.replay import Replay
from iadd_tr.settings import Model
from iadd_tr.types import Transition

OBS, ACT, STARTS = 2, 1, 60
MODEL = Model(members=4, elites=3, width=8, monolith_depth=1)
init = jax.jit(ensemble.init, static_argnums=(1, 2, 3))
imagine = jax.jit(rollout.imagine, static_argnames="ending")


TRACES = []


def never(observation):
    TRACES.append(observation.shape)
    return jnp.zeros(observation.shape[0], bool)


def outside(observation):
    return jnp.abs(observation[:, 0]) > 1.0


def actor():
    """A policy whose actions mostly stay inside the bounds, where densities can be recomputed."""
    net = policy.init(jax.random.key(0), OBS, ACT, 8)
    return eqx.tree_at(lambda n: n.layers[-1].bias, net, jnp.array([0.2] * ACT + [-2.0] * ACT))


def random_model() -> Ensemble:
    model = init(jax.random.key(1), MODEL, OBS, ACT, None)
    return eqx.tree_at(lambda e: e.elites, model, jnp.array([3, 0, 2]))


def constant_model(answers, elites, logit: float = 0.0) -> Ensemble:
    """Members that answer the same to every row: `answers` [M, D] without noise, and one end logit."""
    model = jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim == 3 else x, random_model())
    answers = jnp.asarray(answers, jnp.float32)
    bias = jnp.concatenate([answers, jnp.full((4, OBS + 1), -200.0), jnp.full((4, 1), logit)], axis=1)
    return eqx.tree_at(
        lambda e: (e.parameters.members.net.layers[-1].bias, e.parameters.lower, e.elites),
        model,
        (bias, jnp.full(OBS + 1, -60.0, jnp.float32), jnp.array(elites)),
    )


def start(count: int = STARTS):
    return jax.random.normal(jax.random.key(2), (count, OBS))


def stored(buffer: Replay) -> Transition:
    return jax.tree.map(lambda x: np.asarray(x)[: int(buffer.size)], buffer.rows)


def roll(model: Ensemble, horizon: int, ending, seed: int = 3) -> Transition:
    return stored(imagine(jax.random.key(seed), actor(), model, start(), horizon, ending, replay.init(400, OBS, ACT)))


def states(observations) -> set:
    return {tuple(row) for row in np.asarray(observations)}


def by_step(rows: Transition, horizon: int) -> list[Transition]:
    """Cut the stored rows into steps: every row that did not end takes one more."""
    steps, first, count = [], 0, STARTS
    for _ in range(horizon):
        steps.append(jax.tree.map(lambda x, a=first, b=first + count: x[a:b], rows))
        first, count = first + count, int(steps[-1].discount.sum())
    return steps


def test_stored_densities_are_those_of_the_policy_that_acted():
    rows = roll(random_model(), 3, never)
    again = policy.log_density(actor(), jnp.asarray(rows.observation), jnp.asarray(rows.action))
    inside = np.abs(rows.action[:, 0]) < 0.99
    assert inside.mean() > 0.9
    np.testing.assert_allclose(rows.log_density[inside], again[inside], rtol=1e-3, atol=1e-3)


def test_rows_of_rollouts_that_never_end_are_horizon_times_starts_and_chain_up():
    rows = roll(random_model(), 4, never)
    assert rows.reward.shape == (4 * STARTS,)
    assert (rows.discount == 1).all()
    steps = by_step(rows, 4)
    assert states(steps[0].observation) == states(start())
    for before, after in pairwise(steps):
        assert len(states(before.next_observation)) == STARTS
        assert states(before.next_observation) == states(after.observation)


def test_a_row_that_ended_is_stored_with_discount_zero_and_takes_no_further_step():
    rows = roll(random_model(), 4, outside)
    ended = np.abs(rows.next_observation[:, 0]) > 1.0
    np.testing.assert_array_equal(rows.discount, 1.0 - ended)
    steps = by_step(rows, 4)
    assert sum(len(step.reward) for step in steps) == len(rows.reward)
    assert STARTS > len(steps[1].reward) > len(steps[3].reward) > 0
    for before, after in pairwise(steps):
        assert states(before.next_observation[before.discount == 1]) == states(after.observation)


@pytest.mark.parametrize("column", range(OBS + 1))
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_outcomes_that_are_no_numbers_are_not_stored_and_go_no_further(broken, column):
    answers = np.full((4, OBS + 1), 0.1)
    answers[1, column] = broken
    rows = roll(constant_model(answers, [0, 1, 2]), 2, never)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rows))
    first, second = (jax.tree.map(lambda x, cut=cut: x[cut], rows) for cut in (slice(0, 40), slice(40, None)))
    assert states(first.observation) < states(start())
    assert states(second.observation) < states(first.next_observation)
    assert 15 <= len(second.reward) < 40


@pytest.mark.parametrize(("logit", "counts"), [(50.0, [STARTS]), (-50.0, [STARTS, STARTS, STARTS])])
def test_without_an_ending_the_models_head_decides(logit, counts):
    rows = roll(constant_model(np.full((4, OBS + 1), 0.1), [0, 1, 2], logit), 3, None)
    assert len(rows.reward) == sum(counts)
    assert (rows.discount == (0.0 if logit > 0 else 1.0)).all()


def test_without_an_ending_rows_end_as_often_as_the_head_says():
    model = constant_model(np.full((4, OBS + 1), 0.1), [0, 1, 2])
    rolled = [roll(model, 3, None, seed) for seed in range(40)]
    assert np.concatenate([rows.discount for rows in rolled]).mean() == pytest.approx(0.5, abs=0.03)
    assert np.mean([len(rows.reward) for rows in rolled]) == pytest.approx(1.75 * STARTS, rel=0.05)


def test_every_row_meets_every_elite_equally_often_and_no_other_member():
    names = np.zeros((4, OBS + 1))
    names[:, 0] = np.arange(4)
    rows, steps = 6, 900
    marks = jnp.stack([jnp.arange(rows, dtype=float)] * OBS, axis=1)
    buffer = replay.init(rows * steps, OBS, ACT)
    met = stored(imagine(jax.random.key(0), actor(), constant_model(names, [3, 0, 2]), marks, steps, never, buffer))
    table = np.zeros((rows, 4))
    np.add.at(table, (np.round(met.observation[:, 0]).astype(int), np.round(met.reward).astype(int)), 1)
    assert (table[:, 1] == 0).all()
    np.testing.assert_allclose(table[:, [0, 2, 3]], np.full((rows, 3), steps / 3), atol=70)


def test_another_horizon_needs_no_other_program():
    before = len(TRACES)
    assert [len(roll(random_model(), horizon, never).reward) for horizon in (1, 5, 2)] == [
        STARTS,
        5 * STARTS,
        2 * STARTS,
    ]
    assert len(TRACES) <= before + 1


def test_rollouts_go_behind_what_the_buffer_holds():
    first = imagine(jax.random.key(0), actor(), random_model(), start(), 2, never, replay.init(400, OBS, ACT))
    second = imagine(jax.random.key(1), actor(), random_model(), start(), 1, never, first)
    assert int(second.size) == 3 * STARTS
    np.testing.assert_array_equal(second.rows.reward[: 2 * STARTS], first.rows.reward[: 2 * STARTS])
    assert not np.any(np.asarray(second.rows.reward[2 * STARTS : 3 * STARTS]) == np.asarray(first.rows.reward[:STARTS]))
