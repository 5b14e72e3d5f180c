import threading
from dataclasses import replace
from functools import partial

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import problem

from iadd_tr.agent import policy
from iadd_tr.algorithm import sac
from iadd_tr.algorithm.collect import ACT, EXPLORE, STORE
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.stage import Problem
from iadd_tr.tasks.host import Host
from iadd_tr.tasks.task import TaskError
from iadd_tr.training import train


def live(buffer, run: int):
    size = int(buffer.size[run])
    return jax.tree.map(lambda x: np.asarray(x[run, :size]), buffer.rows)


@pytest.fixture(scope="module")
def epochs():
    """Two epochs of IADD with many zero-action rows, for two ratios in one batch."""
    setting = problem("gym:Pendulum-v1", "iadd-tr", zero_ratios=(0.0, 0.4), epochs=2, epoch_length=40, warm_up=60)
    return setting, list(train(setting))


def test_zero_rows_are_apart_and_nothing_is_lost(epochs):
    _, (*_, last) = epochs
    memory = last.state.memory
    collected = 60 + 2 * 40
    assert np.all(np.asarray(memory.real.size + memory.zeros.size) == collected)
    assert int(memory.zeros.size[0]) == 0
    assert 0.25 * collected < int(memory.zeros.size[1]) < 0.55 * collected
    assert [line["zero_rows"] for line in last.metrics] == np.asarray(memory.zeros.size).tolist()


def test_no_zero_action_reaches_the_agents_buffers(epochs):
    _, (*_, last) = epochs
    for run in (0, 1):
        for buffer in (last.state.memory.real, last.state.imagined):
            assert np.all(live(buffer, run).action != 0.0)
    assert np.all(live(last.state.memory.zeros, 1).action == 0.0)


def test_stored_densities_are_those_of_the_policy_that_acted():
    """Warm-up rows carry the uniform density; the rows after them that of the policy before its next updates."""
    setting = problem("gym:Pendulum-v1", "sac", epochs=1)
    batch = Batch(setting)
    state = sac.begin(batch)
    agent, memory, expected = state.agent, state.memory, []
    for step in range(10):
        actor, observation = jax.tree.map(lambda x: x[0], agent.actor.value), batch.observations
        choice = batch(ACT, step, agent.actor.value, observation)
        expected.append(policy.log_density(actor, jnp.asarray(observation[0]), choice.action[0]))
        agent = batch(sac.IMPROVE, step, agent, memory.real)
        memory = batch(STORE, memory, choice, batch.execute(choice)())
    stored = live(memory.real, 0).log_density
    np.testing.assert_allclose(stored[:40], uniform_log_density(1), rtol=1e-6)
    np.testing.assert_allclose(stored[40:], expected, atol=2e-3)


def test_the_reference_action_can_be_another():
    setting = problem("gym:Pendulum-v1", "iadd", zero_ratios=(0.5,), zero_action=(1.0,), warm_up=40)
    batch = Batch(setting)
    choices = batch(EXPLORE)
    chosen = np.asarray(choices.action)[choices.replaced][:, 0].tolist()
    assert 8 < len(chosen) < 32
    assert set(chosen) == {0.5}
    assert float(batch.host.high[0]) == 2.0


def test_replacement_happens_as_often_as_asked():
    setting = problem("probe:bandit", "iadd", zero_ratios=(0.1,), runs=3, warm_up=400)
    replaced = np.asarray(Batch(setting)(EXPLORE).replaced)
    assert replaced.shape == (3, 400)
    assert abs(replaced.mean() - 0.1) < 0.03


def pendulums(algo: str, epochs: int = 1) -> Problem:
    """Two runs whose environments can leave the test's process."""
    setting = problem("gym:Pendulum-v1", algo, runs=2, epochs=epochs)
    return replace(setting, task=replace(setting.task, make=partial(gym.make, "Pendulum-v1")))


@pytest.mark.parametrize("algo", ["mbpo", "sac"])
def test_environments_in_processes_of_their_own_step_beside_the_launches_and_lead_to_the_same(algo, monkeypatch):
    setting, lines, threads = pendulums(algo), {}, {}
    step = Host.step
    for cores in (0, 2):
        monkeypatch.setattr("iadd_tr.tasks.crowd.spare_cores", lambda cores=cores: cores)
        used = threads.setdefault(cores, set())

        def noted(*given, used=used):
            used.add(threading.current_thread())
            return step(*given)

        monkeypatch.setattr(Host, "step", noted)
        (epoch,) = train(setting)
        lines[cores] = [{name: value for name, value in line.items() if name != "seconds"} for line in epoch.metrics]
    assert lines[0] == lines[2]
    assert threads[0] == {threading.main_thread()}
    assert len(threads[2]) == 1
    assert threads[2] != threads[0]


def test_the_next_fit_begins_beside_the_evaluation_and_leads_to_the_same(monkeypatch):
    """Each line but the seconds is that of a training without it; what an epoch yields is whole all the while."""
    setting, lines, begun = pendulums("mbpo", epochs=3), {}, []
    look_ahead, play = Batch.look_ahead, Evaluator.play

    def noted(batch, *given):
        look_ahead(batch, *given)
        begun.extend(batch._begun)

    def late(evaluator, policies, epoch):
        assert len(begun) == min(epoch + 1, 2)  # nothing is fitted for an epoch after the last
        return play(evaluator, policies, epoch)

    for cores in (0, 2):
        monkeypatch.setattr("iadd_tr.tasks.crowd.spare_cores", lambda cores=cores: cores)
        if cores:
            monkeypatch.setattr(Batch, "look_ahead", noted)
            monkeypatch.setattr(Evaluator, "play", late)
        found = lines.setdefault(cores, [])
        for epoch in train(setting):
            jax.block_until_ready(jax.device_get(epoch.state.models))
            found += [{name: value for name, value in line.items() if name != "seconds"} for line in epoch.metrics]
    assert len(lines[0]) == 6
    assert lines[0] == lines[2]
    length = setting.settings.loop.epoch_length
    assert [step for _, step, _ in begun] == [length, 2 * length]


def test_a_training_left_in_the_middle_waits_for_the_fit_it_began(monkeypatch):
    monkeypatch.setattr("iadd_tr.tasks.crowd.spare_cores", lambda: 2)
    batches, close = [], Batch.close
    monkeypatch.setattr(Batch, "close", lambda batch: (batches.append(batch), close(batch)))
    epochs = train(pendulums("mbpo", epochs=2))
    next(epochs)
    epochs.close()
    (begun,) = batches[0]._begun.values()
    assert begun.done()


def test_what_goes_wrong_in_a_step_beside_the_launches_ends_the_training(monkeypatch):
    monkeypatch.setattr("iadd_tr.tasks.crowd.spare_cores", lambda: 2)

    def broken(host, actions):
        raise TaskError("a step broke")

    monkeypatch.setattr(Host, "step", broken)
    with pytest.raises(TaskError, match="a step broke"):
        list(train(pendulums("sac")))
