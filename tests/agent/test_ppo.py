import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from iadd_tr import adam
from iadd_tr.agent import gaussian_policy, ppo
from iadd_tr.agent.gaussian_policy import Policy
from iadd_tr.nets import orthogonal
from iadd_tr.settings import Ppo

SETTINGS = Ppo(ppo_hidden=16, rollout_steps=64, minibatches=4, passes=3)


def networks(seed: int = 0) -> ppo.Networks:
    return ppo.init(jax.random.key(seed), 2, 1, SETTINGS).networks


def trajectory(seed: int, length: int, count: int) -> ppo.Trajectory:
    random = np.random.default_rng(seed)

    def normal(*shape: int):
        return jnp.asarray(random.normal(size=shape), jnp.float32)

    ended = random.random((length, count)) < 0.1
    cut = random.random((length, count)) < 0.1
    return ppo.Trajectory(
        normal(length, count, 2), normal(length, count, 1), normal(length, count), normal(length, count),
        normal(length, count), normal(length, count, 2), jnp.where(ended, 0.0, 1.0), jnp.asarray(ended | cut),
    )  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), length=st.integers(1, 12), count=st.integers(1, 3))
def test_advantages_agree_with_a_plain_loop(seed, length, count):
    rows = trajectory(seed, length, count)
    next_value = np.random.default_rng(seed + 1).normal(size=(length, count)).astype(np.float32)
    ours = ppo.advantages(rows, jnp.asarray(next_value), 0.9, 0.8)
    expected = np.zeros((length, count))
    for n in range(count):
        later = 0.0
        for t in reversed(range(length)):
            surprise = rows.reward[t, n] + 0.9 * rows.discount[t, n] * next_value[t, n] - rows.value[t, n]
            later = float(surprise) + (0.0 if rows.last[t, n] else 0.9 * 0.8 * later)
            expected[t, n] = later
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_densities_agree_with_scipy():
    policy = Policy(networks(3).policy.actor, jnp.array([0.3]))
    observation, action = jax.random.normal(jax.random.key(0), (20, 2)), jax.random.normal(jax.random.key(1), (20, 1))
    expected = stats.norm.logpdf(action[:, 0], policy.actor(observation)[:, 0], np.exp(0.3))
    np.testing.assert_allclose(gaussian_policy.log_density(policy, observation, action), expected, rtol=1e-4)


def rows_of(nets: ppo.Networks, count: int = 32) -> ppo.Batch:
    keys = jax.random.split(jax.random.key(5), 5)
    observation, action = jax.random.normal(keys[0], (count, 2)), jax.random.normal(keys[1], (count, 1))
    acted = gaussian_policy.log_density(nets.policy, observation, action) + 0.4 * jax.random.normal(keys[2], (count,))
    value = ppo.values(nets, observation) + 0.5 * jax.random.normal(keys[3], (count,))
    return ppo.Batch(observation, action, acted, value, jax.random.normal(keys[4], (count,)), value + 1.0)


def test_the_loss_agrees_with_a_plain_computation():
    nets = networks(1)
    rows = rows_of(nets)
    total, info = ppo.loss(nets, rows, Ppo(entropy_weight=0.1, value_weight=0.7))
    ratio = np.exp(
        np.asarray(gaussian_policy.log_density(nets.policy, rows.observation, rows.action) - rows.log_density)
    )
    advantage = np.asarray((rows.advantage - rows.advantage.mean()) / rows.advantage.std())
    surrogate = np.mean([min(r * a, np.clip(r, 0.8, 1.2) * a) for r, a in zip(ratio, advantage, strict=True)])
    value, old, goal = (np.asarray(x) for x in (ppo.values(nets, rows.observation), rows.value, rows.goal))
    near = old + np.clip(value - old, -0.2, 0.2)
    value_loss = 0.5 * np.mean(np.maximum((value - goal) ** 2, (near - goal) ** 2))
    entropy = stats.norm(0, np.exp(nets.policy.log_std[0])).entropy()
    assert float(total) == pytest.approx(-surrogate + 0.7 * value_loss - 0.1 * entropy, rel=1e-4)
    assert float(info.clipped) == pytest.approx(np.mean(np.abs(ratio - 1) > 0.2))


def test_a_clipped_row_gives_the_policy_no_gradient():
    nets = networks(1)
    rows = rows_of(nets, 2)
    acted = gaussian_policy.log_density(nets.policy, rows.observation, rows.action) - jnp.array([1.0, -1.0])
    clipped = ppo.Batch(
        rows.observation, rows.action, acted, rows.value, jnp.array([1.0, -1.0]), rows.goal
    )  # ratios e and 1/e, each already past the clip on its advantage's side
    gradient = jax.grad(lambda n: ppo.loss(n, clipped, Ppo())[0])(nets)
    assert all(float(jnp.abs(g).max()) == 0.0 for g in jax.tree.leaves(gradient.policy))


def test_the_gradient_is_clipped_to_its_norm():
    nets = networks(1)
    state = ppo.State(nets, adam.init(nets))
    after, _ = ppo.update(state, rows_of(nets), jnp.array(0.0), Ppo(gradient_norm=1e-3))
    first_moments = jax.tree.leaves(after.moments.mu)  # pyright: ignore
    norm = np.sqrt(sum(float(jnp.sum((10.0 * m) ** 2)) for m in first_moments))
    assert norm == pytest.approx(1e-3, rel=2e-2)


def test_orthogonal_layers_are_orthogonal_with_their_gains():
    net = orthogonal(jax.random.key(0), [3, 8, 8, 2], jnp.tanh, 0.01)
    gains = [2.0, 2.0, 1e-4]
    for layer, square in zip(net.layers, gains, strict=True):
        small = layer.weight if layer.weight.shape[0] <= layer.weight.shape[1] else layer.weight.T
        np.testing.assert_allclose(small @ small.T, square * np.eye(small.shape[0]), atol=1e-5)
