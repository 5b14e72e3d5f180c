"""What a run leaves: config.json, metrics.jsonl and TensorBoard events."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from iadd_tr.settings import Settings
from iadd_tr.shell import config
from iadd_tr.shell.errors import UserError

METRICS = "metrics.jsonl"


def write_config(folder: Path, settings: Settings) -> None:
    """The resolved settings and the versions that made the run, in a folder of its own."""
    if (folder / "config.json").exists():
        raise UserError(
            f"'{folder}' already holds a run; go on with --resume {folder}, or give another folder with --out."
        )
    _write_config(folder, {"settings": config.to_json(settings), "versions": versions()})


def update_config(folder: Path, settings: Settings) -> None:
    """The settings a run is resumed with, beside the versions it was started with."""
    _write_config(folder, config.read(folder) | {"settings": config.to_json(settings)})


def _write_config(folder: Path, data: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / ".config.json.partial"
        partial.write_text(json.dumps(data, indent=2) + "\n")
        os.replace(partial, folder / "config.json")
    except OSError as error:
        raise UserError(f"Cannot write to '{folder}' ({error.strerror}); give a writable folder with --out.") from None


def versions() -> dict[str, str]:
    """Python, the libraries that numbers depend on, and the commit."""
    libraries = {name: _version(name) for name in ("iadd-tr", "jax", "jaxlib", "mujoco", "gymnasium", "numpy")}
    return {"python": platform.python_version(), **libraries, "commit": _commit()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """The source tree's commit, with a plus where it has changes; unknown outside a repository."""
    command = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty=+",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run so far; a line still being written is left out."""
    path = folder / METRICS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class RunLog:
    """Appends metrics; what was logged from `epoch` on is dropped first, because it will happen again."""

    def __init__(self, folder: Path, epoch: int, settings: Settings, wandb: bool):
        self.path = folder / METRICS
        kept = [line for line in read_metrics(folder) if line["epoch"] < epoch]
        partial = folder / f".{METRICS}.partial"
        partial.write_text("".join(json.dumps(line) + "\n" for line in kept))
        os.replace(partial, self.path)
        purged = epoch * settings.loop.epoch_length + 1 if epoch else None
        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=purged)
        self.wandb = _wandb(folder, settings) if wandb else None

    def write(self, lines: Sequence[dict[str, Any]]) -> None:
        """One epoch's lines, one per run, flushed to disk."""
        with open(self.path, "a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        for line in lines:
            scalars = dict(_scalars(line))
            for name, value in scalars.items():
                self.board.add_scalar(name, value, line["environment_steps"])
            if self.wandb is not None:
                self.wandb.log({**scalars, "environment_steps": line["environment_steps"]})
        self.board.flush()

    def close(self) -> None:
        self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def _scalars(line: dict[str, Any]):
    run = f"{line['algorithm']}/run{line['run']}-seed{line['seed']}"
    skipped = ("epoch", "run", "seed", "environment_steps")
    for name, value in line.items():
        if isinstance(value, int | float) and name not in skipped:
            yield f"{run}/{name}", value
    for name, value in line["seconds"].items():
        yield f"{run}/seconds/{name}", value


def _wandb(folder: Path, settings: Settings) -> Any:
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("--wandb needs the extra: pip install 'iadd-tr[wandb]'.") from None
    return wandb.init(project="iadd-tr", dir=str(folder), config=config.to_json(settings), name=folder.name)
