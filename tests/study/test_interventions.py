import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from iadd_tr.agent import policy
from iadd_tr.study import interventions
from iadd_tr.study.interventions import KINDS, PATH_KINDS, Plan
from iadd_tr.tasks.simulator import PHYSICS, Simulator
from iadd_tr.tasks.task import resolve

PLAN = Plan(states=12, paths=6, copies=4, steps=60)


@pytest.fixture(scope="module")
def hopper():
    """A simulator, two policies, and the tests made with the first."""
    simulator = Simulator(resolve("hopper"), threads=1)
    actor, other = (policy.init(jax.random.key(seed), 11, 3, 16) for seed in (1, 2))
    return simulator, actor, other, interventions.make(jax.random.key(0), simulator, actor, other, 7, PLAN)


def gym_step(simulator, states, actions):
    """What Gymnasium says of one action in each state."""
    env = simulator.task.make()
    env.reset(seed=0)
    found = []
    for state, action in zip(states, actions, strict=True):
        env.reset(seed=0)
        mujoco.mj_setState(env.unwrapped.model, env.unwrapped.data, state, PHYSICS)
        mujoco.mj_forward(env.unwrapped.model, env.unwrapped.data)
        found.append(env.step(np.asarray(action))[:3])
    env.close()
    return [np.array(part) for part in zip(*found, strict=True)]


def test_every_kind_of_action_gets_its_true_outcome(hopper):
    simulator, actor, other, _ = hopper
    states = interventions.starts(simulator, 7, 3)
    rows = interventions.intervene(jax.random.key(3), simulator, actor, other, states)
    assert rows.reward.shape == (len(KINDS), 3)
    for k in range(len(KINDS)):
        reached, reward, ended = gym_step(simulator, states, rows.action[k])
        np.testing.assert_allclose(rows.next_observation[k], reached, atol=1e-4)
        np.testing.assert_allclose(rows.reward[k], reward, atol=1e-4)
        np.testing.assert_array_equal(rows.discount[k], 1.0 - ended)
        np.testing.assert_array_equal(rows.observation[k], simulator.observe(states))


def test_actions_are_of_their_kinds(hopper):
    _, actor, other, _ = hopper
    seen, anchor, key = jnp.zeros((4000, 11)), jnp.array([0.0, 0.5, -0.5]), jax.random.key(5)
    own, noisy, uniform, zero, strange = interventions.choices(key, actor, other, seen, anchor)
    np.testing.assert_array_equal(zero, np.broadcast_to(anchor, (4000, 3)))
    inside = np.abs(noisy) < 1
    shift = np.where(inside, noisy - own, np.nan)
    assert np.nanstd(shift) == pytest.approx(interventions.NOISE, rel=0.1)
    assert np.abs(uniform).max() <= 1
    np.testing.assert_allclose(np.std(uniform, axis=0), np.full(3, 3**-0.5), rtol=0.05)
    for drawn, net in ((own, actor), (strange, other)):
        mean, log_deviation = policy.distribution(net, seen[:1])
        latent = np.arctanh(np.clip(np.asarray(drawn), -1 + 1e-6, 1 - 1e-6))
        np.testing.assert_allclose(np.median(latent, axis=0), mean[0], atol=0.1)
        np.testing.assert_allclose(np.std(latent, axis=0), np.exp(log_deviation[0]), rtol=0.1)
    assert len(interventions.choices(key, actor, None, seen, anchor)) == len(KINDS) - 1


def test_densities_are_those_of_the_policy_that_visits(hopper):
    _, actor, _, tests = hopper
    for k in range(len(KINDS)):
        density = policy.log_density(actor, tests.rows.observation[k], tests.rows.action[k])
        np.testing.assert_allclose(tests.rows.log_density[k], density, atol=1e-3)


def test_visited_states_follow_each_other_and_an_end_leads_back_to_the_start(hopper):
    simulator, actor, _, _ = hopper
    first = interventions.starts(simulator, 7, 2)
    assert not np.array_equal(first[0], first[1])
    found = interventions.visit(jax.random.key(1), simulator, actor, first, 60).reshape(60, 2, -1)
    ended = simulator.ended(found)
    assert not ended.any()
    for copy in range(2):
        back = np.all(found[1:, copy] == first[copy], axis=1)
        clock = found[:, copy, 0]
        np.testing.assert_allclose(np.diff(clock)[~back], simulator.seconds, rtol=1e-6)
    assert np.any(found[1:] == first[None], axis=(1, 2)).any()


def test_paths_are_what_gymnasium_does_with_the_same_actions(hopper):
    simulator, actor, _, tests = hopper
    paths = tests.paths
    assert paths.reached.shape == (len(PATH_KINDS), PLAN.paths, 25, 11)
    assert paths.live[..., 0].all()
    assert not paths.live.all()
    state = interventions.starts(simulator, 7, 1)
    for net in (actor, None):
        path = interventions.follow(jax.random.key(2), simulator, net, state)
        steps = int(path.live.sum())
        env = simulator.task.make()
        env.reset(seed=0)
        mujoco.mj_setState(env.unwrapped.model, env.unwrapped.data, state[0], PHYSICS)
        mujoco.mj_forward(env.unwrapped.model, env.unwrapped.data)
        for step in range(steps):
            reached, _, ended, _, _ = env.step(path.action[0, step])
            np.testing.assert_allclose(path.reached[0, step], reached, atol=1e-3)
            assert not (ended and step + 1 < steps)
        assert ended or steps == 25
        env.close()
