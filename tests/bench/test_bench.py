from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

from iadd_tr import replay
from iadd_tr.agent import policy, sac
from iadd_tr.algorithm import mbpo
from iadd_tr.bench import floors, full, parts
from iadd_tr.dynamics import ensemble, fit
from iadd_tr.dynamics.examples import examples
from iadd_tr.experiment import Batch
from iadd_tr.nets import multiplying
from iadd_tr.products import multiply
from iadd_tr.settings import Agent, Loop, Model, imagined_limit
from iadd_tr.shell import bench
from iadd_tr.shell.errors import UserError
from iadd_tr.stage import Problem
from iadd_tr.tasks import presets
from iadd_tr.tasks.host import Host
from iadd_tr.tasks.task import resolve

RATES = floors.Rates(1e9, 1e9)
TINY = presets.Preset(
    "Pendulum-v1",
    Loop(epochs=3, epoch_length=8, fit_every=4, warm_up=40, updates_per_step=2, rollouts_per_step=5, kept_epochs=2),
    Agent(hidden=8, batch=16),
    Model(width=8, members=3, elites=2, fit_epochs=2),
)


def work(function, *arguments) -> float:
    """Multiplications and additions of all matrix products in a program, whose loops have a fixed length, but for those
    of which nothing that comes out makes use."""
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    return products(partial_eval.dce_jaxpr(program, [True] * len(program.outvars))[0])


def products(jaxpr: jax.extend.core.Jaxpr) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2.0 * equation.outvars[0].aval.size * np.prod([shape[i] for i in contracted])
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "jaxpr"):
                total += equation.params.get("length", 1) * products(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                total += products(inner)
    return total


def problem(algo: str) -> Problem:
    return Problem(resolve("hopper"), full.preset("hopper", algo, 1))


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_an_update_is_counted_product_by_product(beta):
    setting = Problem(resolve("hopper"), full.preset("hopper", "mbpo", 1, betas=(beta,)))
    agent, run = setting.settings.agent, jax.tree.map(lambda x: x[0], Batch(setting).runs[None])
    state = multiplying(multiply, sac.init(jax.random.key(0), 11, 3, agent, beta > 0))
    rows = replay.init(agent.batch, 11, 3).rows
    noise = sac.Noise(rows.action, rows.action)
    done = work(lambda s: sac.update(noise, s, rows, run, agent)[0], state)
    assert floors.update(setting, beta > 0).operations == done


@pytest.mark.parametrize("algo", ["mbpo", "iadd"])
def test_a_gradient_step_and_an_imagined_row_are_counted_product_by_product(algo):
    setting = problem(algo)
    state = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], Batch(setting)(mbpo.INIT)))
    model, main, rate = setting.settings.model, state.models.main, jnp.array(1e-3)
    rows = jax.tree.map(lambda x: jnp.zeros((model.members, model.fit_batch, *x.shape[1:])), state.imagined.rows)

    def step(main):
        trained = fit.prepare(main.parameters, main.optimiser)
        shown = examples(rows)
        return fit.gradient_step(jax.random.key(0), trained, main.scale, shown, rate, model.members, 0, False)

    assert floors.gradient_step(setting).operations == work(step, main)

    def imagine(actor, main):
        action, _ = policy.sample(jax.random.key(0), actor, jnp.zeros((10, 11)))
        return ensemble.sample(jax.random.key(0), main, jnp.zeros((10, 11)), action)

    assert 10 * floors.imagined_row(setting).operations == work(imagine, state.agent.actor.value, main)


def test_the_floor_is_the_slower_of_computing_and_moving():
    assert floors.Work(3e9, 1e9).seconds(RATES) == 3.0
    assert floors.Work(1e9, 4e9).times(0.5).plus(floors.Work(0.0, 1e9)).seconds(RATES) == 3.0


