import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from iadd_tr.settings import Settings
from iadd_tr.shell import cli, config, machine, runlog
from iadd_tr.tasks import presets
from iadd_tr.tasks.probes import Drift

TINY = (
    "--epochs 2 --epoch-length 20 --warm-up 40 --updates-per-step 1 --fit-every 10 --rollouts-per-step 3 --width 8 "
    "--members 3 --elites 2 --fit-batch 16 --fit-epochs 3 --hidden 16 --batch 16 --epsilon-hidden 8"
)
LOGGED = {  # everything a line of metrics must tell
    *("epoch", "run", "algorithm", "task", "seed", "beta", "zero_ratio", "floor", "environment_steps"),
    *("return", "returns", "discounted_return", "episode_steps"),
    *("rollout_length", "zero_rows", "fit/epochs", "fit/holdout_error"),
    *("update/critic_loss", "update/targeted_loss", "update/actor_loss", "update/temperature", "update/entropy"),
    *("update/value", "update/correction", "update/floored", "seconds"),
}
TIMED = {"fit", "rollout", "update", "act", "environment", "evaluation", "epoch"}


class Unbounded(Drift):
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Breaking(Drift):
    """Gives no number at its 65th step: in the second epoch of a tiny run, and never in one resumed from there."""

    taken = 0

    def step(self, action: np.ndarray):
        self.taken += 1
        observation, *rest = super().step(action)
        return observation * (np.nan if self.taken == 65 else 1.0), *rest


