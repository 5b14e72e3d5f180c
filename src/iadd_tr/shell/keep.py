"""Results of a study's stages on disk: what is there is read, not made again."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from iadd_tr.shell import checkpoint
from iadd_tr.shell.errors import UserError

Tree = TypeVar("Tree")


def arrays(path: Path, template: Tree, make: Callable[[], Tree]) -> Tree:
    """A tree of arrays; `template` gives its shapes."""
    if not path.exists():
        tree, partial = make(), path.with_suffix(".partial")
        save_file(checkpoint.named(jax.device_get(tree)), partial)
        os.replace(partial, path)
        return tree
    try:
        return jax.tree.map(jnp.asarray, checkpoint.restore(load_file(path), template))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read ({error}); remove it, and it will be made again.") from None


def plain(path: Path, make: Callable[[], Any]) -> Any:
    """Numbers and words in lists and dictionaries."""
    if not path.exists():
        write(path, make())
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, OSError) as error:
        raise UserError(f"'{path}' cannot be read ({error}); remove it, and it will be made again.") from None


def write(path: Path, value: Any) -> None:
    """Whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)


def same_study(folder: Path, study: Any, *free: str) -> None:
    """Refuse to go on in a folder with another study; the fields `free` may differ."""
    asked = json.loads(json.dumps({name: value for name, value in asdict(study).items() if name not in free}))
    path = folder / "study.json"
    if plain(path, lambda: asked) != asked:
        raise UserError(f"'{folder}' holds this study with other settings; give another folder with --out.")
