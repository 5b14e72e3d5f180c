import csv

import numpy as np
import pytest

from iadd_tr.report import counterfactual as report
from iadd_tr.shell.cli import main

TINY = [
    *("--tasks", "hopper", "--seeds", "2", "--sizes", "40,60", "--warm-up", "20", "--epoch-length", "20"),
    *("--states", "30", "--paths", "5", "--members", "2", "--elites", "2", "--width", "8", "--fit-epochs", "1"),
]


def read(path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    main(["study", "counterfactual", *TINY, "--forms", "smooth", "--out", str(folder)])
    return folder


def test_tables_hold_every_seed_size_design_and_kind(folder):
    table = read(folder / "table.csv")
    assert len(table) == 2 * 2 * 3 * 5
    assert {row["design"] for row in table} == {"monolith", "monolith-normal", "smooth"}
    assert {row["action"] for row in table} == {"policy", "noisy", "uniform", "zero", "other"}
    assert all(np.isfinite(float(row["open_loop_5"])) == (row["action"] in ("policy", "uniform")) for row in table)
    assert len(read(folder / "bins.csv")) > 8
    assert (folder / "figure.png").stat().st_size > 10_000


def test_ratios_are_to_the_same_seeds_monoliths(folder):
    table = read(folder / "table.csv")

    def errors(design):
        wanted = {"design": design, "steps": "60", "action": "uniform"}
        own = [row for row in table if wanted.items() <= row.items()]
        return np.array([float(row["error"]) for row in sorted(own, key=lambda row: row["seed"])])

    wanted = {"design": "smooth", "steps": "60", "action": "uniform", "metric": "error"}
    (line,) = [row for row in read(folder / "summary.csv") if wanted.items() <= row.items()]
    assert float(line["median"]) == pytest.approx(np.median(errors("smooth")), rel=1e-4)
    for prefix, base in (("ratio_", "monolith"), ("ratio_normal_", "monolith-normal")):
        ratio = np.median(errors("smooth") / errors(base))
        assert float(line[f"{prefix}median"]) == pytest.approx(ratio, rel=1e-4)
        assert float(line[f"{prefix}low"]) <= float(line[f"{prefix}median"]) <= float(line[f"{prefix}high"])


def test_ratios_over_all_sizes_are_geometric_means(folder):
    table = {tuple(row[k] for k in ("design", "steps", "action", "seed")): float(row["error"])
             for row in read(folder / "table.csv")}  # fmt: skip
    sizes, seeds = ({key[i] for key in table} for i in (1, 3))
    for line in read(folder / "overall.csv"):
        design, action = line["design"], line["action"]
        for prefix, base in (("ratio_", "monolith"), ("ratio_normal_", "monolith-normal")):
            products = [
                np.prod([table[design, size, action, seed] / table[base, size, action, seed] for size in sizes])
                for seed in seeds
            ]
            expected = np.median(np.power(products, 1 / len(sizes)))
            assert float(line[f"{prefix}median"]) == pytest.approx(expected, rel=1e-3)


def test_bins_are_set_beside_the_same_seeds_monolith():
    place = {"task": "hopper", "steps": 5, "bin": 0}
    errors = {("monolith", 1): 2.0, ("monolith", 2): 4.0, ("iadd", 1): 1.0, ("iadd", 2): 3.0}
    bins = [{**place, "design": d, "seed": s, "error": e} for (d, s), e in errors.items()]
    assert [row["error"] for row in report.relative(bins)] == [1.0, 1.0, 0.5, 0.75]


def test_the_same_command_makes_nothing_again_but_what_is_missing(folder):
    kept = {path: path.stat().st_mtime_ns for path in (folder / "hopper").iterdir()}
    lost = folder / "hopper" / "60-smooth.json"
    before = lost.read_text()
    lost.unlink()
    main(["study", "counterfactual", *TINY, "--forms", "smooth", "--out", str(folder)])
    changed = [path for path, time in kept.items() if path.stat().st_mtime_ns != time]
    assert changed == [lost]
    again, first = (text.replace(" ", "").split('"fit_seconds"')[0] for text in (lost.read_text(), before))
    assert again == first


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("--forms", "round", "monolith"),
        ("--tasks", "ant", "hopper"),
        ("--sizes", "65", "--epoch-length"),
        ("--states", "3", "--paths"),
        ("--elites", "9", "--members"),
        ("--width", "9", "other settings"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, folder, option, value, word):
    with pytest.raises(SystemExit) as caught:
        main(["study", "counterfactual", *TINY, "--out", str(folder), option, value])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert word in line
