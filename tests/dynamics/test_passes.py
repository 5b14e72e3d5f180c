"""The kernels run on a CPU here, interpreted; numbers are those of the same perceptron layer by layer.

Before JAX 0.11 they are not used. There they cannot be interpreted either: not with a transposed matrix, and with the
workers on two cores now and then for ever.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams, force_gpu_interpret_mode

from iadd_tr import devices
from iadd_tr.dynamics import folded, passes
from iadd_tr.dynamics.folded import fold, halve, row_groups, runs_at_once, with_one
from iadd_tr.dynamics.worker import Worker
from iadd_tr.nets import GLOROT_UNIFORM, mlp

RACE, MISSED = "RACE DETECTED", "must observe each barrier completion"
kernels = pytest.mark.skipif(not folded.TAKEN, reason="kernels are used from JAX 0.11 on")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(folded, "TAKEN", True)
    monkeypatch.setattr(devices, "multiplies_by_warpgroups", lambda: True)
    with force_gpu_interpret_mode():
        yield


def network(sizes, seed=0):
    """None of its numbers is zero."""
    net = mlp(jax.random.key(seed), sizes, jax.nn.swish, GLOROT_UNIFORM)
    random = np.random.default_rng(seed)
    return halve(fold(jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape), jnp.float32), net)))


def rows(count, size, seed=1):
    return jax.random.normal(jax.random.key(seed), (count, size))


def distance(a, b) -> float:
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


SHAPES = [([14, 40, 40, 9], 128), ([14, 40, 40, 40, 40, 25], 64), ([20, 60, 25], 192), ([5, 15, 15, 3], 256)]


@kernels
@pytest.mark.parametrize(("sizes", "count"), SHAPES, ids=str)
def test_what_layers_leave_and_their_slopes_are_those_of_plain_products(sizes, count):
    net = network(sizes)
    first = net.matrices[0]
    x = jnp.pad(rows(count, sizes[0]), [(0, 0), (0, first.shape[0] - sizes[0])]).astype(jnp.bfloat16)
    answer, lefts, slopes = passes.forward(with_one(x, sizes[0]), net.matrices, net.sizes[1:-1])
    read = np.asarray(with_one(x, sizes[0]), np.float64)
    for size, matrix, left, slope in zip(sizes[1:], net.matrices, lefts, slopes, strict=False):
        sums = read @ np.asarray(matrix, np.float64)
        gate = 1 / (1 + np.exp(-sums))
        swish, exact = sums * gate, gate * (1 + sums * (1 - gate))
        swish[:, size], exact[:, size] = 1.0, 0.0
        assert distance(left, swish) < 5e-3
        assert distance(slope, exact) < 5e-3
        read = np.asarray(left, np.float64)
    assert distance(answer, read @ np.asarray(net.matrices[-1], np.float64)) < 1e-5


@kernels
@pytest.mark.parametrize(("sizes", "count"), SHAPES, ids=str)
def test_gradients_are_those_layer_by_layer_up_to_rounding(monkeypatch, sizes, count):
    net, x = network(sizes), rows(count, sizes[0])

    def gradient():
        return jax.grad(lambda net, x: jnp.mean((net(x) - 1.0) ** 2), (0, 1))(net, x)

    at_once = gradient()
    assert net.may_answer_at_once(x.astype(jnp.bfloat16))
    monkeypatch.setattr(devices, "multiplies_by_warpgroups", lambda: False)
    for ours, plain in zip(*map(jax.tree.leaves, (at_once, gradient())), strict=True):
        assert ours.dtype == plain.dtype
        assert 0 < distance(ours, plain) < 0.02


@kernels
def test_members_of_many_runs_have_their_own_rows_and_matrices(monkeypatch):
    sizes = [14, 40, 40, 9]
    nets = [[network(sizes, seed) for seed in (1, 2)], [network(sizes, seed) for seed in (3, 4)]]
    stacked = jax.tree.map(lambda *x: jnp.stack(x).reshape(2, 2, *x[0].shape), *nets[0], *nets[1])
    x = jnp.stack([rows(64, 14, seed) for seed in range(4)]).reshape(2, 2, 64, 14)

    def loss(net, x):
        return jnp.mean((net(x) - 1.0) ** 2)

    ours = jax.vmap(jax.vmap(jax.grad(loss)))(stacked, x)
    for run in range(2):
        for member in range(2):
            alone = jax.grad(loss)(nets[run][member], x[run, member])
            for a, b in zip(ours.matrices, alone.matrices, strict=True):
                assert distance(a[run, member], b) < 1e-5


def run_both(sizes, count):
    net = network(sizes)
    x = jnp.ones((count, net.matrices[0].shape[0]), jnp.bfloat16)
    answer, _, slopes = passes.forward(x, net.matrices, net.sizes[1:-1])
    jax.block_until_ready(passes.backward(answer.astype(jnp.bfloat16), net.matrices, slopes))


def found_out(capfd) -> bool:
    """Whether workers of both passes get in each other's way: the interpreter prints a race, or fails at it, as it does
    from JAX 0.12 on and wherever a worker misses that others have met."""
    said = ""
    with force_gpu_interpret_mode(InterpretGPUParams(detect_races=True)):
        try:
            run_both([20, 60, 60, 60, 25], 128)
        except jax.errors.JaxRuntimeError as error:
            said = str(error)
            assert RACE in said or MISSED in said, said  # any other failure is none of these
    return RACE in said + capfd.readouterr().out or MISSED in said


@kernels
def test_no_worker_overwrites_what_another_reads(capfd):
    """Where both halves compute a tile they write the same numbers; these sizes have no such tile."""
    assert not found_out(capfd)


@kernels
def test_workers_that_do_not_wait_for_what_others_write_are_found_out(monkeypatch, capfd):
    """So the test above can fail."""
    meet = Worker.meet
    monkeypatch.setattr(
        Worker, "meet", lambda self, barrier: None if barrier is self.chip.written else meet(self, barrier)
    )
    assert found_out(capfd)


@pytest.mark.parametrize(
    ("observations", "actions", "width", "expected"),
    [(11, 3, 200, 2), (17, 6, 200, 2), (27, 8, 200, 2), (45, 17, 400, 0)],
    ids=["hopper", "walker2d", "ant", "humanoid"],
)
def test_kernels_take_the_presets_models_but_the_widest(observations, actions, width, expected):
    net = network([observations + actions, *[width] * 4, 2 * (observations + 1) + 1])
    assert row_groups(256, net.matrices) == expected
    assert row_groups(100, net.matrices) == 0


def test_kernels_take_no_layers_of_several_widths():
    assert row_groups(128, network([5, 20, 40, 3]).matrices) == 0
    assert row_groups(128, network([5, 40, 40, 3]).matrices) == 2
    assert row_groups(64, network([5, 40, 40, 3]).matrices) == 1


@pytest.mark.parametrize(
    ("width", "rows", "expected"),
    [(200, 256, 9), (200, 512, 4), (200, 64, 18), (200, 100, None), (400, 256, None)],
)
def test_as_many_runs_step_at_once_as_their_kernels_find_room_for(monkeypatch, width, rows, expected):
    """Seven members; a multiprocessor takes 128 of their rows, or 64 where there are no more."""
    monkeypatch.setattr(devices, "multiprocessors", lambda: 132)
    net = network([14, *[width] * 4, 25])
    members = {"net": jax.tree.map(lambda x: jnp.stack([x] * 7), net), "bounds": jnp.zeros(12)}
    assert runs_at_once(members, rows) == expected
    monkeypatch.setattr(devices, "multiplies_by_warpgroups", lambda: False)
    assert runs_at_once(members, rows) is None