@pytest.fixture(scope="module", autouse=True)
def _quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def _own_world(tmp_path, monkeypatch):
    """A working folder and environments of its own, and no compiled programs in the user's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "set_up", lambda: None)
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.envs.registration.registry))
    gym.register("Unbounded-v0", entry_point=Unbounded)
    gym.register("Breaking-v0", entry_point=Breaking, disable_env_checker=True)


def run(*arguments: Any) -> None:
    cli.main([str(argument) for argument in arguments])


def complaint(capsys: Any, *arguments: Any) -> str:
    """The one line that a command ends with, and exit code 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        run(*arguments)
    assert ending.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("iadd-tr: ")
    assert errors.endswith(".\n")
    assert errors.count("\n") == 1
    return errors


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def made(folder: Path, *arguments: Any) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "set_up", lambda: None)
        run("train", *TINY.split(), *arguments, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A tiny run of IADD without and with TR."""
    folder = tmp_path_factory.mktemp("runs") / "drift"
    return made(folder, "--task", "probe:drift", "--betas", "0,1")


@pytest.fixture(scope="module")
def pendulum_(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pendulum"
    return made(folder, "--task", "inverted-pendulum", "--algo", "sac")


@pytest.fixture
def pendulum(pendulum_, tmp_path) -> Path:
    """A tiny run of SAC, free to be damaged."""
    return shutil.copytree(pendulum_, tmp_path / "pendulum")


WRONG = [
    (["--task", "hoper"], "no task 'hoper'; take one of halfcheetah, hopper"),
    (["--task", "gym:Nowhere-v0"], "cannot be made"),
    (["--algo", "ppo2"], "no algorithm 'ppo2'; take one of iadd-tr, iadd, mbpo-tr, mbpo, sac"),
    (["--task", "gym:CartPole-v1"], "only a flat Box of continuous actions"),
    (["--task", "gym:Unbounded-v0"], "unbounded actions; wrap it in gymnasium.wrappers.RescaleAction"),
    (["--task", "hopper", "--zero-action", "0,0"], "--zero-action has 2 numbers; task 'hopper' takes 3"),
    (["--task", "hopper", "--zero-action", "0,0,7"], "choose one inside with --zero-action"),
    (["--runs", "0"], "--runs must be 1 or more"),
    (["--seed", "-1"], "--seed must lie between"),
    (["--seed", "99999999999"], "--seed must lie between"),
    (["--betas", "-1"], "--betas must be 0 or more"),
    (["--betas", "none"], "--betas must be 0 or more"),
    (["--floors", "0"], "--floors must be positive"),
    (["--epsilon-degree", "-1"], "--epsilon-degree must be 0 or more"),
    (["--epsilon-decay", "1"], "--epsilon-decay must lie in [0, 1)"),
    (["--epsilon-ridge", "0"], "--epsilon-ridge must be positive"),
    (["--imagined-noise", "-0.1"], "--imagined-noise must be 0 or more"),
    (["--horizon", "1"], "--horizon must be x,y,a,b"),
    (["--horizon", "1,2"], "--horizon must be x,y,a,b"),
    (["--horizon", "3,2,0,1"], "--horizon must have 1 <= x <= y"),
    (["--horizon", "1,2,5,5"], "a < b"),
    (["--zero-ratios", "1.5"], "--zero-ratios must lie in [0, 1)"),
    (["--zero-ratios", "0.1", "--algo", "mbpo"], "--zero-ratios belongs to iadd and iadd-tr; mbpo"),
    (["--zero-ratios", "none", "--algo", "mbpo"], "--zero-ratios must lie in [0, 1)"),
    (["--fit-every", "0"], "--fit-every must be 1 or more"),
    (["--fit-every", "300"], "--fit-every must divide --epoch-length"),
    (["--elites", "8"], "--elites must lie between 1 and --members"),
    (["--monolith-depth", "0"], "--monolith-depth must be 1 or more"),
    (["--width", "0"], "--width must be 1 or more"),
    (["--batch", "0"], "--batch must be 1 or more"),
    (["--resume", "nowhere"], "'nowhere' holds no run"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=[" ".join(options) for options, _ in WRONG])
def test_a_mistake_ends_with_a_sentence_before_anything_is_made(capsys, tmp_path, options, sentence):
    assert sentence in complaint(capsys, "train", *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("under", ["file/run", "file"])
def test_a_folder_that_cannot_be_written_is_named(capsys, tmp_path, under):
    (tmp_path / "file").write_text("precious")
    assert f"Cannot write to '{under}'" in complaint(capsys, "train", "--task", "probe:drift", "--out", under)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_with_a_run_is_left_as_it_is(capsys, pendulum):
    before = contents(pendulum)
    line = complaint(capsys, "train", "--task", "probe:drift", "--out", pendulum)
    assert "already holds a run; go on with --resume" in line
    assert contents(pendulum) == before


@pytest.mark.parametrize("checkpoint", [True, False])
def test_resuming_with_other_settings_is_refused_and_changes_nothing(capsys, pendulum, checkpoint):
    if not checkpoint:
        (pendulum / "checkpoint.safetensors").unlink()
    before = contents(pendulum)
    line = complaint(capsys, "train", "--resume", pendulum, "--width", "9")
    assert "started with other settings; resume it with those in its config.json" in line
    assert "--epochs" in line
    assert contents(pendulum) == before


@pytest.mark.parametrize("command", ["train --resume", "evaluate"])
def test_a_truncated_checkpoint_is_named_and_kept(capsys, pendulum, command):
    file = pendulum / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    before = contents(pendulum)
    assert f"'{file}' is damaged" in complaint(capsys, *command.split(), pendulum)
    assert contents(pendulum) == before


def test_a_run_resumed_with_more_epochs_keeps_every_row_and_can_be_evaluated(capsys, pendulum):
    before = runlog.read_metrics(pendulum)
    run("train", "--resume", pendulum, "--epochs", 4)
    collected = load_file(pendulum / "checkpoint.safetensors")["memory/real/size"]
    assert collected.tolist() == [40 + 4 * 20]
    lines = runlog.read_metrics(pendulum)
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3]
    assert lines[:2] == before
    run("evaluate", pendulum, "--episodes", 1)
    assert "after 4 epochs" in capsys.readouterr().out
    assert "holds 4 epochs already" in complaint(capsys, "train", "--resume", pendulum, "--epochs", 2)


def test_a_solved_correction_trains_and_goes_on_as_if_never_interrupted(tmp_path):
    options = ["--task", "probe:drift", "--algo", "sac", "--targeting", "solve", "--betas", "0,1"]
    whole, resumed = made(tmp_path / "whole", *options), made(tmp_path / "resumed", *options, "--epochs", 1)
    run("train", "--resume", resumed, "--epochs", 2)
    lines, again = (runlog.read_metrics(folder) for folder in (whole, resumed))
    for name in ("return", "update/correction", "update/value", "update/targeted_loss"):
        assert [line[name] for line in lines] == [line[name] for line in again]
    assert [line["update/correction"] > 0 for line in lines] == [False, True, False, True]


def test_a_number_that_is_not_finite_stops_training_and_the_last_checkpoint_goes_on(capsys, tmp_path):
    folder = tmp_path / "broken"
    line = complaint(capsys, "train", "--task", "gym:Breaking-v0", "--algo", "sac", *TINY.split(), "--out", folder)
    assert "'gym:Breaking-v0' gave a number that is not finite (seed 1, step" in line
    assert "--resume" in line
    assert [line["epoch"] for line in runlog.read_metrics(folder)] == [0]
    run("train", "--resume", folder)
    assert [line["epoch"] for line in runlog.read_metrics(folder)] == [0, 1]


@pytest.mark.parametrize("command", ["evaluate", "plot"])
@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_a_run_cannot_be_looked_at(capsys, tmp_path, command, folder):
    (tmp_path / "empty").mkdir()
    assert f"'{folder}' holds no run" in complaint(capsys, command, folder)


def test_a_run_without_a_finished_epoch_asks_for_patience(capsys, tmp_path):
    runlog.write_config(tmp_path / "new", presets.settings("probe:drift", "sac"))
    assert "no checkpoint yet; wait for its first epoch" in complaint(capsys, "evaluate", "new")
    assert "no finished epoch yet; wait" in complaint(capsys, "plot", "new")


def test_a_figure_that_cannot_be_written_is_named(capsys, pendulum):
    for name in ("nowhere/curves.png", "curves.words"):
        assert f"Cannot write '{name}'" in complaint(capsys, "plot", pendulum, "--out", name)


def test_a_measure_that_a_folder_does_not_hold_is_named(capsys, tmp_path):
    runlog.write_config(tmp_path / "old", presets.settings("probe:drift", "sac"))
    line = {"task": "probe:drift", "algorithm": "sac", "seed": 1, "environment_steps": 10, "return": 1.0}
    (tmp_path / "old" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert "no discounted_return in old" in complaint(capsys, "plot", "old", "--measure", "discounted_return")


@pytest.mark.parametrize("options", [["--episodes", "0"], ["--video-run", "1"], ["--video-run", "-1"]])
def test_evaluation_refuses_numbers_that_make_no_sense(capsys, pendulum, options):
    assert f"{options[0]} must" in complaint(capsys, "evaluate", pendulum, *options)


def test_a_video_without_a_renderer_says_what_to_install(capsys, pendulum, tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    line = complaint(capsys, "evaluate", pendulum, "--episodes", 1, "--video", "x.mp4")
    assert "install EGL or OSMesa" in line
    assert not (tmp_path / "x.mp4").exists()


@pytest.mark.parametrize("command", [[], ["tran"], ["--width"]])
def test_an_unknown_command_shows_the_known_ones(capsys, command):
    with pytest.raises(SystemExit) as ending:
        run(*command)
    shown = "".join(capsys.readouterr())
    assert ending.value.code == 2
    assert "train,evaluate,plot" in shown


@pytest.mark.parametrize("task", [*presets.PRESETS, "probe:drift", "gym:Swimmer-v5"])
@pytest.mark.parametrize("algo", ["iadd-tr", "mbpo", "sac"])
def test_the_printed_configuration_reads_back_as_the_preset(capsys, tmp_path, task, algo):
    assert printed(capsys, "--task", task, "--algo", algo) == presets.settings(task, algo)
    assert list(tmp_path.iterdir()) == []


def printed(capsys: Any, *options: Any) -> Settings:
    run("train", *options, "--print-config")
    return config.from_json(json.loads(capsys.readouterr().out))


def test_options_show_in_the_configuration_over_the_preset(capsys):
    options = "--task humanoid --runs 5 --epochs 7 --gamma 0.9 --form direct --latent-width 3 --hidden 32"
    settings = printed(capsys, *options.split())
    assert (settings.task, settings.runs, settings.loop.epochs, settings.agent.gamma) == ("humanoid", 5, 7, 0.9)
    assert (settings.model.form, settings.model.latent_width, settings.agent.hidden) == ("direct", 3, 32)
    assert settings.model.width == 400


def test_lists_are_written_with_commas(capsys):
    options = "--betas 0,0.5,1 --zero-ratios 0,0.2 --floors 1e-2 --horizon 1,3,0,5 --depths 2,2"
    settings = printed(capsys, *options.split(), "--zero-action", "-0.1,0,0.2")
    assert (settings.betas, settings.zero_ratios, settings.floors) == ((0.0, 0.5, 1.0), (0.0, 0.2), (0.01,))
    assert (settings.loop.horizon, settings.model.depths) == ((1, 3, 0, 5), (2, 2))
    assert settings.zero_action == (-0.1, 0.0, 0.2)
    assert printed(capsys, "--zero-action", "none").zero_action is None


def test_a_run_folder_tells_its_settings_and_the_versions_that_made_it(finished):
    data = json.loads((finished / "config.json").read_text())
    assert set(data["versions"]) == {"python", "iadd-tr", "jax", "jaxlib", "mujoco", "gymnasium", "numpy", "commit"}
    assert all(data["versions"].values())
    settings = config.from_json(data["settings"])
    assert (settings.task, settings.algo, settings.betas) == ("probe:drift", "iadd-tr", (0.0, 1.0))


def test_metrics_tell_everything_of_every_run_and_epoch(finished):
    lines = runlog.read_metrics(finished)
    assert [(line["epoch"], line["run"], line["algorithm"]) for line in lines] == [
        (epoch, index, name) for epoch in (0, 1) for index, name in enumerate(("iadd", "iadd-tr"))
    ]
    for line in lines:
        assert set(line) == LOGGED
        assert set(line["seconds"]) == TIMED
        assert all(0 <= seconds <= line["seconds"]["epoch"] for seconds in line["seconds"].values())
        numbers = [value for value in line.values() if isinstance(value, int | float)]
        assert np.all(np.isfinite(numbers))
        assert 0 <= line["update/floored"] <= 1
        assert line["environment_steps"] == 20 * (line["epoch"] + 1)
    assert lines[0]["update/correction"] == 0.0 < lines[-1]["update/correction"]
    assert 0 < lines[-1]["zero_rows"] < 40


def test_a_run_folder_holds_a_checkpoint_and_events_and_no_partial_file(finished):
    names = sorted(path.name for path in finished.iterdir())
    assert names == ["checkpoint.safetensors", "config.json", "metrics.jsonl", "tensorboard"]
    (events,) = (finished / "tensorboard").glob("events.out.tfevents.*")
    recorded = events.read_bytes()
    assert b"iadd-tr/run1-seed1/return" in recorded
    assert b"iadd/run0-seed1/seconds/fit" in recorded


def test_a_finished_run_is_evaluated_and_drawn(capsys, finished, tmp_path):
    run("evaluate", finished, "--episodes", 3)
    shown = capsys.readouterr().out
    assert "after 2 epochs, 3 episodes each" in shown
    assert [line.split()[3] for line in shown.splitlines()[1:]] == ["0", "1"]
    run("plot", finished, "--out", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert [name in shown for name in ("iadd: 1 × 40", "iadd-tr: 1 × 40", "mbpo")] == [True, True, False]
    run("plot", finished, "--measure", "episode_steps", "--out", tmp_path / "steps.png")
    assert "episode steps" in capsys.readouterr().out


def test_folders_are_seeds_of_one_experiment_where_only_seeds_and_swept_numbers_differ(tmp_path):
    base = presets.settings("probe:drift", "iadd")
    wide = replace(base, model=replace(base.model, width=7))
    others = {"a": base, "b": replace(base, seed=2, runs=3), "c": replace(base, zero_ratios=(0.3,)), "d": wide}
    for name, settings in others.items():
        runlog.write_config(tmp_path / name, settings)
        (tmp_path / name / runlog.METRICS).write_text('{"algorithm": "iadd"}\n')
    gathered = cli.gather([Path(name) for name in others])
    assert [line["variant"] for line in gathered] == ["a", "a", "a", "d"]
    assert [line["folder"] for line in gathered] == list(others)


def test_the_same_evaluation_twice_gives_the_same_returns(capsys, pendulum):
    shown = []
    for _ in range(2):
        run("evaluate", pendulum, "--episodes", 2)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "return" in shown[0]


def test_the_board_of_a_resumed_run_drops_only_what_will_happen_again(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(runlog, "SummaryWriter", lambda folder, **options: asked.update(options))
    runlog.RunLog(tmp_path, 3, presets.settings("hopper", "mbpo"), wandb=False)
    last_kept = 3 * 1000
    assert asked["purge_step"] == last_kept + 1


@pytest.mark.parametrize("options", [["--help"], ["--print-config"]])
def test_a_reader_that_has_seen_enough_is_no_error(options):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "iadd_tr", "train", *options]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
