import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.tasks import endings
from iadd_tr.tasks.task import resolve

ROWS = 600
NEAR = 1e-5
EDGES = {  # per task: the numbers an ending looks at, as (coordinate of the observation, thresholds)
    "hopper": [(0, [0.7]), (1, [-0.2, 0.2])],
    "walker2d": [(0, [0.8, 2.0]), (1, [-1.0, 1.0])],
    "ant": [(0, [0.2, 1.0])],
    "humanoid": [(0, [1.0, 2.0])],
    "inverted-pendulum": [(1, [-0.2, 0.2])],
    "halfcheetah": [],
}
SKIPPED = {"hopper": 1, "walker2d": 1, "ant": 2, "humanoid": 2, "inverted-pendulum": 0, "halfcheetah": 1}


def random_state(env, name: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A pose near the task's own start whose watched coordinates lie anywhere around the thresholds."""
    position = env.init_qpos + random.uniform(-0.1, 0.1, env.model.nq)
    velocity = random.normal(0.0, random.choice([0.1, 1.0, 3.0]), env.model.nv)
    for coordinate, thresholds in EDGES[name]:
        middle, spread = np.mean(thresholds), np.ptp(thresholds)
        position[coordinate + SKIPPED[name]] = random.normal(middle, random.choice([0.05, 0.5, 3.0]) * (spread or 1.0))
    return position, velocity


def stepped(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Observations one step after random states, and whether the environment called each an end."""
    env, random = resolve(name).make().unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    observations, flags = [], []
    for _ in range(ROWS):
        env.set_state(*random_state(env, name, random))
        action = random.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        observation, _, terminated, _, _ = env.step(action)
        observations.append(observation)
        flags.append(terminated)
    env.close()
    return np.array(observations), np.array(flags)


def clear_of_edges(name: str, observations: np.ndarray) -> np.ndarray:
    """Rows whose watched coordinates rounding cannot carry over a threshold."""
    clear = np.ones(len(observations), bool)
    for coordinate, thresholds in EDGES[name]:
        for threshold in thresholds:
            clear &= np.abs(observations[:, coordinate] - threshold) > NEAR
    return clear


@pytest.mark.parametrize("name", EDGES)
def test_an_ending_is_the_environments_own(name):
    observations, flags = stepped(name)
    clear = clear_of_edges(name, observations)
    ours = np.asarray(resolve(name).ending(jnp.array(observations, jnp.float32)))
    assert clear.sum() > 0.9 * ROWS
    np.testing.assert_array_equal(ours[clear], flags[clear])
    if name == "halfcheetah":
        assert not flags.any()
    else:
        assert min(flags[clear].sum(), (~flags[clear]).sum()) > 50


@pytest.mark.parametrize("name", [name for name in EDGES if EDGES[name]])
def test_either_side_of_every_threshold_is_told_apart(name):
    task = resolve(name)
    middle = np.zeros((1, task.observations), np.float32)
    for coordinate, thresholds in EDGES[name]:
        middle[0, coordinate] = np.mean(thresholds) if len(thresholds) == 2 else thresholds[0] + 0.5
    assert not task.ending(jnp.array(middle))[0]
    for coordinate, thresholds in EDGES[name]:
        for threshold in thresholds:
            inward = np.sign(middle[0, coordinate] - threshold)
            rows = np.repeat(middle, 2, axis=0)
            rows[:, coordinate] = threshold + np.array([1e-3, -1e-3]) * inward
            assert task.ending(jnp.array(rows)).tolist() == [False, True]


@pytest.mark.parametrize(("value", "ends"), [(99.9, False), (-99.9, False), (100.1, True), (-100.1, True)])
def test_hopper_ends_where_any_coordinate_but_the_height_and_angle_passes_100(value, ends):
    for coordinate in range(2, 11):
        observation = jnp.zeros((1, 11)).at[0, 0].set(1.25).at[0, coordinate].set(value)
        assert bool(endings.hopper(observation)[0]) == ends


def test_hopper_may_be_as_high_as_it_likes():
    observation = jnp.zeros((1, 11)).at[0, 0].set(150.0)
    assert not endings.hopper(observation)[0]


@pytest.mark.parametrize("name", ["walker2d", "humanoid"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_watched_coordinate_that_is_no_number_is_an_end(name, value):
    task, observation = resolve(name), upright(name)
    assert not task.ending(observation)[0]
    for coordinate, _ in EDGES[name]:
        assert task.ending(observation.at[0, coordinate].set(value))[0]


@pytest.mark.parametrize("name", ["hopper", "ant", "inverted-pendulum"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_tasks_that_ask_for_finite_states_end_at_any_other(name, value):
    task, observation = resolve(name), upright(name)
    assert not task.ending(observation)[0]
    for coordinate in range(task.observations):
        assert task.ending(observation.at[0, coordinate].set(value))[0]


def upright(name: str) -> jnp.ndarray:
    """The observation of a task's own start."""
    env = resolve(name).make()
    observation, _ = env.reset(seed=0)
    env.close()
    return jnp.array(observation, jnp.float32)[None]


def test_a_registered_ending_reaches_the_task():
    def beyond(observation):
        return jnp.abs(observation[:, 0]) > 1.0

    kept = dict(endings.ENDINGS)
    try:
        endings.register_ending("MountainCarContinuous-v0", beyond)
        assert resolve("gym:MountainCarContinuous-v0").ending is beyond
    finally:
        endings.ENDINGS.clear()
        endings.ENDINGS.update(kept)
    assert resolve("gym:MountainCarContinuous-v0").ending is None
