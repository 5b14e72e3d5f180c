from dataclasses import replace
from functools import partial

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from iadd_tr import training
from iadd_tr.agent import critic, policy, sac
from iadd_tr.settings import override
from iadd_tr.stage import Problem
from iadd_tr.study import frozen as freezing
from iadd_tr.study import gradient, paired, variants
from iadd_tr.study.paired import Variant
from iadd_tr.tasks.simulator import Simulator
from iadd_tr.tasks.task import resolve

STUDY = replace(
    gradient.QUICK,
    checkpoints=(1,),
    seeds=(1, 2),
    epoch_length=60,
    warm_up=200,
    hidden=8,
    rows=100,
    critic_epochs=2,
    states=4,
    trajectories=3,
    horizon=12,
)
SMALL = override(STUDY.settings(1), batch=32)
LOUD = Variant("loud", rate=3e-2, floor=0.1)


@pytest.fixture(scope="module")
def agent():
    task = resolve(STUDY.task)
    simulator = Simulator(task, threads=2)
    (epoch,) = training.train(Problem(task, SMALL))
    return freezing.freeze(epoch.state, simulator, STUDY.sizes(1), STUDY.agent_seed), simulator


@pytest.fixture(scope="module")
def pairs(agent):
    frozen, simulator = agent
    return freezing.trajectories(jax.random.key(0), frozen, simulator, STUDY.trajectories, STUDY.horizon, 0.99)


def test_rows_are_held_out_and_their_states_are_those_they_were_collected_in(agent):
    frozen, simulator = agent
    used = {row.tobytes() for row in np.asarray(frozen.rows.observation)}
    assert not used & {row.tobytes() for row in np.asarray(frozen.held_out.observation)}
    _, step = simulator.step(np.asarray(frozen.states, float), np.asarray(frozen.held_out.action))
    np.testing.assert_allclose(step.reward, frozen.held_out.reward, atol=1e-3)
    np.testing.assert_allclose(step.next_observation, frozen.held_out.next_observation, atol=1e-2)


def test_returns_are_those_of_gymnasium_and_add_the_entropies_of_all_actions_but_the_first(agent):
    frozen, simulator = agent
    temperature, gamma, horizon = 0.3, 0.9, 6
    still = jax.tree.map(jnp.zeros_like, frozen.actor)
    frozen = replace(frozen, actor=still, temperature=jnp.array(temperature))
    found = freezing.trajectories(jax.random.key(1), frozen, simulator, 2, horizon, gamma)
    env = gym.make("Hopper-v5").unwrapped
    state = np.asarray(frozen.states[1], float)
    taken = []

    def act(t, seen):
        key = jax.random.fold_in(jax.random.split(jax.random.key(1))[1], t)
        action, density = policy.sample(key, still, jnp.asarray(seen))
        taken.append((np.asarray(action), np.asarray(density)))
        return np.resize(np.asarray(found.action), action.shape) if t == 0 else np.asarray(action)

    trail = simulator.follow(np.repeat(np.asarray(frozen.states, float), 2, axis=0), act, horizon)
    env.reset(seed=0)
    env.set_state(state[1:7], state[7:])
    plain, bonus = 0.0, 0.0
    for t in range(int(trail.live[:, 2].sum())):
        row = int(np.flatnonzero(np.flatnonzero(trail.live[t]) == 2)[0])
        action = np.asarray(found.action[2]) if t == 0 else taken[t][0][row]
        plain += gamma**t * float(env.step(action)[1])
        bonus -= gamma**t * temperature * float(taken[t][1][row]) * (t > 0)
    assert float(found.plain[2]) == pytest.approx(plain, abs=1e-3)
    assert float(found.soft[2]) == pytest.approx(plain + bonus, abs=1e-3)
    assert bonus != 0
    np.testing.assert_array_equal(found.length, trail.live.sum(axis=0))


def test_a_score_gradient_is_the_derivative_of_the_log_density_times_the_value(agent, pairs):
    frozen, _ = agent

    def weighed(actor, value):
        return jnp.mean(value * policy.log_density(actor, pairs.observation, pairs.action))

    values = jnp.stack([pairs.soft, pairs.plain**2])
    found = freezing.score_gradients(frozen.actor, pairs, values)
    for one, value in zip(found, values, strict=True):
        expected, _ = ravel_pytree(jax.grad(weighed)(frozen.actor, value))
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-4 * float(jnp.abs(expected).max()))


