import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.tasks.host import Host
from iadd_tr.tasks.simulator import RUNNERS, Simulator, retrace
from iadd_tr.tasks.task import TaskError, resolve
from iadd_tr.types import Transition

STEPS = 150


def envs_of(host: Host) -> list:
    return host.crowd.groups[0].envs.envs


def wander(name: str, runs: int = 2):
    """A host's random steps with the states before each and after the last, all from gymnasium alone."""
    task, random = resolve(name), np.random.default_rng(0)
    host, simulator = Host(task, range(1, runs + 1)), Simulator(task)
    states, actions, steps = [], [], []
    for _ in range(STEPS):
        states.append(simulator.states(envs_of(host)))
        actions.append(random.uniform(-1.0, 1.0, (runs, task.actions)).astype(np.float32))
        steps.append(host.step(actions[-1]))
    states.append(simulator.states(envs_of(host)))
    host.close()
    return simulator, np.array(states), np.array(actions), steps


@pytest.fixture(scope="module", params=RUNNERS)
def walk(request):
    return wander(request.param)


def test_a_step_from_any_visited_state_is_gymnasiums_own(walk):
    simulator, states, actions, steps = walk
    reached, ours = simulator.step(states[:-1].reshape(-1, states.shape[-1]), actions.reshape(-1, actions.shape[-1]))
    for field in ("observation", "reward", "next_observation", "discount"):
        theirs = np.concatenate([getattr(step, field) for step in steps])
        np.testing.assert_allclose(getattr(ours, field), theirs, rtol=1e-5, atol=1e-5, err_msg=field)
    gone_on = ~np.concatenate([step.last for step in steps])
    np.testing.assert_allclose(reached[gone_on], states[1:].reshape(reached.shape)[gone_on], atol=1e-10)
    ends = sum((step.discount == 0).sum() for step in steps)
    assert ends == 0 if simulator.task.name == "halfcheetah" else ends > 0


def test_an_episode_restored_in_the_middle_goes_on_alike(walk):
    simulator, states, actions, steps = walk
    last = np.array([step.last for step in steps])[:, 0]
    ends = [*np.flatnonzero(last), STEPS - 1]
    end = ends[int(np.argmax(np.diff([-1, *ends])))]
    start = end - 12
    reached, ours = simulator.sequence(states[start, :1], actions[start : end + 1, 0][None])
    np.testing.assert_allclose(ours.reward[0], [step.reward[0] for step in steps[start : end + 1]], atol=1e-5)
    np.testing.assert_allclose(reached[0, :-1], states[start + 1 : end + 1, 0], atol=1e-8)
    assert ours.last[0].tolist() == (last[start : end + 1] & (simulator.task.name != "halfcheetah")).tolist()


def test_velocities_beyond_the_limit_are_clipped_and_still_end_an_episode():
    task = resolve("hopper")
    simulator, host = Simulator(task), Host(task, [1])
    env = envs_of(host)[0].unwrapped
    velocity = np.zeros(6)
    velocity[3] = 60.0
    env.set_state(env.init_qpos, velocity)
    (state,) = simulator.states(envs_of(host))
    fast = state.copy()
    fast[-3:] = 500.0
    both = np.stack([state, fast])
    seen = simulator.observe(both)
    np.testing.assert_allclose(seen[0], env._get_obs(), atol=1e-6)
    assert simulator.ended(both[:, None])[:, 0].tolist() == [False, True]
    np.testing.assert_array_equal(simulator.ended(both[:1, None])[0, 0], not env.is_healthy)


def test_a_replay_is_retraced_from_its_seeds_and_actions(walk):
    simulator, states, actions, steps = walk
    columns = [np.array([getattr(step, name) for step in steps])[:, 1] for name in ("observation", "next_observation")]
    filler = np.zeros(STEPS, np.float32)
    rows = Transition(*map(jnp.asarray, (columns[0], actions[:, 1], filler, filler, columns[1], filler)))
    index = np.random.default_rng(2).permutation(STEPS)
    np.testing.assert_array_equal(retrace(simulator, 2, rows, index), states[index, 1])


def test_following_a_policy_is_a_loop_over_single_copies_that_stop_at_their_ends():
    task = resolve("hopper")
    simulator = Simulator(task, threads=2)
    host = Host(task, range(1, 6))
    starts = simulator.states(envs_of(host))
    weights = np.random.default_rng(1).normal(size=(task.observations, task.actions))
    sizes = set()

    def act(t: int, observation: np.ndarray) -> np.ndarray:
        sizes.add(len(observation))
        return np.tanh(observation @ weights + np.sin(t)).astype(np.float32)

    trail = simulator.follow(starts, act, 100)
    for copy, env in enumerate(envs_of(host)):
        observation, total, length, ended = host.observations[copy : copy + 1], 0.0, 0, False
        while not ended:
            action = act(length, observation)[0]
            reached, reward, ended, _, _ = env.step(action)
            observation, total, length = np.asarray(reached, np.float32)[None], total + float(reward), length + 1
        assert trail.live[:, copy].tolist() == [True] * length + [False] * (100 - length)
        np.testing.assert_allclose(trail.reward[:, copy].sum(), total, rtol=1e-4)
        np.testing.assert_allclose(simulator.observe(trail.states[copy]), observation[0], atol=1e-4)
    assert sizes <= {1, 2, 4, 8}
    assert len(np.unique(trail.live.sum(axis=0))) > 1
    host.close()


def test_other_tasks_are_refused_with_those_there_are():
    with pytest.raises(TaskError, match="take one of hopper, walker2d, halfcheetah"):
        Simulator(resolve("probe:drift"))
