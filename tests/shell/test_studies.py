import csv
from dataclasses import replace

import numpy as np
import pytest
from small import problem

from iadd_tr.shell import run as runs
from iadd_tr.shell.cli import main
from iadd_tr.study import coverage, foresight, frozen, gradient, hindsight, influence, latents, robustness


def complaint(capsys, *arguments: str) -> str:
    """The one line that a mistake gets."""
    with pytest.raises(SystemExit) as caught:
        main(["study", *arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("iadd-tr: ")
    return line


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("--ratios", "0,1.2", "[0, 1]"),
        ("--ratios", "-0.1", "[0, 1]"),
        ("--ratios", "none", "one ratio or more"),
        ("--forms", "direct,round", "direct, residual, smooth"),
        ("--forms", "none", "one form or more"),
        ("--seeds", "none", "one seed or more"),
        ("--depths", "2", "two positive numbers"),
        ("--epochs", "0", "1 or more"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, tmp_path, option, value, word):
    assert word in complaint(capsys, "synthetic", f"{option}={value}", "--out", str(tmp_path))


def test_a_study_must_be_named(capsys):
    assert "synthetic,theory" in complaint(capsys)
    assert "synthetic,theory" in complaint(capsys, "astrology")


def test_an_unwritable_folder_is_named(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "give a writable folder" in complaint(capsys, "synthetic", "--out", str(tmp_path / "file" / "x"))


def read(path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


def test_synthetic_leaves_tables_and_a_figure(capsys, tmp_path):
    small = ["--rows", "600", "--epochs", "2", "--held-out", "200", "--ratios", "0,0.1", "--seeds", "1,2"]
    main(["study", "synthetic", *small, "--forms", "direct,smooth", "--out", str(tmp_path)])
    table = read(tmp_path / "table.csv")
    assert len(table) == 8
    assert list(table[0])[:5] == ["form", "seed", "ratio", "mse_mid", "effect_pearson"]
    summary = read(tmp_path / "summary.csv")
    (line,) = [r for r in summary if (r["form"], r["ratio"], r["metric"]) == ("smooth", "0.1", "mse_mid")]
    values = [float(r["mse_mid"]) for r in table if (r["form"], r["ratio"]) == ("smooth", "0.1")]
    assert float(line["mean"]) == pytest.approx(sum(values) / 2, rel=1e-4)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert "0.3794" in capsys.readouterr().out  # the paper's own number stands beside ours


def test_theory_leaves_a_table_and_a_figure_of_each_theorem(monkeypatch, tmp_path):
    monkeypatch.setattr(coverage, "QUICK", replace(coverage.QUICK, rows=600, epochs=1))
    monkeypatch.setattr(latents, "QUICK", replace(latents.QUICK, rows=300, steps=3, batch=32))
    monkeypatch.setattr(influence, "QUICK", replace(influence.QUICK, samples=(50,), replications=8))
    monkeypatch.setattr(robustness, "QUICK", replace(robustness.QUICK, samples=(50, 100), replications=4))
    main(["study", "theory", "--quick", "--out", str(tmp_path)])
    for number in (1, 2, 3, 4):
        assert len(read(tmp_path / f"theorem_{number}.csv")) > 2
        assert (tmp_path / f"theorem_{number}.png").stat().st_size > 10_000


TINY = replace(
    gradient.QUICK,
    checkpoints=(1, 2),
    seeds=(1, 2),
    epoch_length=250,
    warm_up=50,
    hidden=8,
    rows=100,
    critic_epochs=1,
    states=4,
    trajectories=3,
    horizon=8,
)


def test_gradient_leaves_tables_and_figures_and_does_nothing_twice(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(gradient, "QUICK", TINY)
    monkeypatch.setattr(gradient, "VARIANTS", gradient.VARIANTS[:1])
    command = ["study", "gradient", "--quick", "--out", str(tmp_path)]
    main(command)
    table = read(tmp_path / "table.csv")
    assert [(r["fitted"], r["checkpoint"], r["seed"]) for r in table] == [
        (fitted, epoch, seed) for epoch in "12" for fitted in ("gradient", "solve") for seed in "12"
    ]
    for line in table:
        with_tr, without, gain = (float(line[k]) for k in ("cosine_with_tr", "cosine_without_tr", "paired_gain"))
        assert gain == pytest.approx(with_tr - without, abs=1e-5)
    assert len(read(tmp_path / "variants.csv")) == 12
    for name in ("figure.png", "variants.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    assert "0.728" in capsys.readouterr().out

    def never(*arguments, **options):
        raise AssertionError("made again")

    for owner, name in ((runs, "start"), (runs, "resume"), (frozen, "trajectories"), (gradient, "diagnose")):
        monkeypatch.setattr(owner, name, never)
    before = (tmp_path / "variants.csv").read_text()
    main(command)
    assert (tmp_path / "variants.csv").read_text() == before
    assert "give another folder" in complaint(capsys, *command[1:], "--seeds", "1,2,3")


@pytest.mark.parametrize(("option", "word"), [("--checkpoints=0", "1 or more"), ("--seeds=-1", "2147483647")])
def test_gradient_refuses_in_one_sentence(capsys, tmp_path, option, word):
    assert word in complaint(capsys, "gradient", "--quick", option, "--out", str(tmp_path))


def test_foresight_asks_a_trained_run_and_refuses_one_without_a_model(capsys, monkeypatch, tmp_path):
    trained, model_free = tmp_path / "mbpo", tmp_path / "sac"
    runs.start(problem("probe:bandit", "mbpo", runs=2, epochs=1).settings, trained)
    main(["study", "foresight", str(trained), "--episodes", "3"])
    table, summary = read(trained / "foresight" / "table.csv"), read(trained / "foresight" / "summary.csv")
    assert [(line["run"], line["before"], line["episodes"]) for line in table] == [("0", "1", "3"), ("1", "1", "3")]
    assert [float(line["ended"]) for line in summary] == [1.0, 1.0]
    assert [float(line["return"]) for line in summary] == [float(line["to_go"]) for line in table]
    assert (trained / "foresight" / "figure.png").exists()

    endless = foresight.Episode(*np.zeros((3, 2, 1), np.float32)[:2], np.ones(2, np.float32), False)
    monkeypatch.setattr(foresight, "play", lambda *_: [endless])
    main(["study", "foresight", str(trained), "--out", str(tmp_path / "endless")])
    assert "nothing to foresee" in capsys.readouterr().out
    assert not (tmp_path / "endless" / "table.csv").exists()

    runs.start(problem("probe:bandit", "sac", epochs=1).settings, model_free)
    capsys.readouterr()
    assert "no model to ask" in complaint(capsys, "foresight", str(model_free))
    assert "1 or more" in complaint(capsys, "foresight", str(trained), "--episodes=0")
    assert "no run" in complaint(capsys, "foresight", str(tmp_path / "nothing"))


def test_hindsight_goes_through_a_runs_replay_again(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(hindsight, "AHEAD", 10)
    trained, on_policy = tmp_path / "sac", tmp_path / "ppo"
    runs.start(problem("probe:drift", "sac", runs=2, epochs=1).settings, trained)
    main(["study", "hindsight", str(trained), "--forms", "monolith,iadd", "--every", "5"])
    out = capsys.readouterr().out
    table = read(trained / "hindsight" / "table.csv")
    assert [(line["design"], line["rows"], line["seed"]) for line in table] == [
        (design, str(rows), seed) for design in ("monolith", "iadd") for rows in (40, 45, 50) for seed in "12"
    ]
    assert (trained / "hindsight" / "figure.png").stat().st_size > 10_000
    assert out.count("1.00 (1.00 to 1.00)") == 6  # the first design beside itself, three moments, two metrics

    assert "knows no round" in complaint(capsys, "hindsight", str(trained), "--forms", "round")
    assert "one design or more" in complaint(capsys, "hindsight", str(trained), "--forms", "none")
    assert "1 or more" in complaint(capsys, "hindsight", str(trained), "--every", "0")
    monkeypatch.setattr(hindsight, "AHEAD", 21)
    assert "fewer than 21 rows" in complaint(capsys, "hindsight", str(trained))
    runs.start(problem("probe:drift", "ppo", epochs=1, rollout_steps=20, minibatches=2).settings, on_policy)
    capsys.readouterr()
    assert "keeps no replay" in complaint(capsys, "hindsight", str(on_policy))
