import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import linear, problem

from iadd_tr import experiment
from iadd_tr.agent import policy
from iadd_tr.algorithm import collect, mbpo, sac
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch
from iadd_tr.stage import Problem, joined
from iadd_tr.training import evaluate, train

SOURCE = Path(mbpo.__file__).read_text()


def numbers(line: dict) -> dict:
    """What of a metrics line must not depend on the clock or on who else was in the batch."""
    return {name: value for name, value in line.items() if isinstance(value, float) and name != "seconds"}


@pytest.fixture(params=["one after another", "together, as on a GPU"])
def drawing_and_improving(request, monkeypatch):
    """How a device's runs train, and the programs by which minibatches are drawn and agents improved then."""
    in_turn = request.param == "one after another"
    monkeypatch.setattr(experiment, "takes_turns", lambda stage: in_turn and stage.spread is not None)
    return [mbpo.DRAW, replace(mbpo.IMPROVE, source=None)] if in_turn else [joined(mbpo.IMPROVE, mbpo.DRAW)]


@pytest.mark.usefixtures("drawing_and_improving")
@pytest.mark.parametrize(("algo", "targeting"), [("iadd-tr", "solve"), ("sac", "gradient")])
def test_a_batch_gives_each_run_what_it_gets_alone(algo, targeting):
    together = list(train(problem("probe:drift", algo, runs=2, seed=3, targeting=targeting)))
    for run in (0, 1):
        alone = list(train(problem("probe:drift", algo, runs=1, seed=3 + run, targeting=targeting)))
        for ours, theirs in zip(together, alone, strict=True):
            ours, theirs = numbers(ours.metrics[run]), numbers(theirs.metrics[0])
            assert ours.keys() == theirs.keys()
            for name in ours:
                assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=2e-4), name


def test_runs_of_one_batch_differ():
    last = list(train(problem("probe:drift", "mbpo", runs=2)))[-1]
    first, second = (numbers(line) for line in last.metrics)
    assert first["update/critic_loss"] != second["update/critic_loss"]
    assert first["fit/holdout_error"] != second["fit/holdout_error"]


def test_a_wide_tr_ablation_shares_everything_but_beta():
    """Both halves of the batch begin alike: the same seeds, warm-up rows and first model."""
    setting = problem("probe:drift", "mbpo-tr", runs=2, betas=(0.0, 1.0))
    batch = Batch(setting)
    state = mbpo.begin(batch)
    for leaf in jax.tree.leaves((state.agent, state.memory.real.rows)):
        np.testing.assert_array_equal(leaf[:2], leaf[2:])
    assert [(row.seed, row.beta) for row in batch.rows] == [(1, 0.0), (2, 0.0), (1, 1.0), (2, 1.0)]


def imagined_once(setting: Problem):
    """The first run's actor, model and rows of one imagined step after a first fit."""
    batch = Batch(setting)
    state = mbpo.begin(batch)
    models = batch(mbpo.FIT, 0, 40, state.models, state.memory)
    actor = state.agent.actor.value
    imagined = batch(mbpo.IMAGINE, 0, 1, 60, actor, models.main, state.memory.real, state.imagined)
    size = int(imagined.size[0])
    assert size >= 30
    rows = jax.tree.map(lambda x: x[0, :size], imagined.rows)
    return jax.tree.map(lambda x: x[0], (actor, models.main)), rows


def test_imagined_rows_carry_the_density_of_the_current_policy():
    (actor, _), rows = imagined_once(problem("probe:drift", "iadd-tr", epochs=1))
    np.testing.assert_allclose(rows.log_density, policy.log_density(actor, rows.observation, rows.action), atol=2e-3)


@pytest.mark.parametrize("algo", ["mbpo", "iadd"])
def test_imagined_observations_scatter_at_least_as_asked(algo):
    (_, model), plain = imagined_once(problem("probe:drift", algo, epochs=1))
    _, noisy = imagined_once(problem("probe:drift", algo, epochs=1, imagined_noise=100.0))
    moved = [np.asarray(rows.next_observation - rows.observation).std(0) for rows in (plain, noisy)]
    deviation = np.asarray(model.scale.observation_std)
    assert np.all(moved[0] < 5 * deviation)
    np.testing.assert_allclose(moved[1], 100.0 * deviation, rtol=0.4)


def test_each_stage_compiles_once(drawing_and_improving):
    setting = problem("probe:drift", "iadd-tr", runs=2, epochs=4, horizon=(1, 3, 0, 3))
    batch = Batch(setting)
    state = mbpo.begin(batch)
    for number in range(4):
        state = mbpo.epoch(batch, state, number)
    stages = [mbpo.INIT, mbpo.FIT, mbpo.IMAGINE, *drawing_and_improving, collect.EXPLORE, collect.ACT, collect.STORE]
    expected = {**dict.fromkeys(stages, 1), collect.STORE: 2}  # the warm-up is stored in one go
    assert {stage: batch.program(stage)._cache_size() for stage in stages} == expected
    assert len(batch.programs) == len(stages)


