import json
from pathlib import Path

import numpy as np
import pytest

from iadd_tr.report.curves import curves, draw, setbacks, spread, table
from iadd_tr.shell.runlog import read_metrics


def lines(algorithm: str, returns: list[float], task: str = "hopper", seed: int = 1) -> list[dict]:
    """One run's epochs."""
    return [
        {"task": task, "algorithm": algorithm, "seed": seed, "environment_steps": 1000 * (epoch + 1), "return": value}
        for epoch, value in enumerate(returns)
    ]


def test_curves_are_the_mean_and_deviation_over_the_seeds_that_got_there():
    long, short = [1.0, 4.0, 9.0], [3.0, 8.0]
    curve = curves(lines("mbpo", long) + lines("mbpo", short, seed=2))["hopper"]["mbpo"]
    steps, mean, deviation = spread(curve)
    both = np.array([long[:2], short])
    assert steps.tolist() == [1000, 2000, 3000]
    np.testing.assert_allclose(mean, [*both.mean(axis=0), 9.0])
    np.testing.assert_allclose(deviation, [*both.std(axis=0), 0.0])
    assert len(curve) == 2


def test_algorithms_and_tasks_are_kept_apart():
    found = curves(lines("mbpo", [1.0]) + lines("iadd-tr", [2.0]) + lines("mbpo", [5.0, 6.0], task="ant"))
    assert {task: list(algorithms) for task, algorithms in found.items()} == {
        "ant": ["mbpo"],
        "hopper": ["iadd-tr", "mbpo"],
    }
    assert spread(found["hopper"]["mbpo"])[1].tolist() == [1.0]
    assert spread(found["ant"]["mbpo"])[1].tolist() == [5.0, 6.0]


def test_lines_of_an_interleaved_file_come_out_in_the_order_of_steps():
    first, second = lines("mbpo", [1.0, 2.0, 3.0]), lines("mbpo", [3.0, 4.0, 5.0], seed=2)
    shuffled = [first[2], second[0], first[0], second[2], second[1], first[1]]
    steps, mean, _ = spread(curves(shuffled)["hopper"]["mbpo"])
    assert steps.tolist() == [1000, 2000, 3000]
    assert mean.tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_drawing_writes_a_file_of_the_kind_its_name_says(tmp_path, suffix, start):
    path = tmp_path / f"curves{suffix}"
    draw(lines("mbpo", [1.0, 2.0]) + lines("iadd", [2.0, 3.0]) + lines("sac", [0.0], task="ant"), path)
    assert path.read_bytes().startswith(start)


def test_more_tasks_make_a_wider_figure(tmp_path):
    draw(lines("mbpo", [1.0, 2.0]), tmp_path / "one.png")
    draw(lines("mbpo", [1.0, 2.0]) + lines("mbpo", [1.0, 2.0], task="ant"), tmp_path / "two.png")
    assert width(tmp_path / "two.png") == 2 * width(tmp_path / "one.png")


def width(path: Path) -> int:
    """A PNG's width, from its header."""
    return int.from_bytes(path.read_bytes()[16:20], "big")


def test_a_half_written_last_line_is_left_out(tmp_path):
    whole = lines("mbpo", [1.0, 2.0])
    text = "".join(json.dumps(line) + "\n" for line in whole)
    (tmp_path / "metrics.jsonl").write_text(text + json.dumps(lines("mbpo", [3.0])[0])[:30])
    assert read_metrics(tmp_path) == whole


def test_a_last_line_that_lacks_only_its_newline_is_left_out_too(tmp_path):
    whole = lines("mbpo", [1.0, 2.0])
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in whole))
    assert read_metrics(tmp_path) == whole[:1]


def test_a_folder_without_metrics_has_no_lines(tmp_path):
    assert read_metrics(tmp_path) == []


def test_what_differs_within_an_algorithm_stands_in_its_name():
    swept = [line | {"zero_ratio": ratio, "floor": 1.0} for ratio in (0.0, 0.1) for line in lines("iadd", [ratio])]
    alone = [line | {"zero_ratio": 0.0, "floor": 1.0} for line in lines("mbpo", [7.0])]
    assert list(curves(swept + alone)["hopper"]) == ["iadd, λ₀ 0.0", "iadd, λ₀ 0.1", "mbpo"]
    kinds = [line | {"variant": name} for name in ("deep", "wide") for line in lines("iadd", [1.0])]
    assert list(curves(kinds)["hopper"]) == ["iadd, deep", "iadd, wide"]


def test_the_table_holds_what_all_runs_have_reached():
    rows = lines("mbpo", [0.0, 10.0, 20.0]) + lines("mbpo", [2.0, 6.0], seed=2)
    (row,) = table(rows)
    assert (row["task"], row["name"], row["runs"], row["steps"], row["evaluations"]) == ("hopper", "mbpo", 2, 2000, 4)
    assert row["last"]["mean"] == 8.0
    assert row["last"]["deviation"] == pytest.approx(np.sqrt(8.0))
    assert row["all"]["mean"] == row["last_ten"]["mean"] == 4.5


def test_the_last_ten_epochs_are_the_last_ten():
    (row,) = table(lines("mbpo", [float(epoch) for epoch in range(15)]))
    assert row["last_ten"]["interquartile_mean"] == np.mean(range(5, 15))


def test_runs_that_share_no_epoch_have_no_numbers():
    first, second = lines("mbpo", [1.0, 2.0]), lines("mbpo", [1.0, 2.0], seed=2)
    assert table([first[0], second[1]]) == [{"task": "hopper", "name": "mbpo", "runs": 2, "steps": 0}]


def test_a_setback_loses_more_than_four_tenths_of_the_gain_whatever_the_sign():
    returns = np.array([[0.0, 100.0, 61.0, 59.0, 100.0]])
    expected = [[False, False, False, True, False]]
    assert setbacks(returns).tolist() == setbacks(returns - 1000).tolist() == expected


def test_another_measure_is_drawn_and_tabled_in_place_of_the_return(tmp_path):
    first, second = lines("mbpo", [9, 9])
    epochs = [first | {"episode_steps": [1, 3]}, second | {"episode_steps": [5, 15]}]
    (row,) = table(epochs, "episode_steps")
    assert row["last"]["mean"] == 10
    assert row["all"]["mean"] == 6
    draw(epochs, tmp_path / "curves.svg", "episode_steps")
    draw(epochs, tmp_path / "returns.svg")
    assert (tmp_path / "curves.svg").read_bytes() != (tmp_path / "returns.svg").read_bytes()
