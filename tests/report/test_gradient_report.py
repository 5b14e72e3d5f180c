import numpy as np
import pytest
from scipy import stats

from iadd_tr.report import gradient

GAINS = {("gradient", 50): [0.0, 0.01, 0.02], ("solve", 50): [0.1, 0.2, 0.3], ("solve", 100): [0.3, 0.0, 0.6]}


def row(variant: str, checkpoint: int, seed: int, gain: float) -> dict:
    sides = {"cosine_without": 0.5, "cosine_with": 0.5 + gain, "gain": gain}
    extra = {f"{prefix}_{name}": value for prefix in ("centred", "plain", "level") for name, value in sides.items()}
    scales = {"value": 20.0, "correction": 2.0, "floored": 0.25}
    return {"checkpoint": checkpoint, "variant": variant, "seed": seed, **sides, **extra, **scales}


ROWS = [row(*key, seed, gain) for key, gains in GAINS.items() for seed, gain in enumerate(gains, 1)]


def test_gains_come_with_the_interval_of_a_paired_t_test():
    (line,) = [line for line in gradient.summary(ROWS) if (line["variant"], line["checkpoint"]) == ("solve", 50)]
    expected = stats.ttest_1samp([0.1, 0.2, 0.3], 0.0).confidence_interval(0.95)
    assert (line["gain_low"], line["gain_high"]) == pytest.approx((expected.low, expected.high))
    assert line["gain"] == pytest.approx(0.2)
    assert line["cosine_with"] - line["cosine_without"] == pytest.approx(line["gain"])


def test_over_checkpoints_a_seed_counts_once():
    (line,) = [line for line in gradient.overall(ROWS) if line["variant"] == "solve"]
    expected = stats.ttest_1samp([0.2, 0.1, 0.45], 0.0).confidence_interval(0.95)
    assert line["seeds"] == 3
    assert (line["gain_low"], line["gain_high"]) == pytest.approx((expected.low, expected.high))


def test_a_single_seed_has_no_width():
    assert gradient.interval([0.3]) == (0.3, 0.3)


def test_the_papers_numbers_stand_beside_ours():
    found = gradient.lines(ROWS)
    assert [line[:2] for line in found] == [
        ("50", "gradient"), ("50", "solve"), ("50", "paper"), ("100", "solve"), ("300", "paper"),
    ]  # fmt: skip
    assert found[2][2:4] == ("0.728", "0.771")
    assert np.all([line[6] == "0.1" for line in found if line[1] != "paper"])


def test_the_table_holds_both_ways_of_fitting_and_no_other():
    rows = [*ROWS, row("solve, constant", 50, 1, 0.1)]
    table = gradient.main(rows)
    assert len(table) == len(ROWS)
    assert list(table[0]) == ["fitted", "checkpoint", "seed", "cosine_with_tr", "cosine_without_tr", "paired_gain"]
