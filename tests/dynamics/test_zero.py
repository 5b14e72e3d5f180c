import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import problem

from iadd_tr.algorithm import mbpo
from iadd_tr.algorithm.collect import Memory
from iadd_tr.dynamics import ensemble, zero
from iadd_tr.dynamics.monolith import Monolith
from iadd_tr.dynamics.stages import Stages
from iadd_tr.experiment import over_runs
from iadd_tr.replay import Replay
from iadd_tr.runs import rows, traced
from iadd_tr.settings import Model
from iadd_tr.types import Transition

OBS, ACT, SIZE, CAPACITY = 2, 2, 40, 50
REFERENCE = jnp.array([0.3, -0.7])
MODEL = Model(members=4, elites=3, monolith_depth=0)
init = jax.jit(ensemble.init, static_argnums=(1, 2, 3))
generate = jax.jit(zero.generate)


def buffer(size: int, centre: float = 0.0, sizes: tuple[int, int] = (OBS, ACT)) -> Replay:
    """Random rows around a centre, and dead ones far away."""
    random, (o, a) = np.random.default_rng(0), sizes
    shapes = [(CAPACITY, o), (CAPACITY, a), CAPACITY, CAPACITY, (CAPACITY, o), CAPACITY]
    columns = [random.normal(centre, 1.0, shape).astype(np.float32) for shape in shapes]
    for column in columns:
        column[size:] = 1e3
    return Replay(
        Transition(*map(jnp.asarray, columns)), jnp.array(size), jnp.array(size % CAPACITY), jnp.array(CAPACITY)
    )


def constant_model() -> ensemble.Ensemble:
    """Members that all answer r = 5, s' = s + (1, -2) and an end with probability one quarter."""
    model = init(jax.random.key(0), MODEL, OBS, ACT, None)
    answer = jnp.array([5.0, 1.0, -2.0, -200.0, -200.0, -200.0, -np.log(3.0)])
    model = jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim == 3 else x, model)
    return eqx.tree_at(
        lambda e: (e.parameters.members.net.layers[-1].bias, e.parameters.lower),
        model,
        (jnp.broadcast_to(answer, (4, 7)), jnp.full(OBS + 1, -60.0)),
    )


def make(real: int = SIZE, zeros: int = 10, share: float = 0.1):
    return generate(jax.random.key(1), constant_model(), buffer(real), buffer(zeros), REFERENCE, jnp.array(share))


def test_generated_rows_carry_exactly_the_reference_action():
    made = make().rows
    np.testing.assert_array_equal(made.action, np.broadcast_to(REFERENCE, made.action.shape))
    member = init(jax.random.key(0), MODEL, OBS, ACT, REFERENCE).parameters.members
    assert jax.tree.map(lambda x: x[0], member).anchored(made.action).all()


def test_generated_rows_start_from_live_real_states_and_visit_them_all():
    starts = np.asarray(make().rows.observation)
    real = np.asarray(buffer(SIZE).rows.observation[:SIZE])
    assert len(starts) == 9_999
    assert {tuple(row) for row in starts} == {tuple(row) for row in real}


def test_generated_rows_are_the_zero_models_answers():
    made = make().rows
    np.testing.assert_allclose(made.reward, np.full(9_999, 5.0), rtol=1e-5)
    np.testing.assert_allclose(made.next_observation - made.observation, np.tile([1.0, -2.0], (9_999, 1)), rtol=1e-5)
    np.testing.assert_allclose(made.discount, np.full(9_999, 0.75), rtol=1e-5)


@pytest.mark.parametrize(("zeros", "share"), [(0, 0.0), (1, 0.1), (CAPACITY, 0.1)])
def test_a_run_without_zero_rows_gives_them_no_share(zeros, share):
    assert make(zeros=zeros).share == pytest.approx(share)


def test_the_zero_model_is_a_monolith_beside_a_two_stage_model():
    text = problem(algo="iadd", zero_rows="generated")
    run = jax.tree.map(lambda x: x[0], traced(text.settings, rows(text.settings)))
    models = jax.eval_shape(lambda: mbpo.init(text, run))[0].models
    assert isinstance(models.zero.parameters.members, Monolith)
    assert isinstance(models.main.parameters.members, Stages)
    for other in (problem(algo="iadd"), problem(algo="mbpo"), problem(algo="mbpo", zero_rows="generated")):
        assert jax.eval_shape(lambda other=other: mbpo.init(other, run))[0].models.zero is None


@pytest.mark.parametrize(("zero_rows", "centre"), [("generated", 5.0), ("collected", 2.5)])
def test_a_fit_sees_zero_rows_through_their_model_or_among_all_others_and_leaves_the_buffers_alone(zero_rows, centre):
    task = problem(algo="iadd", depths=(0, 0), monolith_depth=0, fit_epochs=1, zero_rows=zero_rows)
    settings = task.settings
    main, zeros = (init(jax.random.key(0), settings.model, 1, 1, a0) for a0 in (jnp.zeros(1), None))
    memory = Memory(buffer(30, 5.0, (1, 1)), buffer(10, -5.0, (1, 1)))
    batched = jax.tree.map(lambda x: x[None], (mbpo.Models(main, zeros if zero_rows == "generated" else None), memory))
    before = jax.device_get(batched[1])
    run = traced(settings, rows(settings))
    models, _ = over_runs(task, mbpo.FIT, None)(np.int32(0), np.int32(40), run, *batched)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(batched[1]))
    if zero_rows == "generated":
        assert float(models.zero.scale.observation_mean[0, 0]) == pytest.approx(-5.0, abs=1.0)
    assert float(models.main.scale.observation_mean[0, 0]) == pytest.approx(centre, abs=1.0)
