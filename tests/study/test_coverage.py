import pytest

from iadd_tr.study import coverage


@pytest.fixture(scope="module")
def rows():
    return coverage.run(coverage.QUICK)


def error(rows, ratio, covered):
    own = [r["error"] for r in rows if r["ratio"] == ratio and r["covered"] == covered]
    return sum(own) / len(own)


def test_inside_the_covered_support_the_state_is_recovered(rows):
    assert error(rows, 0.3, True) < 0.08


def test_outside_it_is_not(rows):
    assert coverage.ratio_outside(rows, 0.3) > 1.4


def test_without_zero_rows_it_is_recovered_nowhere(rows):
    assert error(rows, 0.0, True) > 5 * error(rows, 0.3, True)


def test_no_interval_straddles_the_edge():
    for low, high in coverage.bins(0.7):
        assert high <= 0.7 + 1e-9 or low >= 0.7 - 1e-9
