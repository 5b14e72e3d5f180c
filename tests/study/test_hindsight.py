import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import problem

from iadd_tr import replay
from iadd_tr.algorithm.collect import Memory
from iadd_tr.algorithm.mbpo import FIT
from iadd_tr.dynamics.member import Prediction
from iadd_tr.experiment import Batch
from iadd_tr.replay import Replay
from iadd_tr.study import accuracy, hindsight
from iadd_tr.study.designs import DESIGNS, parameter_count
from iadd_tr.types import Transition

ROWS, AHEAD = 120, 15


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(hindsight, "AHEAD", AHEAD)


@pytest.fixture
def batch():
    return Batch(hindsight.problem_of(problem("probe:drift", "mbpo", runs=2), DESIGNS["iadd"]))


def filled(count: int = ROWS) -> Replay:
    """Two runs' buffers of drifting rows that a small model can learn."""
    state, action = jax.random.uniform(jax.random.key(1), (2, 2, count, 1), minval=-1.0)

    def one(state, action) -> Replay:
        zero = jnp.zeros(count)
        rows = Transition(state, action, zero, -(state[:, 0] ** 2), state + 0.3 * action, zero + 1.0)
        return replay.extend(replay.init(count, 1, 1), rows, jnp.ones(count, bool))

    return jax.vmap(one)(state, action)


def with_rows(real: Replay, change) -> Replay:
    return eqx.tree_at(lambda buffer: buffer.rows, real, jax.tree.map(change, real.rows))


def test_a_fit_sees_no_row_of_later_and_is_judged_by_the_next_ones_alone(batch):
    real, times = filled(), range(40, 56, 15)
    plain = list(hindsight.retrace(batch, real, times, cold=False))
    assert [[line["rows"] for line in lines] for lines in plain] == [[40, 40], [55, 55]]
    poisoned = with_rows(real, lambda x: x.at[:, 70:].set(1e6))
    assert list(hindsight.retrace(batch, poisoned, times, cold=False)) == plain
    changed = with_rows(real, lambda x: x.at[:, 69].add(1.0))
    before, after = hindsight.retrace(batch, changed, times, cold=False)
    assert before == plain[0]
    assert all(mine["error"] != theirs["error"] for mine, theirs in zip(after, plain[1], strict=True))
    assert [line["holdout_error"] for line in after] == [line["holdout_error"] for line in plain[1]]


def test_a_fit_goes_on_where_the_one_before_it_ended_unless_it_is_cold(batch):
    real, times = filled(), range(40, 71, 15)
    warm, cold = (list(hindsight.retrace(batch, real, times, cold=cold)) for cold in (False, True))
    assert warm[0] == cold[0]
    assert all(warm[2][run]["holdout_error"] < cold[2][run]["holdout_error"] for run in (0, 1))
    models = batch(hindsight.INIT)
    for seen in times:
        short = jax.tree.map(lambda x, n=seen: x[:, :n], real.rows)
        empty = jax.vmap(lambda _: replay.init(ROWS, 1, 1))(jnp.arange(2))
        memory = Memory(jax.vmap(replay.extend)(empty, short, jnp.ones((2, seen), bool)), None)
        models, found = batch(FIT, seen, seen, models, memory), batch.report()[0]["fit"]
    assert [line["holdout_error"] for line in warm[2]] == [info["holdout_error"] for info in found]


def test_moments_begin_after_the_warm_up_and_leave_rows_to_judge_by():
    source = problem("probe:drift", "mbpo", warm_up=40)
    assert list(hindsight.moments(source, 100, 20)) == [40, 60, 80]
    assert list(hindsight.moments(source, 55, 20)) == [40]
    assert not hindsight.moments(source, 54, 20)


@pytest.mark.parametrize("name", ["monolith", "direct", "iadd", "depths-1+3"])
def test_designs_have_the_size_of_the_runs_monolith_and_the_runs_way_of_fitting(name):
    source = problem("probe:drift", "iadd", width=30, fit_epochs=7, normalise_target=False)
    made = hindsight.problem_of(source, DESIGNS[name]).settings
    sizes = [parameter_count(made.model, made.two_stage, 1, 1), parameter_count(source.settings.model, False, 1, 1)]
    assert abs(sizes[0] / sizes[1] - 1) < 0.05
    assert (made.model.members, made.model.elites, made.model.fit_epochs) == (3, 2, 7)
    assert made.model.normalise_target == (name not in ("monolith", "direct"))
    assert not made.generates_zeros


def test_spreads_are_in_deviations_of_the_observations():
    mean = jnp.array([[[9.0, 0.0, 0.0]], [[0.0, 2.0, 8.0]]])
    log_variance = 2.0 * jnp.log(jnp.array([[[5.0, 0.1, 0.4]], [[5.0, 0.3, 0.4]]]))
    unit = accuracy.Unit(jnp.ones(2), jnp.ones(()), jnp.array([2.0, 4.0]))
    prediction = jax.vmap(Prediction)(mean, log_variance, jnp.zeros((2, 1)))
    own, between = hindsight.spreads(prediction, unit)
    np.testing.assert_allclose(own, np.sqrt(0.2 / 2.0 * 0.4 / 4.0), rtol=1e-5)
    np.testing.assert_allclose(between, np.sqrt(1.0 / 2.0 * 4.0 / 4.0), rtol=1e-5)
