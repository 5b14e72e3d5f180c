import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from small import problem

from iadd_tr import replay
from iadd_tr.experiment import Batch
from iadd_tr.shell import checkpoint, config
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.run import restore
from iadd_tr.stage import Problem
from iadd_tr.training import Start, algorithm_of
from iadd_tr.types import Transition

CHANGES: dict[str, Any] = {"betas": (0.0, 1.0), "epochs": 4, "horizon": (1, 3, 1, 3)}
IMAGINED = [7, 11]


@pytest.fixture(scope="module")
def made() -> tuple[Problem, Start]:
    """A state whose every trained number is different, with partly filled buffers, and where its hosts stand."""
    small = problem(**CHANGES)
    batch = Batch(small)
    state = algorithm_of(small.settings).begin(batch)
    random = np.random.default_rng(0)
    state = dataclasses.replace(
        state, agent=scrambled(random, state.agent), models=scrambled(random, state.models), imagined=filled(state)
    )
    return small, Start(1, jax.device_get(state), batch.host.places())


def scrambled(random: np.random.Generator, tree: Any) -> Any:
    return jax.tree.map(lambda x: random.normal(size=x.shape).astype(x.dtype) if x.dtype == np.float32 else x, tree)


def filled(state: Any) -> replay.Replay:
    """Each run's imagined buffer with as many rows as `IMAGINED` says."""
    number = jnp.arange(1.0, 13.0).reshape(1, 12).repeat(2, axis=0)
    rows = Transition(number[..., None], number[..., None], number, number, number[..., None], number)
    live = jnp.arange(12)[None] < jnp.array(IMAGINED)[:, None]
    return jax.vmap(replay.extend)(state.imagined, rows, live)


@pytest.fixture
def saved(made, tmp_path) -> Path:
    small, start = made
    checkpoint.save(tmp_path, config.fingerprint(small.settings), start.epoch, start.state, start.places)
    return tmp_path


def same(one: Any, other: Any) -> bool:
    """Whether two states have the same structure, types, shapes and numbers."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def file_of(folder: Path) -> Path:
    return folder / checkpoint.NAME


def test_what_is_loaded_is_what_was_saved(made, saved):
    small, start = made
    loaded = restore(small, saved)
    assert loaded is not None
    assert loaded.epoch == 1
    assert same(loaded.state, start.state)
    for place, other in zip(loaded.places, start.places, strict=True):
        assert place.episode == other.episode == 2
        np.testing.assert_array_equal(place.actions, other.actions)


def test_a_solved_correction_comes_back_with_its_means(tmp_path):
    small = problem("probe:drift", "sac", betas=(0.0, 1.0), targeting="solve")
    batch = Batch(small)
    state = algorithm_of(small.settings).begin(batch)
    state = dataclasses.replace(state, agent=scrambled(np.random.default_rng(0), jax.device_get(state.agent)))
    checkpoint.save(tmp_path, config.fingerprint(small.settings), 1, state, batch.host.places())
    assert np.ptp(state.agent.epsilon.bootstrap) > 0
    assert same(restore(small, tmp_path).state, jax.device_get(state))


def test_a_folder_without_a_checkpoint_has_nowhere_to_go_on_from(made, tmp_path):
    assert restore(made[0], tmp_path) is None


def test_only_filled_rows_are_written_and_the_rest_comes_back_empty(made, saved):
    small, start = made
    tensors = load_file(file_of(saved))
    capacity = start.state.imagined.rows.reward.shape[1]
    assert tensors["imagined/rows/reward"].shape == (2, max(IMAGINED))
    assert tensors["memory/real/rows/reward"].shape == (2, np.max(start.state.memory.real.size))
    rows = restore(small, saved).state.imagined.rows.reward
    assert rows.shape == (2, capacity)
    assert capacity > 12
    assert rows[0].tolist() == [*range(1, 8)] + [0] * (capacity - 7)


def test_a_checkpoint_gives_room_for_more_epochs(made, saved):
    longer = problem(**CHANGES | {"epochs": 6})
    loaded = restore(longer, saved)
    assert loaded.state.memory.real.rows.reward.shape == (2, 40 + 6 * 20)
    np.testing.assert_array_equal(loaded.state.memory.real.size, made[1].state.memory.real.size)


def test_too_few_epochs_for_what_was_done_are_named(made, tmp_path):
    small, start = made
    state = eqx.tree_at(lambda state: state.memory.real.size, start.state, np.array([120, 120]))
    checkpoint.save(tmp_path, config.fingerprint(small.settings), 4, state, start.places)
    with pytest.raises(UserError, match="holds 4 epochs already; give --epochs 4 or more"):
        restore(problem(**CHANGES | {"epochs": 3}), tmp_path)


@pytest.mark.parametrize("left", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_called_damaged_by_its_name(made, saved, left):
    whole = file_of(saved).read_bytes()
    file_of(saved).write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(UserError, match=rf"'{file_of(saved)}' is damaged .*remove it to start the run again"):
        restore(made[0], saved)


def test_a_file_of_garbage_is_called_damaged_by_its_name(made, saved):
    file_of(saved).write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(UserError, match=rf"'{file_of(saved)}' is damaged"):
        restore(made[0], saved)


def test_a_checkpoint_of_another_configuration_is_refused_by_its_name(saved):
    with pytest.raises(UserError, match=rf"'{file_of(saved)}' belongs to another configuration"):
        restore(problem(**CHANGES | {"width": 9}), saved)


@pytest.mark.parametrize("change", ["missing", "shape", "type", "host"])
def test_a_checkpoint_with_other_leaves_is_refused_by_its_name(made, saved, change):
    name = "host/1/actions" if change == "host" else "agent/slow_critics/layers/0/weight"
    tensors = load_file(file_of(saved))
    value = tensors.pop(name)
    if change in ("shape", "type"):
        tensors[name] = value[:, :-1].copy() if change == "shape" else value.astype(np.float16)
    save_file(tensors, file_of(saved), metadata=metadata(made[0]))
    with pytest.raises(UserError, match=rf"'{file_of(saved)}' was written by another version of iadd-tr .*{name}"):
        restore(made[0], saved)


def metadata(small: Problem) -> dict[str, str]:
    return {"fingerprint": config.fingerprint(small.settings), "epoch": "1"}


def test_the_file_tells_its_epoch_and_configuration(made, saved):
    with safe_open(file_of(saved), framework="numpy") as file:
        assert file.metadata() == metadata(made[0])


@pytest.mark.parametrize("where", ["write", "rename"])
def test_a_save_that_breaks_off_leaves_the_old_checkpoint(made, saved, monkeypatch, where):
    small, start = made

    def half(tensors: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    def fail(*_: Any) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", half) if where == "write" else patch.setattr("os.replace", fail)
        with pytest.raises(OSError, match=r"no space|killed"):
            checkpoint.save(saved, config.fingerprint(small.settings), 2, start.state, start.places)
    assert restore(small, saved).epoch == 1
    checkpoint.save(saved, config.fingerprint(small.settings), 2, start.state, start.places)
    assert restore(small, saved).epoch == 2
