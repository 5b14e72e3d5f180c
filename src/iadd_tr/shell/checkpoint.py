"""Checkpoints: safetensors with leaves named by their path, replaced atomically, holding everything a run is."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from iadd_tr.replay import Replay
from iadd_tr.shell.errors import UserError
from iadd_tr.tasks.host import Place
from iadd_tr.training import Start

NAME = "checkpoint.safetensors"


class TooSmallError(Exception):
    """A buffer has no room for the rows it had."""


def save(folder: Path, fingerprint: str, epoch: int, state: Any, places: Sequence[Place]) -> None:
    """Write `epoch` as the next one to run; a kill at any moment leaves the old file or the new one, whole."""
    tensors = named(_trim(jax.device_get(state)))
    for run, place in enumerate(places):
        tensors[f"host/{run}/episode"] = np.array(place.episode)
        tensors[f"host/{run}/actions"] = place.actions
    tensors = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    partial = folder / f".{NAME}.partial"
    save_file(tensors, partial, metadata={"fingerprint": fingerprint, "epoch": str(epoch)})
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, folder / NAME)


def load(folder: Path, fingerprint: str, template: Any, environments: int) -> Start | None:
    """Where to go on from: `template` gives the shapes; None where no epoch was finished yet."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"'{path}' is damaged ({error}); remove it to start the run again, or restore a copy."
        ) from None
    if metadata.get("fingerprint") != fingerprint:
        raise UserError(
            f"'{path}' belongs to another configuration; resume with the settings in its config.json "
            "(only --epochs, --evaluation-episodes and --checkpoint-every may change)."
        )
    epoch = int(metadata["epoch"])
    try:
        places = [_place(tensors, seat) for seat in range(environments)]
        state = restore(tensors, template)
    except TooSmallError:
        raise UserError(f"'{path}' holds {epoch} epochs already; give --epochs {epoch} or more.") from None
    except (KeyError, ValueError) as error:
        raise UserError(f"'{path}' was written by another version of iadd-tr ({error}); start a new run.") from None
    return Start(epoch, state, places)


def _place(tensors: dict[str, np.ndarray], seat: int) -> Place:
    return Place(int(tensors[f"host/{seat}/episode"]), tensors[f"host/{seat}/actions"])


def named(tree: Any) -> dict[str, Any]:
    """Leaves by their path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _trim(state: Any) -> Any:
    """Leave out the buffers' rows that no run has filled."""

    def trim(node: Any) -> Any:
        if not isinstance(node, Replay):
            return node
        used = int(np.max(node.size))
        return eqx.tree_at(lambda buffer: buffer.rows, node, jax.tree.map(lambda x: x[:, :used], node.rows))

    return jax.tree.map(trim, state, is_leaf=lambda node: isinstance(node, Replay))


def restore(tensors: dict[str, np.ndarray], template: Any) -> Any:
    """The template with every leaf read from the file, trimmed rows padded again."""

    def read(path: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        value = tensors[name]
        if "/rows/" in name:
            room = leaf.shape[1] - value.shape[1]
            if room < 0:
                raise TooSmallError
            value = np.pad(value, [(0, 0), (0, room)] + [(0, 0)] * (value.ndim - 2))
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ValueError(f"{name} is {value.dtype}{value.shape}, not {leaf.dtype}{leaf.shape}")
        return value

    return jax.tree_util.tree_map_with_path(read, template)
