import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr import replay
from iadd_tr.dynamics import difference
from iadd_tr.settings import Slbo
from iadd_tr.types import Transition

SETTINGS = Slbo(model_width=32, model_updates=400, model_batch=64)


def episodes(count: int = 60, length: int = 10) -> replay.Replay:
    """s' = 0.9 s + 0.5 a in short episodes, reward s + a, one after another."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        state = random.normal(size=2)
        for step in range(length):
            action = random.uniform(-1, 1, 2)
            after = 0.9 * state + 0.5 * action
            rows.append((state, action, 0.0, state[0] + action[1], after, float(step + 1 < length)))
            state = after
    columns = [jnp.asarray(np.array(column), jnp.float32) for column in zip(*rows, strict=True)]
    buffer = replay.init(count * length, 2, 2)
    return replay.extend(buffer, Transition(*columns), jnp.ones(count * length, bool))


def test_windows_follow_each_other_and_stop_at_the_episode():
    windows, live = difference.draw_windows(jax.random.key(0), episodes(), 500, 3)
    joined = np.all(np.asarray(windows.next_observation[:, :-1]) == np.asarray(windows.observation[:, 1:]), axis=-1)
    assert np.all(np.asarray(live)[:, 0])
    np.testing.assert_array_equal(np.asarray(live)[:, 1], joined[:, 0])
    np.testing.assert_array_equal(np.asarray(live)[:, 2], joined[:, 0] & joined[:, 1])
    assert 0.7 < np.asarray(live)[:, 2].mean() < 0.9  # two of ten starts run over the edge


def test_the_loss_agrees_with_a_plain_computation():
    buffer = episodes(8)
    model = difference.rescale(difference.init(jax.random.key(0), 2, 2, SETTINGS), buffer)
    windows, live = difference.draw_windows(jax.random.key(1), buffer, 16, 2)
    value = difference.loss(model.net, model, windows, live, 0.01)
    mean, deviation = np.asarray(model.difference.mean), np.sqrt(np.asarray(model.difference.variance))
    total = 0.0
    for b in range(16):
        state = np.asarray(windows.observation[b, 0])
        for h in range(2):
            if not live[b, h]:
                continue
            answer = difference.guess(model.net, model, jnp.asarray(state)[None], windows.action[b, h][None])
            target = (np.asarray(windows.next_observation[b, h] - windows.observation[b, h]) - mean) / deviation
            reward = (windows.reward[b, h] - model.reward.mean) / np.sqrt(model.reward.variance)
            total += np.linalg.norm(np.asarray(answer.difference[0]) - target) + abs(float(answer.reward[0] - reward))
            chance = 1 / (1 + np.exp(-float(answer.end_logit[0])))
            total -= np.log(chance if windows.discount[b, h] == 0 else 1 - chance)
            state = state + mean + deviation * np.asarray(answer.difference[0])
    squares = sum(float(jnp.sum(layer.weight**2)) for layer in model.net.layers)
    assert float(value) == pytest.approx(total / np.asarray(live).sum() + 0.01 * squares, rel=1e-3)


def test_a_linear_system_is_learned():
    buffer = episodes()
    model = difference.rescale(difference.init(jax.random.key(0), 2, 2, SETTINGS), buffer)
    for i in range(4):
        model, _ = difference.fit(jax.random.key(i), model, buffer, SETTINGS)
    state, action = jax.random.normal(jax.random.key(7), (50, 2)), jax.random.uniform(jax.random.key(8), (50, 2))
    answer = difference.guess(model.net, model, state, action)
    np.testing.assert_allclose(difference.move(model, state, answer), 0.9 * state + 0.5 * action, atol=0.15)
    np.testing.assert_allclose(difference.reward_of(model, answer), state[:, 0] + action[:, 1], atol=0.3)
