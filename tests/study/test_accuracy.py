import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.member import Prediction, Scale
from iadd_tr.gaussian import soft_bound
from iadd_tr.settings import Model
from iadd_tr.study import accuracy
from iadd_tr.study.accuracy import HORIZONS, Paths, Unit
from iadd_tr.types import Transition

OBS, ACT, ELITES = 3, 2, 2
UNIT = Unit(jnp.array([0.5, 1.0, 2.0]), jnp.array(3.0), jnp.array([2.0, 0.1, 1.0]))


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def transitions(count: int) -> Transition:
    s = normal(0, count, OBS)
    return Transition(
        s, normal(1, count, ACT), jnp.zeros(count), normal(2, count), s + normal(3, count, OBS), jnp.ones(count)
    )


def prediction(count: int) -> Prediction:
    return of_elites(normal(4, ELITES, count, OBS + 1), normal(5, ELITES, count, OBS + 1))


def of_elites(mean: jax.Array, log_variance: jax.Array) -> Prediction:
    return jax.vmap(Prediction)(mean, log_variance, jnp.zeros(mean.shape[:2]))


def test_scores_are_those_of_plain_loops():
    rows, guess = transitions(7), prediction(7)
    score = accuracy.judge(guess, rows, UNIT)
    squares, reward_squares, likelihoods, inside = [], [], [], []
    for i in range(7):
        truth = [float(rows.reward[i]), *np.asarray(rows.next_observation[i] - rows.observation[i])]
        means = np.asarray(guess.mean[:, i], np.float64)
        deviations = np.exp(0.5 * np.asarray(guess.log_variance[:, i], np.float64))
        squares.append([(truth[d + 1] - means[:, d + 1].mean()) ** 2 for d in range(OBS)])
        reward_squares.append((truth[0] - means[:, 0].mean()) ** 2)
        densities = [
            np.prod([stats.norm.pdf(truth[d], means[e, d], deviations[e, d]) for d in range(OBS + 1)])
            for e in range(ELITES)
        ]
        likelihoods.append(-np.log(np.mean(densities)) / (OBS + 1))
        for d in range(OBS + 1):
            inside.append([_inside(truth[d], means[:, d], deviations[:, d], level) for level in (0.5, 0.9)])
    error = np.mean(np.sqrt(np.mean(squares, axis=0)) / np.asarray(UNIT.difference))
    np.testing.assert_allclose(score.error, error, rtol=1e-5)
    np.testing.assert_allclose(score.reward_error, np.sqrt(np.mean(reward_squares)) / 3.0, rtol=1e-5)
    np.testing.assert_allclose(score.nll, np.mean(likelihoods), rtol=1e-4)
    np.testing.assert_allclose([score.coverage_50, score.coverage_90], np.mean(inside, axis=0), rtol=1e-6)
    by_row = np.mean(np.asarray(squares) / np.asarray(UNIT.difference) ** 2, axis=1)
    np.testing.assert_allclose(accuracy.squared_errors(guess, rows, UNIT), by_row, rtol=1e-4)


def _inside(value, means, deviations, level):
    """Whether a value lies in the central interval of a mixture whose quantiles are searched on a grid."""
    grid = np.linspace(-30, 30, 60_001)
    rank = np.mean([stats.norm.cdf(grid, m, d) for m, d in zip(means, deviations, strict=True)], axis=0)
    low, high = (grid[np.searchsorted(rank, q)] for q in (0.5 - level / 2, 0.5 + level / 2))
    return low <= value <= high


@pytest.mark.parametrize("claimed", [0.5, 1.0, 2.0])
def test_coverage_is_that_of_a_gaussian_with_known_deviation(claimed):
    count = 20_000
    rows = transitions(count)
    truth = jnp.concatenate([rows.reward[:, None], rows.next_observation - rows.observation], axis=1)
    deviation = jnp.array([0.3, 1.0, 2.0, 5.0])
    mean = jnp.stack([truth + deviation[None] * normal(9, count, OBS + 1)] * ELITES)
    spread = jnp.broadcast_to(2 * jnp.log(claimed * deviation), mean.shape)
    score = accuracy.judge(of_elites(mean, spread), rows, UNIT)
    for found, level in ((score.coverage_50, 0.5), (score.coverage_90, 0.9)):
        expected = 2 * stats.norm.cdf(claimed * stats.norm.ppf(0.5 + level / 2)) - 1
        assert abs(float(found) - expected) < 0.01


def test_units_are_the_deviations_of_the_rows():
    rows = transitions(50)
    unit = accuracy.units(rows)
    np.testing.assert_allclose(unit.difference, np.std(rows.next_observation - rows.observation, axis=0), rtol=1e-5)
    np.testing.assert_allclose(unit.reward, np.std(rows.reward), rtol=1e-5)
    np.testing.assert_allclose(unit.observation, np.std(rows.observation, axis=0), rtol=1e-5)


def fitted() -> ensembles.Ensemble:
    """Three members of which two are elites, with scales that matter."""
    model = Model(members=3, elites=2, width=8, depths=(1, 1), monolith_depth=2)
    made = ensembles.init(jax.random.key(0), model, OBS, ACT, jnp.zeros(ACT))
    scale = Scale(
        normal(1, OBS), jnp.full(OBS, 1.5), jnp.zeros(ACT), jnp.full(ACT, 0.7), jnp.array([2.0, 0.1, 1.0, 0.5])
    )
    return ensembles.Ensemble(made.parameters, made.optimiser, scale, jnp.array([2, 0]), made.noise_width)


def test_a_prediction_is_that_of_each_elite():
    ensemble, s, a = fitted(), normal(2, 4, OBS), normal(3, 4, ACT)
    guess = accuracy.predict(ensemble, s, a)
    for e, number in enumerate((2, 0)):
        member = jax.tree.map(lambda x, number=number: x[number], ensemble.parameters.members)
        alone = member(ensemble.scale, s, a, jnp.zeros((4, 0)))
        np.testing.assert_allclose(guess.mean[e], alone.mean, rtol=1e-5, atol=1e-6)
        bounds = ensemble.parameters.lower, ensemble.parameters.upper
        bounded = soft_bound(alone.log_variance, *bounds) + 2 * np.log(ensemble.scale.target_std)[None]
        np.testing.assert_allclose(guess.log_variance[e], bounded, rtol=1e-5)


def test_open_loop_errors_are_those_of_a_plain_loop():
    ensemble, count, steps = fitted(), 5, max(HORIZONS)
    live = np.ones((count, steps), bool)
    live[0, 7:] = live[1, 2:] = live[4, 20:] = False
    start, action, reached = normal(4, count, OBS), normal(5, count, steps, ACT), normal(6, count, steps, OBS)
    found = jax.jit(accuracy.open_loop)(ensemble, Paths(start, action, reached, live), UNIT)
    distances = np.full((count, steps), np.nan)
    for i in range(count):
        state = start[i : i + 1]
        for h in range(steps):
            means = [guess[0, 1:] for guess in accuracy.predict(ensemble, state, action[i : i + 1, h]).mean]
            state = state + np.mean(means, axis=0)[None]
            miss = (np.asarray(state[0]) - np.asarray(reached[i, h])) / np.asarray(UNIT.observation)
            distances[i, h] = np.sqrt(np.mean(miss**2))
    expected = [np.median([distances[i, h - 1] for i in range(count) if live[i, h - 1]]) for h in HORIZONS]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