def trained(agent, pairs, ways, seed, settings=SMALL):
    """Critics and corrections after an epoch, and what they began with."""
    frozen, _ = agent
    runs, choices = paired.batch(settings, ways, [seed])
    started = paired.begin(settings.agent, frozen, pairs, runs, choices)
    kept = jax.tree.map(lambda x: x[0].copy(), (started[0].state, jax.tree.map(lambda x: x[:, 0], started[1]), runs))
    return paired.epoch(settings.agent, frozen.rows, pairs, 0, runs, choices, *started), kept


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_the_gradient_of_summed_values_is_the_sum_of_the_gradients_after_every_update(agent, pairs, beta):
    frozen, _ = agent
    (critics, correction), (state, own, run) = trained(agent, pairs, [replace(LOUD, beta=beta)], seed=3)
    state = replace(state, epsilon=own.fast, slow_epsilon=own.slow)
    run = replace(run, beta=jnp.array(beta), log_floor=jnp.log(0.1), targeted_rate=jnp.array(3e-2))
    order_key, noise_key = jax.random.split(run.at(1, 0))
    order = np.resize(jax.random.permutation(order_key, 100), (4, 32))
    noise = jax.random.normal(noise_key, (4, 32, 3))
    plain, total, update = 0.0, 0.0, jax.jit(partial(sac.update_critics, agent=SMALL.agent))
    for index, drawn in zip(order, noise, strict=True):
        rows = jax.tree.map(lambda x, index=index: x[index], frozen.rows)
        state, _ = update(sac.Noise(drawn, drawn), state, rows, run)
        twins = critic.values(state.critics.value, pairs.observation, pairs.action)
        inverse = 1 / np.maximum(np.exp(pairs.log_density), 0.1)
        shift = jax.vmap(lambda net: net(pairs.action)[:, 0])(state.epsilon.value) * inverse[None]
        values = jnp.stack([jnp.min(twins, axis=0), jnp.min(twins + shift, axis=0)])
        one, other = freezing.score_gradients(frozen.actor, pairs, values)
        plain, total = plain + one, total + other
    found = freezing.score_gradients(frozen.actor, pairs, jnp.stack([critics.value[0], correction.value[0, 0]]))
    for one, other in zip(found, (plain, total), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * float(np.abs(other).max()))
    assert (float(correction.size[0, 0]) > 1e-3) == (beta > 0)


def test_a_solved_correction_is_the_same_for_both_twins_where_it_is_shared(agent, pairs):
    settings = override(STUDY.settings(1, variants.SOLVE), batch=32)
    ways = [replace(variants.SOLVE, beta=0.0), variants.SOLVE, replace(variants.SOLVE, shared=True)]
    (_, correction), _ = trained(agent, pairs, ways, 5, settings)
    without, own, joint = np.asarray(correction.fast.value.coefficients[0])
    assert np.all(without == 0)
    assert np.abs(own[0] - own[1]).max() > 1e-2 * np.abs(own).max()
    np.testing.assert_allclose(joint[0], joint[1], atol=1e-3 * np.abs(joint).max())
    assert np.all(np.asarray(correction.size[0, 1:]) > 0)


def test_a_diagnosis_compares_with_the_critic_of_the_same_seed(agent, pairs):
    frozen, _ = agent
    study = replace(STUDY, critic_epochs=1)
    still = Variant("still", rate=0.0)
    rows = gradient.diagnose(study, 1, frozen, pairs, [still, LOUD, replace(LOUD, name="logged", density="logged")])
    assert [(row["variant"], row["seed"]) for row in rows] == [
        (name, seed) for name in ("still", "loud", "logged") for seed in STUDY.seeds
    ]
    for row in rows[:2]:
        assert row["gain"] == 0 == row["correction"]
        assert row["cosine_with"] == row["cosine_without"]
    for row, other in zip(rows[2:4], rows[4:], strict=True):
        assert row["cosine_without"] == other["cosine_without"]
        assert row["gain"] == pytest.approx(row["cosine_with"] - row["cosine_without"])
        assert row["gain"] != other["gain"]
        assert abs(row["centred_cosine_with"]) <= 1
    assert rows[0]["cosine_without"] != rows[1]["cosine_without"]
    assert 0 <= rows[0]["floored"] <= 1


def test_truth_itself_has_a_cosine_of_one_and_centring_takes_a_states_own_level_away(agent, pairs):
    frozen, _ = agent
    level = jnp.repeat(jnp.array([5.0, -3.0, 1.0, 50.0]), STUDY.trajectories)
    found = gradient.alignments(frozen, pairs, jnp.stack([pairs.soft, pairs.soft + level]), STUDY.states, 1)
    np.testing.assert_allclose(found["cosine"][0], 1.0, atol=1e-4)
    assert found["cosine"][1] < 0.999
    np.testing.assert_allclose(found["centred_cosine"], 1.0, atol=1e-3)
    flat = jnp.stack([pairs.soft, pairs.soft + jnp.mean(level)])
    np.testing.assert_allclose(found["level_cosine"], freezing_cosine(frozen, pairs, flat), atol=1e-5)


def freezing_cosine(frozen, pairs, values):
    one, other = np.asarray(freezing.score_gradients(frozen.actor, pairs, values), float)
    return [1.0, one @ other / np.linalg.norm(one) / np.linalg.norm(other)]
