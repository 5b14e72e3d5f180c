"""The correction solved from running means, inside training."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.agent import critic, policy, sac, targeted
from iadd_tr.runs import rows, traced
from iadd_tr.settings import Agent, Settings
from iadd_tr.study import bandit as bandits
from iadd_tr.types import Transition

AGENT = Agent(hidden=16, batch=64, targeting="solve", epsilon_degree=2, epsilon_decay=0.9)
OBSERVATIONS, ACTIONS, FEATURES = 3, 2, 5
FLOOR = jnp.log(jnp.array(0.5))
update = jax.jit(sac.update, static_argnames="agent")
improve = jax.jit(sac.improve, static_argnames="agent")
fixed_point = jax.jit(targeted.fixed_point, static_argnames="ridge")


def run_with(beta: float, rate: float = 3e-4):
    settings = Settings(betas=(beta,), floors=(0.5,), agent=replace(AGENT, agent_rate=rate))
    return jax.tree.map(lambda x: x[0], traced(settings, rows(settings)))


def batch(seed: int, *lead: int) -> Transition:
    keys = jax.random.split(jax.random.key(seed), 6)
    shape = (*lead, AGENT.batch)
    return Transition(
        observation=jax.random.normal(keys[0], (*shape, OBSERVATIONS)),
        action=jnp.tanh(jax.random.normal(keys[1], (*shape, ACTIONS))),
        log_density=jax.random.normal(keys[2], shape),
        reward=2.0 + jax.random.normal(keys[3], shape),
        next_observation=jax.random.normal(keys[4], (*shape, OBSERVATIONS)),
        discount=jax.random.bernoulli(keys[5], 0.8, shape).astype(jnp.float32),
    )


def noise(seed: int) -> sac.Noise:
    first, second = jax.random.split(jax.random.key(seed))
    shape = (AGENT.batch, ACTIONS)
    return sac.Noise(jax.random.normal(first, shape), jax.random.normal(second, shape))


def fresh(actions: int = ACTIONS, agent: Agent = AGENT) -> sac.State:
    return sac.init(jax.random.key(0), OBSERVATIONS, actions, agent, True)


def successors(seed: int):
    """Actions, log-densities, residuals of twins, next actions and log-densities, and discounts of the minimal twin."""
    keys = jax.random.split(jax.random.key(seed), 6)
    action, after = jax.random.uniform(keys[0], (2, AGENT.batch, ACTIONS), minval=-1.0, maxval=1.0)
    residual = 1.0 + jax.random.normal(keys[1], (2, AGENT.batch))
    density, next_density = jax.random.normal(keys[2], (2, AGENT.batch))
    first = jax.random.bernoulli(keys[3], 0.5, (AGENT.batch,))
    discount = 0.9 * jnp.stack([first, ~first])
    return (action, density), (after, next_density), residual, discount


def plain_features(action: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(action), 1)), action, 1.5 * action**2 - 0.5], axis=1)


def plain_system(now, after, residual, discount) -> tuple[np.ndarray, np.ndarray]:
    """The system of both twins, row by row, in units of the floor."""
    (action, density), (next_action, next_density) = ([np.asarray(x, float) for x in pair] for pair in (now, after))
    f = plain_features(action) / np.maximum(np.exp(density) / 0.5, 1.0)[:, None]
    g = plain_features(next_action) / np.maximum(np.exp(next_density) / 0.5, 1.0)[:, None]
    matrix, vector = np.zeros((2 * FEATURES, 2 * FEATURES)), np.zeros(2 * FEATURES)
    for twin in (0, 1):
        for n in range(len(f)):
            instrument, basis = np.zeros((2, 2, FEATURES))
            instrument[twin] = basis[twin] = f[n]
            basis -= np.asarray(discount, float)[:, n, None] * g[n]
            matrix += np.outer(instrument, basis) / len(f)
            vector += instrument.ravel() * float(residual[twin, n]) / len(f)
    return matrix, vector


@pytest.mark.parametrize("ridge", [1e-4, 1e-1])
def test_the_fixed_point_is_a_dense_solution(ridge):
    given = successors(0)
    solved = targeted.observe(targeted.unsolved(ACTIONS, 2), targeted.see(2, *given, FLOOR), 0.0)
    matrix, vector = plain_system(*given)
    weight = ridge * np.sqrt(1 + (matrix**2).sum())
    stacked = np.concatenate([matrix, weight * np.eye(2 * FEATURES)]), np.concatenate([vector, np.zeros(2 * FEATURES)])
    ours = np.asarray(fixed_point(solved, ridge)).ravel()
    np.testing.assert_allclose(ours, np.linalg.lstsq(*stacked, rcond=None)[0], rtol=5e-3, atol=5e-3)
    if ridge < 1e-3:
        np.testing.assert_allclose(ours, np.linalg.solve(matrix, vector), rtol=2e-2, atol=2e-2)


def test_old_batches_fade_and_equal_ones_converge():
    solved = targeted.unsolved(ACTIONS, 2)
    solved = targeted.observe(solved, targeted.see(2, *successors(0), FLOOR), 0.5)
    for _ in range(20):
        solved = targeted.observe(solved, targeted.see(2, *successors(1), FLOOR), 0.5)
    alone = targeted.observe(targeted.unsolved(ACTIONS, 2), targeted.see(2, *successors(1), FLOOR), 0.0)
    for ours, theirs in zip(jax.tree.leaves(solved), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_training_solves_the_adjusted_bellman_equation():
    """With networks held, the targeted loss has no slope at the correction that also stands in its own target."""
    state, rows_, noise_, run = fresh(), batch(1), noise(2), run_with(1.0, rate=0.0)
    agent = replace(AGENT, epsilon_ridge=1e-4, polyak=1.0)
    for _ in range(60):
        state, _ = update(noise_, state, rows_, run, agent)
        state = eqx.tree_at(lambda s: s.epsilon, state, targeted.resolve(state.epsilon, run.beta, run.log_floor, 1e-4))

    action, density = policy.respond(noise_.next_action, state.actor.value, rows_.next_observation)
    value = critic.values(state.critics.value, rows_.observation, rows_.action)
    after = critic.values(state.slow_critics, rows_.next_observation, action)
    bonus = -jnp.exp(state.log_temperature.value) * density

    def slope(factor: float):
        epsilon = jax.tree.map(lambda c: factor * c, state.epsilon.value)
        adjusted = targeted.adjust(epsilon, after, action, density, run.log_floor)
        target = critic.bellman_target(rows_.reward, 0.99 * rows_.discount, adjusted, bonus)
        loss = lambda e: targeted.loss(e, value, rows_.action, rows_.log_density, run.log_floor, target)[0]  # noqa: E731
        return float(jnp.abs(jax.grad(loss)(epsilon).coefficients).max())

    assert slope(1.0) < 0.01 * slope(0.0)
    assert slope(1.0) < 0.2 * slope(1.1)
    assert not np.allclose(*state.epsilon.value.coefficients, rtol=0.01)


def test_on_a_bandit_the_running_correction_nears_the_closed_form():
    """Eq. 52 by quadrature in plain NumPy, for twins that are wrong in two ways."""
    bandit = bandits.Bandit()
    slopes, zeros = jnp.array([0.3, -0.4]), jnp.zeros((2, 2000))

    def step(solved, key):
        rows_ = bandits.sample(key, replace(bandit, noise=0.0), 2000)
        now = rows_.action, rows_.log_density
        residual = rows_.reward[None] - slopes[:, None] * rows_.action[:, 0][None]
        return targeted.observe(solved, targeted.see(8, now, now, residual, zeros, jnp.log(0.2)), 0.995), None

    keys = jax.random.split(jax.random.key(0), 1500)
    solved = jax.jit(lambda keys: jax.lax.scan(step, targeted.unsolved(1, 8), keys)[0])(keys)
    solved = targeted.resolve(solved, jnp.ones(()), jnp.log(0.2), 1e-4)
    nodes, weight = bandits.nodes()
    ours = jax.vmap(lambda e: e(nodes)[:, 0])(solved.value)

    where = bandits.pairs(nodes, nodes)
    e, m = (np.asarray(x, float) for x in (bandits.behaviour_log_density(bandit, *where), bandits.mean_outcome(*where)))
    e, mean, action = np.exp(e), 0.5 * np.asarray(weight, float), np.asarray(nodes[:, 0], float)
    for twin in (0, 1):
        closed = (mean @ (m - float(slopes[twin]) * action[None])) / (mean @ (1 / e))
        assert np.abs(closed).max() > 0.1
        np.testing.assert_allclose(ours[twin], closed, atol=0.02)


def test_beta_zero_is_plain_sac_number_for_number():
    state = fresh()
    plain = eqx.tree_at(lambda s: (s.epsilon, s.slow_epsilon), state, (None, None))
    for i in range(3):
        state, info = improve(state, sac.with_noise(jax.random.key(i), batch(i, 4)), run_with(0.0), AGENT)
        plain, _ = improve(plain, sac.with_noise(jax.random.key(i), batch(i, 4)), run_with(0.0), AGENT)
        assert float(info.correction) == 0.0
    for ours, theirs in zip(jax.tree.leaves(plain.actor), jax.tree.leaves(state.actor), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert np.all(np.asarray(state.epsilon.value.coefficients) == 0.0)
    assert np.all(np.asarray(state.epsilon.square) != 0.0)


def test_beta_scales_the_correction_and_the_critics_do_not_see_it():
    minibatches = sac.with_noise(jax.random.key(0), batch(0, 4))
    half, whole = (improve(fresh(), minibatches, run_with(b), AGENT)[0] for b in (0.5, 1.0))
    assert eqx.tree_equal(half.critics, whole.critics)
    ours, theirs = (np.asarray(s.epsilon.value.coefficients) for s in (half, whole))
    np.testing.assert_allclose(2 * ours, theirs, rtol=1e-5)
    assert np.abs(theirs).max() > 0.01


@pytest.mark.parametrize("targeting", ["solve", "gradient"])
def test_the_target_may_hold_the_critics_themselves(targeting):
    slow = replace(AGENT, targeting=targeting)
    far = eqx.tree_at(lambda s: s.slow_critics, fresh(agent=slow), critic.init(jax.random.key(9), OBSERVATIONS, 2, 16))
    near = eqx.tree_at(lambda s: s.slow_critics, far, far.critics.value)
    online = update(noise(2), far, batch(1), run_with(1.0), replace(slow, epsilon_target="online"))[0]
    expected, other = (update(noise(2), state, batch(1), run_with(1.0), slow)[0] for state in (near, far))
    for ours, theirs in zip(jax.tree.leaves(online.epsilon), jax.tree.leaves(expected.epsilon), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert not eqx.tree_equal(online.epsilon, other.epsilon, rtol=1e-2)
    assert eqx.tree_equal(online.critics, other.critics, rtol=1e-5, atol=1e-7)


def test_nothing_seen_gives_no_correction():
    solved = targeted.resolve(targeted.unsolved(ACTIONS, 2), jnp.ones(()), FLOOR, 1e-3)
    assert np.all(np.asarray(solved.value.coefficients) == 0.0)


def flood(action, log_density, after, next_log_density, discount: float = 0.99, degree: int = 2) -> np.ndarray:
    """The correction at a floored density once only these rows have been seen, each with TD error one."""
    count = len(log_density)
    shares = jnp.stack([jnp.full(count, discount), jnp.zeros(count)])
    solved = targeted.unsolved(action.shape[1], degree)
    seen = targeted.see(degree, (action, log_density), (after, next_log_density), jnp.ones((2, count)), shares, FLOOR)
    for _ in range(3):
        solved = targeted.observe(solved, seen, 0.5)
    solved = targeted.resolve(solved, jnp.ones(()), FLOOR, 1e-3)
    return np.asarray(targeted.correction(solved.value, action, jnp.full(count, -9.0), FLOOR))


@pytest.mark.parametrize("log_std", [-10.0, -20.0])
def test_a_policy_that_is_nearly_deterministic_gets_no_correction(log_std):
    action = jnp.tanh(jax.random.normal(jax.random.key(0), (64, 2)))
    density = jnp.full(64, -2.0 * log_std - 2.0)
    assert np.abs(flood(action, density, action, density)).max() < 0.01


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("place", [0.0, 1.0])
def test_equal_actions_of_many_coordinates_keep_the_correction_bounded(place, degree):
    action, density = jnp.full((64, 17), place), jnp.zeros(64)
    correction = flood(action, density, action, density, degree=degree)
    assert np.all(np.isfinite(correction))
    assert np.abs(correction).max() < 2 * 1.0 / (1.0 - 0.99) / 0.5


@pytest.mark.parametrize("discount", [0.495, 0.499, 0.5, 0.501, 0.505])
def test_a_singular_system_keeps_the_correction_bounded(discount):
    """Next densities are half the present ones, so that at a discount of 1/2 the target grows with the value."""
    action, density = jnp.zeros((64, 2)), jnp.full(64, FLOOR + jnp.log(2.0))
    correction = flood(action, density, action, density - jnp.log(2.0), discount, degree=0)
    assert np.all(np.abs(correction) < 0.5 * 2**0.5 / (2 * 1e-3))
