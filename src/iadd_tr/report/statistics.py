"""Numbers over seeds: mean, deviation and the interquartile mean with its bootstrap interval."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats


def interquartile_mean(values: Sequence[float] | np.ndarray) -> float:
    """The mean of the middle half."""
    return float(stats.trim_mean(np.asarray(values, float), 0.25))


def _middle_half(values: np.ndarray, axis: int) -> np.ndarray:
    return stats.trim_mean(values, 0.25, axis=axis)


def interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95, statistic: Callable[..., Any] = _middle_half
) -> tuple[float, float]:
    """A percentile bootstrap interval of the interquartile mean, or of another statistic; one value is its own."""
    sample = np.asarray(values, float)
    if sample.size < 2 or np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    result = stats.bootstrap(
        (sample,),
        statistic,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def summarise(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """What a table says of a sample."""
    sample = np.asarray(values, float)
    low, high = interval(sample)
    return {
        "mean": float(sample.mean()),
        "deviation": float(sample.std(ddof=1)) if sample.size > 1 else 0.0,
        "median": float(np.median(sample)),
        "interquartile_mean": interquartile_mean(sample),
        "low": low,
        "high": high,
    }
