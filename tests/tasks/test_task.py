import gymnasium as gym
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iadd_tr.tasks.envs import rescale
from iadd_tr.tasks.presets import PRESETS
from iadd_tr.tasks.task import TaskError, resolve

SIZES = {
    "halfcheetah": (17, 6),
    "hopper": (11, 3),
    "walker2d": (17, 6),
    "ant": (27, 8),
    "humanoid": (45, 17),
    "inverted-pendulum": (4, 1),
}


class Shaped(gym.Env):
    """Spaces as asked, and nothing else."""

    def __init__(self, actions: gym.Space, observations: gym.Space | None = None):
        self.action_space = actions
        self.observation_space = observations or box(-1.0, 1.0)


def box(low, high) -> gym.spaces.Box:
    low, high = np.atleast_1d(np.float32(low)), np.atleast_1d(np.float32(high))
    return gym.spaces.Box(low, high, low.shape, np.float32)


@pytest.fixture
def shaped(monkeypatch):
    """The name of a task with the given spaces, registered for one test."""
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.envs.registration.registry))

    def make(*spaces: gym.Space) -> str:
        gym.register("Shaped-v0", entry_point=lambda: Shaped(*spaces), disable_env_checker=True)
        return "gym:Shaped-v0"

    return make


@pytest.mark.parametrize("name", SIZES)
def test_presets_have_the_sizes_of_mbpo(name):
    task = resolve(name)
    assert (task.observations, task.actions) == SIZES[name]
    assert task.ending is not None
    assert task.anchor == (0.0,) * task.actions


@pytest.mark.parametrize("name", SIZES)
def test_presets_are_made_in_silence(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    resolve(name).make().close()
    assert list(tmp_path.iterdir()) == []  # MuJoCo would leave its log of warnings here
    assert capfd.readouterr() == ("", "")


def test_other_environments_may_warn(monkeypatch):
    """A preset's silence ends with its making, and `gym:` has none."""

    def make(*_, **__):
        mujoco.get_mju_user_warning()("old")
        return Shaped(box(-1.0, 1.0))

    heard = []
    monkeypatch.setattr(gym, "make", make)
    mujoco.set_mju_user_warning(heard.append)
    try:
        resolve("halfcheetah")
        assert heard == []
        resolve("gym:HalfCheetah-v5")
        assert heard == ["old"]
    finally:
        mujoco.set_mju_user_warning(None)


def test_every_preset_has_its_size_tested():
    assert set(SIZES) == set(PRESETS)


def test_a_gymnasium_environment_has_its_own_ending_or_none():
    assert resolve("gym:Hopper-v5").ending is resolve("hopper").ending
    assert resolve("gym:MountainCarContinuous-v0").ending is None


@pytest.mark.parametrize("name", ["hoper", "gym:", "probe:none", ""])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(TaskError, match=r"There is no task '.*'; take one of halfcheetah, hopper.*or gym:ID"):
        resolve(name)


def test_an_unknown_gymnasium_environment_says_why_it_cannot_be_made():
    with pytest.raises(TaskError, match=r"'gym:Nowhere-v0' cannot be made: .*Nowhere"):
        resolve("gym:Nowhere-v0")


def test_discrete_actions_are_refused():
    with pytest.raises(TaskError, match=r"Discrete\(2\); only a flat Box of continuous actions"):
        resolve("gym:CartPole-v1")


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (-1.0, np.inf), (-np.inf, 1.0)])
def test_unbounded_actions_are_refused_with_the_wrapper_that_helps(shaped, low, high):
    with pytest.raises(TaskError, match=r"unbounded actions; wrap it in gymnasium.wrappers.RescaleAction"):
        resolve(shaped(box(low, high)))


@pytest.mark.parametrize(
    "space", [gym.spaces.Box(-1, 1, (2, 3)), gym.spaces.Dict(x=box(-1, 1)), gym.spaces.Discrete(3)]
)
def test_observations_that_are_not_flat_are_refused_with_the_wrapper_that_helps(shaped, space):
    with pytest.raises(TaskError, match=r"wrap it in gymnasium.wrappers.FlattenObservation"):
        resolve(shaped(box(-1.0, 1.0), space))


def test_actions_that_are_not_flat_are_refused(shaped):
    with pytest.raises(TaskError, match="only a flat Box"):
        resolve(shaped(gym.spaces.Box(-1, 1, (2, 2))))


def test_the_anchor_of_asymmetric_bounds_is_where_zero_lies_between_them(shaped):
    task = resolve(shaped(box([-1.0, -3.0, 0.0, -1.0], [3.0, 1.0, 1.0, 0.0])))
    assert task.anchor == pytest.approx((-0.5, 0.5, -1.0, 1.0))


def test_a_given_reference_action_is_scaled_to_the_agents_units(shaped):
    task = resolve(shaped(box([-2.0, 1.0], [2.0, 5.0])), (1.0, 2.0))
    assert task.anchor == pytest.approx((0.5, -0.5))


def test_a_reference_action_of_the_wrong_length_is_refused():
    with pytest.raises(TaskError, match=r"--zero-action has 2 numbers; task 'hopper' takes 3"):
        resolve("hopper", (0.0, 0.0))


@pytest.mark.parametrize("value", [-1.5, 1.5, np.inf, np.nan])
def test_a_reference_action_outside_the_bounds_is_refused(value):
    with pytest.raises(TaskError, match=r"outside its bounds .*--zero-action"):
        resolve("hopper", (0.0, value, 0.0))


def test_a_task_that_cannot_do_nothing_asks_for_a_reference_action(shaped):
    name = shaped(box([1.0], [3.0]))
    with pytest.raises(TaskError, match="choose one inside with --zero-action"):
        resolve(name)
    assert resolve(name, (2.0,)).anchor == (0.0,)


bounds = st.tuples(st.floats(-100, 99.5, width=32), st.floats(0.5, 200, width=32))


@settings(max_examples=100, deadline=None)
@given(bounds=st.lists(bounds, min_size=1, max_size=4), share=st.floats(0, 1))
def test_the_anchor_maps_back_to_the_reference_action(bounds, share):
    low = np.array([low for low, _ in bounds])
    high = low + np.array([width for _, width in bounds])
    space = box(low, high)
    reference = np.float64(space.low) + share * (np.float64(space.high) - np.float64(space.low))
    reference = np.clip(reference, space.low, space.high)
    anchor = anchor_of(space, tuple(reference.tolist()))
    assert all(-1.0 <= x <= 1.0 for x in anchor)
    scaled = rescale(np.array(anchor, np.float32), np.float64(space.low), np.float64(space.high))
    np.testing.assert_allclose(scaled, reference, atol=2e-7 * float(np.max(np.abs([low, high]))) + 1e-6)


def anchor_of(space: gym.spaces.Box, reference: tuple[float, ...]) -> tuple[float, ...]:
    gym.register("Anchored-v0", entry_point=lambda: Shaped(space), disable_env_checker=True)
    try:
        return resolve("gym:Anchored-v0", reference).anchor
    finally:
        del gym.envs.registration.registry["Anchored-v0"]


def test_the_anchor_of_a_preset_is_exactly_the_zero_action():
    for name in SIZES:
        task = resolve(name)
        scaled = rescale(np.array(task.anchor, np.float32), np.asarray(task.low), np.asarray(task.high))
        assert scaled.tolist() == [0.0] * task.actions
