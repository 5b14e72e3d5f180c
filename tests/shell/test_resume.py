"""A run killed at any moment and resumed gives the numbers of one that was left alone."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

EPOCHS, LENGTH, WARM_UP = 4, 100, 40
QUICK = "--xla_backend_optimization_level=0"  # compiles in half the time
SETTINGS = (
    f"--task probe:drift --algo iadd-tr --betas 0,1 --epochs {EPOCHS} --epoch-length {LENGTH} --warm-up {WARM_UP} "
    "--updates-per-step 2 --fit-every 50 --rollouts-per-step 3 --horizon 1,3,1,3 --width 8 --members 3 --elites 2 "
    "--fit-batch 16 --fit-epochs 3 --hidden 16 --batch 16 --epsilon-hidden 8"
).split()


class Command:
    """`iadd-tr train` in processes of its own, which share their compiled programs."""

    def __init__(self, cache: Path):
        self.environment = os.environ | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK}

    def launch(self, *options: Any) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "iadd_tr", "train", *map(str, options)],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, *options: Any) -> None:
        process = self.launch(*options)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors

    def kill_when(self, reached: Any, *options: Any) -> None:
        """Start a command and kill it as soon as `reached` says so."""
        process = self.launch(*options)
        try:
            while not reached():
                assert process.poll() is None, "it ended before it could be killed"
                time.sleep(0.002)
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> Command:
    return Command(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> Path:
    """A run that was left alone."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    command.finish(*SETTINGS, "--out", folder)
    return folder


def text(folder: Path) -> str:
    path = folder / "metrics.jsonl"
    return path.read_text() if path.exists() else ""


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What a run logged, without the seconds it took."""
    lines = [json.loads(line) for line in text(folder).splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def same_tensors(folder: Path, other: Path) -> bool:
    first, second = (load_file(path / "checkpoint.safetensors") for path in (folder, other))
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def test_an_uninterrupted_run_logs_every_epoch_of_every_run(whole):
    assert [(line["epoch"], line["run"]) for line in metrics(whole)] == [(e, r) for e in range(EPOCHS) for r in (0, 1)]
    assert [line["rollout_length"] for line in metrics(whole)[::2]] == [1, 1, 2, 3]


def test_compiled_programs_are_kept_for_the_next_start(command, whole):
    kept = [path.name for path in Path(command.environment["XDG_CACHE_HOME"], "iadd-tr", "xla").iterdir()]
    assert any(name.startswith("jit_improve") for name in kept)


def test_a_run_killed_between_two_epochs_goes_on_number_for_number(command, whole, tmp_path):
    folder = tmp_path / "killed"
    command.kill_when(lambda: text(folder).count("\n") >= 2, *SETTINGS, "--out", folder)
    assert 2 <= text(folder).count("\n") < 2 * EPOCHS
    (folder / ".checkpoint.safetensors.partial").write_bytes(b"half a file")
    (folder / ".metrics.jsonl.partial").write_bytes(b"half a file")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 1, "ru')
    command.finish("--resume", folder)
    assert metrics(folder) == metrics(whole)
    assert same_tensors(folder, whole)


def test_a_run_killed_before_its_first_checkpoint_starts_again(command, whole, tmp_path):
    folder = tmp_path / "early"
    command.kill_when((folder / "tensorboard").exists, *SETTINGS, "--out", folder)
    assert not (folder / "checkpoint.safetensors").exists()
    command.finish("--resume", folder)
    assert metrics(folder) == metrics(whole)


def test_lines_logged_after_the_last_checkpoint_are_not_logged_twice(command, whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "twice")
    kept = text(folder)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(json.loads(kept.splitlines()[-1]) | {"epoch": EPOCHS}) + "\n")
    command.finish("--resume", folder)
    assert text(folder) == kept
