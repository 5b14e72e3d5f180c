import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from iadd_tr.evaluate import Evaluator
from iadd_tr.tasks.crowd import Crowd, Here, Worker
from iadd_tr.tasks.envs import Life, Reflex, episode_seed
from iadd_tr.tasks.host import Host
from iadd_tr.tasks.task import Task, resolve


class Teller(gym.Env):
    """Says in which process it lives, prints as it goes, and breaks at a given action."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-9.0, 9.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options=None):
        super().reset(seed=seed)
        print("a new episode")
        return np.array([os.getpid(), seed], np.float64), {}

    def step(self, action: np.ndarray):
        if action[0] == 7:
            raise ValueError("seven")
        print("a step")
        return np.array([os.getpid(), action[0]]), 2.0 * float(action[0]), action[0] > 3, action[0] < -3, {}


@pytest.fixture
def spare(monkeypatch):
    """Sets how many cores are to spare."""
    return lambda count: monkeypatch.setattr("iadd_tr.tasks.crowd.spare_cores", lambda: count)


@pytest.fixture
def crowd(spare):
    spare(3)
    crowd = Crowd(Teller, 5)
    yield crowd
    crowd.close()


def test_environments_live_in_processes_of_their_own_and_answer_in_the_order_asked(crowd):
    assert [type(group) for group in crowd.groups] == [Worker] * 3
    started = crowd.reset(np.array([4, 0, 2]), np.array([40, 0, 20]))
    assert started[:, 1].tolist() == [40, 0, 20]
    lives = [Life(seed, 0, 0) for seed in range(5)]
    moved = crowd.step(np.arange(5), lives, np.arange(5.0)[:, None, None])
    assert moved.reached[:, 0, 1].tolist() == [0, 1, 2, 3, 4]
    assert moved.reward[:, 0].tolist() == [0, 2, 4, 6, 8]
    assert moved.ended[:, 0].tolist() == [False] * 4 + [True]
    assert moved.following[:, 0, 1].tolist() == [0, 1, 2, 3, episode_seed(4, 1)]
    pids = moved.reached[:, 0, 0]
    assert len(set(pids)) == 3
    assert os.getpid() not in pids
    assert started[:, 0].tolist() == pids[[4, 0, 2]].tolist()


def test_an_interrupt_at_the_keyboard_is_left_to_the_program(crowd):
    crowd.reset(np.arange(5), np.arange(5))
    for worker in crowd.groups:
        worker.process.send_signal(signal.SIGINT)
    assert crowd.reset(np.arange(5), np.arange(5))[:, 1].tolist() == [0, 1, 2, 3, 4]


def test_a_worker_that_is_left_in_the_middle_of_a_walk_leaves_in_silence(crowd, capfd):
    worker = crowd.groups[0]
    worker.ask("step", np.array([0]), [tuple(Life(1, 0, 0))], np.zeros((1, 20_000, 1)))
    worker.close()
    assert worker.process.returncode == 0
    assert "Traceback" not in capfd.readouterr().err


def test_what_goes_wrong_in_a_worker_is_told_here(crowd):
    with pytest.raises(RuntimeError, match="ValueError: seven"):
        crowd.step(np.array([1]), [Life(1, 0, 0)], np.array([[[7.0]]]))
    crowd.groups[2].process.kill()
    with pytest.raises((RuntimeError, BrokenPipeError), match=r"ended with code|Broken pipe"):
        crowd.step(np.array([2]), [Life(2, 0, 0)], np.array([[[1.0]]]))


def test_a_factory_that_cannot_leave_this_process_is_used_here(spare):
    spare(2)
    lock, here = threading.Lock(), os.getpid()

    def held():
        return Teller() if lock else None

    def homely():
        assert os.getpid() == here
        return Teller()

    for make in (held, homely):
        crowd = Crowd(make, 4)
        assert [type(group) for group in crowd.groups] == [Here]
        assert crowd.reset(np.array([3, 1]), np.array([8, 9])).tolist() == [[here, 8], [here, 9]]
        crowd.close()


def test_one_worker_is_no_worker(spare):
    for count, cores in ((1, 4), (4, 1), (4, 0)):
        spare(cores)
        assert [type(group) for group in Crowd(Teller, count).groups] == [Here]


@pytest.mark.parametrize("cores", [0, 2])
def test_a_crowd_that_was_never_asked_makes_nothing_to_close(spare, cores):
    spare(cores)
    made = []

    def make() -> gym.Env:
        made.append(1)
        return Teller()

    crowd = Crowd(make, 2)
    crowd.close()
    assert not made
    assert all(worker.process.returncode is not None for worker in crowd.workers)


def test_the_factories_of_presets_can_leave_the_process():
    """In a process without the shape checks of the tests, whose wrappers cannot be packed."""
    script = """if True:
        from iadd_tr import resolve
        from iadd_tr.tasks import crowd as crowds
        crowds.spare_cores = lambda: 2
        for name in ("hopper", "gym:Pendulum-v1", "probe:drift"):
            crowd = crowds.Crowd(resolve(name).make, 2)
            print(*(type(group).__name__ for group in crowd.groups))
            crowd.close()
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Worker"] * 6


def hopper() -> Task:
    return replace(resolve("hopper"), make=partial(gym.make, "Hopper-v5"))


def test_a_host_with_workers_is_the_host_without(spare):
    task, seeds = hopper(), [3, 4, 5]
    one = Host(task, seeds)
    spare(2)
    other = Host(task, seeds)
    assert (len(one.crowd.groups), len(other.crowd.groups)) == (1, 2)
    random, ends = np.random.default_rng(0), 0
    for _ in range(60):
        actions = random.uniform(-1, 1, (3, 3)).astype(np.float32)
        ours, theirs = one.step(actions), other.step(actions)
        for field in ("observation", "reward", "next_observation", "discount", "last"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
            assert getattr(ours, field).dtype == getattr(theirs, field).dtype
        np.testing.assert_array_equal(one.observations, other.observations)
        ends += ours.last.sum()
    assert ends > 0
    spare(3)
    again = Host(task, seeds, other.places())
    np.testing.assert_array_equal(again.observations, one.observations)
    for host in (one, other, again):
        host.close()


def test_an_evaluation_with_workers_is_the_one_without(spare):
    task = hopper()
    plain = Evaluator(task, [1, 2], 2)
    spare(3)
    spread = Evaluator(task, [1, 2], 2)
    assert len(spread.crowd.groups) == 3
    random = np.random.default_rng(0)
    policies = [Reflex([(random.normal(size=(11, 3)), np.zeros(3))], "relu", "tanh") for _ in range(2)]
    for ours, theirs in zip(plain.play(policies, 5), spread.play(policies, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    spread.close()
