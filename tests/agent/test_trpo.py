import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from iadd_tr.agent import gaussian_policy, trpo
from iadd_tr.agent.gaussian_policy import Policy
from iadd_tr.nets import orthogonal

KEYS = jax.random.split(jax.random.key(0), 4)
POLICY = Policy(orthogonal(KEYS[0], [3, 8, 2], jnp.tanh, 0.5), jnp.array([0.1, -0.2]))
OBSERVATION = jax.random.normal(KEYS[1], (200, 3))
ACTION = gaussian_policy.sample(KEYS[2], POLICY, OBSERVATION)
ACTED = gaussian_policy.log_density(POLICY, OBSERVATION, ACTION)
ADVANTAGE = -jnp.sum((ACTION - 0.5) ** 2, axis=-1)
SCALED = (ADVANTAGE - ADVANTAGE.mean()) / ADVANTAGE.std()


def step(bound: float = 0.01):
    return trpo.update(POLICY, OBSERVATION, ACTION, ACTED, SCALED, bound, 10, 0.1, 0.0)


@pytest.mark.parametrize("bound", [1e-3, 1e-2, 0.1])
def test_a_step_respects_the_bound_and_improves_the_surrogate(bound):
    policy, info = step(bound)
    far = float(trpo.divergence(POLICY, policy, OBSERVATION))
    assert 0.2 * bound < far <= bound * 1.0001
    assert far == pytest.approx(float(info.divergence), rel=1e-3)
    before = trpo.surrogate(POLICY, OBSERVATION, ACTION, ACTED, SCALED, 0.0)
    after = trpo.surrogate(policy, OBSERVATION, ACTION, ACTED, SCALED, 0.0)
    assert float(after - before) == pytest.approx(float(info.gain), rel=1e-3)
    assert float(info.gain) > 0.0


def test_without_advantages_nothing_moves():
    policy, info = trpo.update(POLICY, OBSERVATION, ACTION, ACTED, jnp.zeros(200), 0.01, 10, 0.1, 0.0)
    assert float(info.accepted) == 0.0
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), policy, POLICY)))


def test_conjugate_gradient_agrees_with_a_dense_solve():
    random = np.random.default_rng(0)
    root = random.normal(size=(12, 12))
    matrix, right = root @ root.T + np.eye(12), random.normal(size=12)
    ours = trpo.conjugate_gradient(lambda v: jnp.asarray(matrix, jnp.float32) @ v, jnp.asarray(right, jnp.float32), 40)
    np.testing.assert_allclose(ours, np.linalg.solve(matrix, right), rtol=2e-3, atol=1e-3)


def test_the_direction_is_the_natural_gradient():
    """Against the Fisher matrix built densely from its definition, E[grad log p grad log p']."""
    flat, restore = ravel_pytree(POLICY)

    def log_density(parameters, observation, action):
        return gaussian_policy.log_density(restore(parameters), observation, action)

    draws = jax.random.split(jax.random.key(9), 40)
    actions = jnp.concatenate([gaussian_policy.sample(key, POLICY, OBSERVATION) for key in draws])
    states = jnp.tile(OBSERVATION, (40, 1))
    scores = jax.vmap(jax.grad(log_density), (None, 0, 0))(flat, states, actions)
    fisher = np.asarray(scores.T @ scores) / scores.shape[0]
    hessian = np.asarray(jax.hessian(lambda p: trpo.divergence(POLICY, restore(p), OBSERVATION))(flat))
    assert np.abs(fisher - hessian).max() < 0.1 * np.abs(hessian).max()


def test_divergence_is_the_mean_of_the_closed_form():
    other = Policy(POLICY.actor, jnp.array([0.4, 0.0]))
    s0, s1 = np.exp([0.1, -0.2]), np.exp([0.4, 0.0])
    expected = np.sum(np.log(s1 / s0) + s0**2 / (2 * s1**2) - 0.5)
    assert float(trpo.divergence(POLICY, other, OBSERVATION)) == pytest.approx(expected, rel=1e-4)