def test_runs_in_the_middle_of_their_schedule_have_the_rows_they_would_have(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    batch = full.batch_of(full.preset("tiny", "mbpo", 2))
    state = full.advanced(batch, 1, full.collect("tiny", 60, 1), None)
    assert np.asarray(state.memory.real.size).tolist() == [48, 48]
    assert np.asarray(state.imagined.size).tolist() == [imagined_limit(TINY.loop, 1)] * 2
    expected = full.uniform_rows("tiny", 48, 1)
    np.testing.assert_array_equal(state.memory.real.rows.observation[1, :48], expected["observation"])
    np.testing.assert_array_equal(state.memory.real.rows.reward[0, :48], expected["reward"])


def test_rows_collected_by_helpers_are_real_rows_of_other_seeds(monkeypatch):
    monkeypatch.setattr(full, "ALONE", 10)
    rows = full.collect("gym:Pendulum-v1", 31, 2)
    assert {column.shape[0] for column in rows.values()} == {31}
    np.testing.assert_array_equal(rows["reward"][:16], full.uniform_rows("gym:Pendulum-v1", 16, 1)["reward"])
    np.testing.assert_array_equal(rows["reward"][16:], full.uniform_rows("gym:Pendulum-v1", 15, 2)["reward"])


@pytest.mark.parametrize("apart", [False, True])
def test_an_evaluation_counts_for_what_it_takes_longer_than_the_fit_beside_it(apart, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    monkeypatch.setattr(Host, "apart", apart)
    monkeypatch.setattr(parts, "evaluation_seconds", lambda *_: 100.0)
    stages = parts.epochs("tiny", 2, 1, 1)[0]["stages"]
    fits = TINY.loop.epoch_length / TINY.loop.fit_every
    assert stages["evaluation"] == pytest.approx(100.0 - apart * stages["fit"] / fits)


def test_a_presets_epochs_are_summed_over_its_schedule(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    *found, whole = parts.epochs("tiny", 2, 1, 1)
    begin, middle, end = (line["milliseconds"] for line in found)
    assert [line["what"] for line in found] == [f"tiny, 2 runs, epoch {n}" for n in (1, 2, 3)]
    assert whole["milliseconds"] == pytest.approx(3 * (begin + 2 * middle + end) / 4)
    assert whole["end_over_beginning"] == pytest.approx(end / begin)
    assert {"fit", "rollout", "update", "act", "environment", "evaluation"} <= found[0]["stages"].keys()
    assert all(line["milliseconds"] > 0 and line["operations"] > 0 and line["bytes"] > 0 for line in found)
    counts = [line["operations"] for line in found]
    assert whole["operations"] == pytest.approx(3 * (counts[0] + 2 * counts[1] + counts[2]) / 4)


def test_an_epoch_can_be_timed_with_fits_of_a_given_length(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    seen = []
    work = parts.work
    monkeypatch.setattr(
        parts, "work", lambda batch, number, epochs: (seen.append(epochs), work(batch, number, epochs))[1]
    )
    parts.epochs("tiny", 2, 1, 1, 4)
    assert seen == [[4.0, 4.0]] * 3


def test_nothing_is_compiled_while_an_epoch_is_timed(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    batch = full.batch_of(full.preset("tiny", "mbpo", 2))
    collected = full.collect("tiny", 60, 1)
    _, models = parts.epoch(batch, 0, collected, 1, None)
    parts.epoch(batch, 1, collected, 1, models)
    compiled = {stage.name: program._cache_size() for stage, program in batch.programs.items()}
    assert set(compiled.values()) == {1}, compiled


def test_the_plan_follows_the_options_and_a_line_is_written_in_readable_units():
    options = bench.Bench(parts=("fit", "epoch"), tasks=("ant",), rows=(10,), runs=3)
    assert [name for name, _ in bench.plan(options)] == ["fits", "epochs"]
    (_, given) = bench.plan(replace(options, parts=("epoch",), fit_epochs=9))[0]
    assert (given[0], given[-1]) == ("ant", 9)
    line = {"part": "fit", "what": "x", "milliseconds": 1234.0, "operations": 5e5, "bytes": 1.0, "peak_gib": np.nan}
    line = floors.beside(line, floors.Rates(1e9, 2e9))
    assert bench.describe(line) == ("fit", "x", "1.23 s", "0.5 ms", "2468.00", "")
    assert bench.rated([line, {"part": "start"}]) == ": 0.001 to 0.001 TFLOP/s, 2 to 2 GB/s"
    assert bench.rated([]) == ""
    assert bench.duration(1.2e6) == "20.0 min"


def test_on_a_cpu_less_is_measured_unless_it_is_asked_for():
    assert bench.for_device(bench.Bench(), "NVIDIA H200") == bench.Bench()
    assert bench.for_device(bench.Bench(), "cpu") == bench.CPU
    asked = bench.for_device(bench.Bench(runs=3, parts=("epoch",)), "cpu")
    assert (asked.runs, asked.parts, asked.rows) == (3, ("epoch",), bench.CPU.rows)


@pytest.mark.parametrize(
    "wrong", [{"runs": 0}, {"blocks": 0}, {"repeats": 0}, {"fit_epochs": 0}, {"rows": (0,)}], ids=str
)
def test_counts_that_make_no_sense_are_refused_before_anything_is_measured(wrong, monkeypatch):
    monkeypatch.setattr(bench, "alone", lambda *_: pytest.fail("something was measured"))
    with pytest.raises(UserError, match="must be 1 or more"):
        bench.bench(bench.Bench(**wrong))


@pytest.mark.parametrize(("seconds", "calls"), [(0.01, 2 + 3 * 4), (2.0, 2 + 3)])
def test_a_call_is_timed_in_series_and_a_long_one_alone(monkeypatch, seconds, calls):
    clock, made = [0.0], []

    def call():
        made.append(1)
        clock[0] += seconds

    monkeypatch.setattr(floors.time, "perf_counter", lambda: clock[0])
    assert floors.median_seconds(call, 4) == pytest.approx(seconds)
    assert len(made) == calls