def test_a_stage_compiled_ahead_is_not_compiled_again(drawing_and_improving):
    batch = Batch(problem("probe:drift", "mbpo", runs=2, epochs=2))
    state = mbpo.begin(batch)
    assert set(batch._compiling) == {mbpo.FIT, drawing_and_improving[-1], mbpo.IMAGINE, collect.ACT}
    for work in batch._compiling.values():
        work.result()
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    batch(mbpo.FIT, 0, 40, state.models, state.memory)
    batch(mbpo.IMPROVE, 0, state.agent, state.memory.real, state.imagined)
    ahead = len(compiled)
    batch(collect.GROW, state.memory)
    jax.monitoring.clear_event_listeners()
    assert ahead == 0
    assert len(compiled) == 1


def test_memory_does_not_grow_from_epoch_to_epoch():
    setting = problem("probe:drift", "iadd-tr", epochs=5, horizon=(1, 3, 0, 4))
    live = []
    for epoch in train(setting):
        jax.block_until_ready(epoch.state)
        live.append(sum(array.nbytes for array in jax.live_arrays()))
        del epoch
    assert live[-1] <= live[1]


def test_the_loop_is_short_enough_to_read():
    body = re.search(r"def epoch\(.*?\n(?=\n\ndef )", SOURCE, re.S)
    assert body is not None
    assert len(body.group().splitlines()) <= 20


def test_the_imagined_buffer_follows_the_schedule():
    setting = problem("probe:drift", "mbpo", epochs=4, horizon=(1, 3, 0, 2), members=3, elites=3)
    sizes = [int(epoch.state.imagined.size[0]) for epoch in train(setting)]
    assert sizes == [60, 120, 180, 180]  # 3 rollouts per step, 20 steps, lengths 1, 2, 3, 3


@pytest.mark.parametrize(("form", "latent"), [("direct", "gaussian"), ("residual", "deterministic")])
def test_other_two_stage_members_train(form, latent):
    last = list(train(problem("probe:drift", "iadd", epochs=1, form=form, latent=latent, depths=(2, 2))))[-1]
    assert all(np.isfinite(value) for value in numbers(last.metrics[0]).values())


def test_a_learned_ending_is_used_where_the_task_gives_none():
    """Bandit episodes always end; the model's head learns that and imagined rows end too."""
    setting = problem("probe:bandit", "mbpo", epochs=3, epoch_length=40, fit_epochs=30, width=16)
    assert setting.task.ending is None
    last = list(train(setting))[-1]
    discount = np.asarray(last.state.imagined.rows.discount[0, : int(last.state.imagined.size[0])])
    assert discount.mean() < 0.2


@pytest.mark.parametrize("algo", ["mbpo", "iadd", "sac"])
def test_drift_is_solved_with_and_without_tr(algo):
    """The best policy is known, a = clip(-4.5 s): each algorithm earns nearly as much from the same starts."""
    steps = {"updates_per_step": 10, "epochs": 4} if algo != "sac" else {"updates_per_step": 4, "epochs": 12}
    changes = {"epoch_length": 100, "warm_up": 200, "fit_every": 50, "rollouts_per_step": 20, "fit_epochs": 20}
    agent = {"hidden": 32, "batch": 64, "agent_rate": 2e-3, "width": 16, "gamma": 0.9, "target_entropy": -2.0}
    setting = problem("probe:drift", algo, betas=(0.0, 1.0), evaluation_episodes=8, **(changes | steps | agent))
    last = list(train(setting))[-1]
    evaluator = Evaluator(setting.task, [1], 8)
    best = evaluator.play([linear(-4.5)], last.number).returned.mean()
    idle = evaluator.play([linear(0.0)], last.number).returned.mean()
    assert best > 0.5 * idle  # there is something to learn
    for line in last.metrics:
        assert line["return"] > best - 0.15 * (best - idle)


def test_evaluation_uses_the_mode():
    setting = problem("probe:drift", "sac", epochs=1)
    batch = Batch(setting)
    state = sac.begin(batch)

    (reflex,) = sac.reflexes(state)
    one = jax.tree.map(lambda x: x[0], state.agent.actor.value)
    mean, _ = policy.distribution(one, jnp.array([0.3]))
    np.testing.assert_allclose(reflex(np.array([0.3])), jnp.tanh(mean), rtol=1e-5)
    evaluator = Evaluator(setting.task, [1], 1)
    np.testing.assert_array_equal(evaluate(batch, evaluator, state, 0).returned, evaluator.play([reflex], 0).returned)
