import numpy as np
import pytest

from iadd_tr.report import statistics


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side():
    assert statistics.interquartile_mean([1.0, 2.0, 3.0, 1000.0]) == pytest.approx(2.5)
    assert statistics.interquartile_mean([5.0]) == 5.0


def test_the_interval_holds_the_mean_and_is_the_same_each_time():
    values = np.random.default_rng(0).normal(10.0, 1.0, 40)
    low, high = statistics.interval(values)
    assert low < statistics.interquartile_mean(values) < high
    assert high - low < 2.0
    assert (low, high) == statistics.interval(values)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(1)
    inside = [low < 0.0 < high for low, high in (statistics.interval(random.normal(size=40)) for _ in range(60))]
    assert 0.8 < np.mean(inside) <= 1.0


def test_equal_values_are_their_own_interval():
    assert statistics.interval([3.0, 3.0, 3.0]) == (3.0, 3.0)


def test_a_summary_has_the_sample_deviation():
    assert statistics.summarise([1.0, 3.0])["deviation"] == pytest.approx(2**0.5)
