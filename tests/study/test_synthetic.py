from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from iadd_tr.study import synthetic
from iadd_tr.study.synthetic import Study
from iadd_tr.tasks import oscillator

SMALL = Study(ratios=(0.0, 0.3), seeds=(1, 2), rows=600, epochs=2, held_out=300, batch=64)


def member(fitted, index):
    return jax.tree.map(lambda x: x[index], fitted)


@pytest.fixture(scope="module")
def pool() -> synthetic.Rows:
    return synthetic.pool(synthetic.seed_key(jnp.array(1), 0), SMALL)


def test_pools_hold_zero_rows_first_and_noisy_next_states(pool):
    assert np.all(np.asarray(pool.action[:600]) == 0.0)
    assert np.all(np.asarray(pool.action[600:]) != 0.0)
    noise = pool.next_state - oscillator.evolve(oscillator.intervene(pool.state, pool.action))
    assert float(noise.std()) == pytest.approx(0.02, rel=0.06)


@pytest.mark.parametrize(("ratio", "zeros"), [(0.0, 0), (0.1, 60), (0.3, 180), (1.0, 600)])
def test_a_mixture_has_its_share_and_is_nested(pool, ratio, zeros):
    data = synthetic.mix(pool, jnp.array(ratio))
    index = np.asarray(data.index)
    assert index[:zeros].tolist() == list(range(zeros))
    assert index[zeros:].tolist() == list(range(600, 1200 - zeros))
    np.testing.assert_allclose(data.target_mean, np.asarray(pool.next_state)[index].mean(0), atol=1e-5)
    np.testing.assert_allclose(data.target_std, np.asarray(pool.next_state)[index].std(0), rtol=1e-4)


def test_zero_rows_can_be_kept_to_a_part_of_the_states():
    rows = synthetic.pool(jax.random.key(0), replace(SMALL, zero_extent=(2.0, 0.5)))
    assert 0.45 < float(jnp.abs(rows.state[:600, 1]).max()) <= 0.5
    assert float(jnp.abs(rows.state[600:, 1]).max()) > 1.4


def test_every_combination_is_measured_and_trained_as_it_would_be_alone():
    table = list(synthetic.run(SMALL))
    assert [(r["form"], r["seed"], r["ratio"]) for r in table] == [
        (form, seed, ratio) for form in SMALL.forms for seed in (1, 2) for ratio in (0.0, 0.3)
    ]
    (alone,) = synthetic.run(replace(SMALL, forms=("residual",), seeds=(2,), ratios=(0.3,)))
    (together,) = [r for r in table if (r["form"], r["seed"], r["ratio"]) == ("residual", 2, 0.3)]
    for metric in synthetic.METRICS:
        assert together[metric] == pytest.approx(alone[metric], rel=1e-3, abs=1e-6)


def test_the_anchor_is_exact_for_every_ensemble():
    assert all(row["zero_action_error"] == 0.0 for row in synthetic.run(SMALL))


def test_metrics_are_those_of_the_appendix():
    """Against NumPy, for one fitted ensemble."""
    fitted, data = synthetic.train(SMALL)
    one, its_data = member(fitted["direct"], (1, 1)), member(data, (1, 1))
    truth = synthetic.held_out(SMALL)
    measured = synthetic.measure(one, its_data, truth)
    recovered = np.asarray(synthetic.recover(one.parameters, its_data.scale, truth.state, truth.action), np.float64)
    state, action = np.asarray(truth.state, np.float64), np.asarray(truth.action, np.float64)
    true = state.copy()
    true[:, 1] += 0.8 * np.tanh(action[:, 0])
    assert recovered.shape == (3, 300, 2)
    assert float(measured["mse_mid"]) == pytest.approx(((recovered - true) ** 2).mean(), rel=1e-4)
    effect, true_effect = recovered.mean(0) - state, true - state
    expected = stats.pearsonr(effect.ravel(), true_effect.ravel()).statistic
    assert float(measured["effect_pearson"]) == pytest.approx(expected, abs=1e-4)
    assert float(measured["velocity_pearson"]) == pytest.approx(
        stats.pearsonr(effect[:, 1], true_effect[:, 1]).statistic, abs=1e-4
    )


def test_the_next_state_is_learned_and_zero_rows_bring_the_intermediate_state():
    """Without a latent block the evolution can be inverted; then a few zero rows pin the intermediate state."""
    study = Study(
        ratios=(0.0, 0.3), forms=("residual",), rows=4000, epochs=60, held_out=500, width=8, latent_width=0, rate=5e-3
    )
    without, with_zeros = synthetic.run(study)
    assert max(without["mse_next"], with_zeros["mse_next"]) < 5e-3
    assert with_zeros["mse_mid"] < 0.02
    assert with_zeros["mse_mid"] < 0.2 * without["mse_mid"]
    assert with_zeros["effect_pearson"] > 0.97


def test_the_paper_table_is_the_papers():
    assert synthetic.TABLE_3[0] == (0.0, 4.0435, 0.3455, 2.3250e-4)
    assert [row[0] for row in synthetic.TABLE_3] == [0.0, 0.1, 0.2, 0.3, 0.4]
