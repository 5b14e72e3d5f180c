from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr.tasks.envs import episode_seed, rescale
from iadd_tr.tasks.host import Host
from iadd_tr.tasks.task import Task, TaskError, resolve

seeds = st.integers(0, 2**31)


class Count(gym.Env):
    """Counts its steps; a true end after `end`, a time limit after `limit`, and no number after `broken`."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)

    def __init__(self, end: int = 99, limit: int = 99, broken: int = 99, reward: float = 1.0):
        self.end, self.limit, self.broken, self.reward = end, limit, broken, reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray):
        self.time += 1
        value = np.nan if self.time == self.broken else self.time
        observation = np.full(1, value, np.float32)
        return observation, self.reward, self.time == self.end, self.time == self.limit, {}


def counting(**arguments: Any) -> Task:
    return Task("count", lambda: Count(**arguments), 1, (-2.0,), (4.0,), (0.0,), None)


def walk(host: Host, count: int, seed: int = 0) -> list[np.ndarray]:
    """The columns of `count` random steps: reached, reward, discount, and where the host stands after each."""
    random = np.random.default_rng(seed)
    shape = (len(host.seeds), host.task.actions)
    steps = []
    for _ in range(count):
        step = host.step(random.uniform(-1.0, 1.0, shape).astype(np.float32))
        steps.append((step.next_observation, step.reward, step.discount, host.observations.copy()))
    return [np.array(column) for column in zip(*steps, strict=True)]


@given(
    low=st.floats(-10, 10, width=32),
    width=st.floats(0.125, 20, width=32),
    actions=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=5),
)
def test_rescaling_is_linear_from_the_unit_box_and_stays_inside_the_bounds(low, width, actions):
    low, high = np.float32(low), np.float32(low + width)
    bounds = np.full(len(actions), low, np.float64), np.full(len(actions), high, np.float64)
    scaled = rescale(np.array(actions, np.float32), *bounds)
    assert scaled.dtype == np.float32
    assert np.all(scaled >= low)
    assert np.all(scaled <= high)
    np.testing.assert_allclose(scaled, np.interp(actions, [-1, 1], [low, high]), atol=1e-5)


def test_rescaling_meets_both_bounds_of_humanoid_and_never_passes_them():
    task = resolve("humanoid")
    low, high = np.asarray(task.low), np.asarray(task.high)
    np.testing.assert_allclose([low, high], [[-0.4] * 17, [0.4] * 17], rtol=1e-6)
    for action in (1.0, 1.0 + 1e-6, 5.0):
        assert rescale(np.full(17, action, np.float32), low, high).tolist() == np.float32(high).tolist()
        assert rescale(np.full(17, -action, np.float32), low, high).tolist() == np.float32(low).tolist()
    np.testing.assert_allclose(rescale(np.full(17, 0.5, np.float32), low, high), 0.2, rtol=1e-6)


def test_the_environment_gets_the_rescaled_action():
    class Echo(Count):
        def step(self, action: np.ndarray):
            return super().step(action)[0], float(action[0]), False, False, {}

    host = Host(replace(counting(), make=Echo), [1, 2, 3])
    step = host.step(np.array([[-1.0], [0.0], [1.0]], np.float32))
    assert step.reward.tolist() == [-2.0, 1.0, 4.0]


def test_a_time_limit_keeps_the_discount_and_a_true_end_takes_it():
    cut = walk(Host(counting(limit=3), [1]), 6)
    ended = walk(Host(counting(end=3), [1]), 6)
    both = walk(Host(counting(end=3, limit=3), [1]), 6)
    assert cut[2][:, 0].tolist() == [1, 1, 1, 1, 1, 1]
    assert ended[2][:, 0].tolist() == [1, 1, 0, 1, 1, 0]
    assert both[2][:, 0].tolist() == [1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("kind", ["end", "limit"])
def test_the_observation_reached_is_the_one_before_the_reset(kind):
    reached, _, _, standing = walk(Host(counting(**{kind: 3}), [1]), 4)
    assert reached[:, 0, 0].tolist() == [1, 2, 3, 1]
    assert standing[:, 0, 0].tolist() == [1, 2, 0, 1]


def test_runs_end_and_reset_each_on_their_own():
    made = iter([Count(end=2), Count(limit=3), Count()])
    host = Host(replace(counting(), make=lambda: next(made)), [1, 2, 3])
    reached, _, discount, standing = walk(host, 4)
    assert reached[..., 0].tolist() == [[1, 1, 1], [2, 2, 2], [1, 3, 3], [2, 1, 4]]
    assert standing[..., 0].tolist() == [[1, 1, 1], [0, 2, 2], [1, 0, 3], [0, 1, 4]]
    assert discount.tolist() == [[1, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize("taken", [0, 1, 37, 150])
def test_a_host_restored_from_places_stands_where_it_stood_and_goes_on_alike(taken):
    task, seeds = resolve("hopper"), [3, 4, 5]
    first = Host(task, seeds)
    walk(first, taken, seed=1)
    second = Host(task, seeds, first.places())
    np.testing.assert_array_equal(second.observations, first.observations)
    ahead, again = walk(first, 120, seed=2), walk(second, 120, seed=2)
    for one, other in zip(ahead, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (ahead[2] == 0).sum(axis=0).min() >= 2
    for one, other in zip(first.places(), second.places(), strict=True):
        assert one.episode == other.episode
        np.testing.assert_array_equal(one.actions, other.actions)


FIELDS = ("observation", "reward", "next_observation", "discount", "last")


@pytest.mark.parametrize("lengths", [(90,), (1, 60, 29)])
def test_a_walk_is_its_steps(lengths):
    task, seeds = resolve("hopper"), [3, 4]
    one, other = Host(task, seeds), Host(task, seeds)
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 90, 3)).astype(np.float32)
    steps = [one.step(actions[:, number]) for number in range(90)]
    walks = [other.walk(part) for part in np.split(actions, np.cumsum(lengths)[:-1], axis=1)]
    for field in FIELDS:
        together = np.concatenate([getattr(walked, field) for walked in walks], axis=1)
        plain = np.stack([getattr(step, field) for step in steps], axis=1)
        np.testing.assert_array_equal(together, plain, field)
        assert together.dtype == plain.dtype
    assert min(place.episode for place in one.places()) >= 1
    assert max(place.episode for place in one.places()) >= 2
    np.testing.assert_array_equal(one.observations, other.observations)
    for ours, theirs in zip(one.places(), other.places(), strict=True):
        assert ours.episode == theirs.episode
        np.testing.assert_array_equal(ours.actions, theirs.actions)


def test_an_environment_may_answer_in_the_same_array_again():
    class Frugal(Count):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
            self.seen, _ = super().reset(seed=seed)
            return self.seen, {}

        def step(self, action: np.ndarray):
            observation, *rest = super().step(action)
            self.seen[:] = observation
            return self.seen, *rest

    host = Host(replace(counting(), make=lambda: Frugal(end=3)), [1])
    walked = host.walk(np.zeros((1, 5, 1), np.float32))
    assert walked.observation[0, :, 0].tolist() == [0, 1, 2, 0, 1]
    assert walked.next_observation[0, :, 0].tolist() == [1, 2, 3, 1, 2]


def test_places_tell_the_episode_and_the_actions_since_its_reset():
    host = Host(counting(limit=3), [1])
    walk(host, 7, seed=5)
    (place,) = host.places()
    random = np.random.default_rng(5)
    actions = [random.uniform(-1.0, 1.0, (1, 1)).astype(np.float32) for _ in range(7)]
    assert place.episode == 2
    assert place.actions.tolist() == actions[-1].tolist()
    walk(host, 2)
    assert host.places()[0].actions.shape == (0, 1)


@pytest.mark.parametrize("fault", [{"broken": 3}, {"reward": np.nan}, {"reward": np.inf}])
def test_a_number_that_is_not_finite_is_named_with_its_seed_and_step(fault):
    host, step = Host(counting(**fault), [7]), fault.get("broken", 1)
    walk(host, step - 1)
    with pytest.raises(TaskError, match=rf"'count'.*not finite \(seed 7, step {step} of episode 0\).*--resume"):
        walk(host, 1)


@pytest.mark.parametrize("taken", [0, 2])
def test_a_walk_names_the_step_and_episode_that_broke(taken):
    class Late(Count):
        late = 7

        def step(self, action: np.ndarray):
            self.lived = getattr(self, "lived", 0) + 1
            observation, *rest = super().step(action)
            return observation * (np.nan if self.lived == self.late else 1.0), *rest

    host = Host(replace(counting(), make=lambda: Late(limit=3)), [7])
    walk(host, taken)
    with pytest.raises(TaskError, match=r"seed 7, step 1 of episode 2\)"):
        host.walk(np.zeros((1, 9, 1), np.float32))


def test_a_later_reset_that_is_not_finite_is_named():
    class Once(Count):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
            start, info = super().reset(seed=seed)
            return start * (1.0 if seed == episode_seed(7, 0) else np.nan), info

    host = Host(replace(counting(), make=lambda: Once(limit=2)), [7])
    with pytest.raises(TaskError, match=r"seed 7, reset of episode 1\)"):
        host.walk(np.zeros((1, 5, 1), np.float32))


def test_a_reset_that_is_not_finite_is_named_too():
    class Broken(Count):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
            return np.full(1, np.nan, np.float32), {}

    with pytest.raises(TaskError, match=r"not finite \(seed 7, reset of episode 0\)"):
        Host(Task("count", Broken, 1, (-2.0,), (4.0,), (0.0,), None), [7])


def test_runs_of_the_same_seed_agree_and_others_differ():
    task = resolve("hopper")
    first, again, other = (Host(task, [seed, 9]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.observations, again.observations)
    assert not np.array_equal(first.observations[0], first.observations[1])
    assert not np.array_equal(first.observations[0], other.observations[0])
    np.testing.assert_array_equal(first.observations[1], other.observations[1])


def test_episodes_of_one_run_start_in_different_states():
    host = Host(resolve("probe:drift"), [1])
    starts = [host.observations[0, 0]]
    for _ in range(5):
        starts.append(walk(host, 20)[3][-1, 0, 0])
    assert len(set(starts)) == 6


@settings(max_examples=200)
@given(seed=seeds, other=seeds, episode=st.integers(0, 10_000), later=st.integers(0, 10_000))
def test_seeds_of_training_and_evaluation_episodes_do_not_meet(seed, other, episode, later):
    assert episode_seed(seed, episode, stream=0) == episode_seed(seed, episode)
    assert episode_seed(seed, episode, stream=0) != episode_seed(other, later, stream=1)
