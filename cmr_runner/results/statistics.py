"""Numbers over seeds: means, standard deviations and 95 % intervals, on a linear or a logarithmic scale.

κ and gradient norms spread over decades, so their centre is the geometric mean and their interval is taken of the
logarithms; accuracies and moments use plain means.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

RESAMPLES = 2000
# Quantiles t(0.975, df) for df = 1 … 30; from there on the normal one is within 4 %.
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t_quantile(df: int) -> float:
    return T_975[df - 1] if df <= len(T_975) else 1.960


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def standard_deviation(values: Sequence[float]) -> float:
    """With n − 1 in the denominator; nan for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def centre(values: Sequence[float], log: bool) -> float:
    """Arithmetic mean, or geometric mean on a logarithmic scale."""
    return float(_from_scale(np.mean(_to_scale(values, log)), log)) if len(values) else math.nan


def t_interval(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Student's 95 % interval of the centre over seeds; (nan, nan) for fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    scaled = _to_scale(values, log)
    half = t_quantile(len(scaled) - 1) * float(np.std(scaled, ddof=1)) / math.sqrt(len(scaled))
    middle = float(np.mean(scaled))
    return float(_from_scale(middle - half, log)), float(_from_scale(middle + half, log))


def bootstrap_band(values: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre and percentile-bootstrap 95 % interval over the rows of `values` (seeds × points).

    A point where any seed is not finite has no centre: leaving that seed out there would draw a different group.
    """
    scaled = _to_scale(values, log)
    scaled = np.where(np.isfinite(scaled), scaled, np.nan)  # an infinite κ(J) would be subtracted from itself
    resampled = _weights(len(scaled)) @ scaled  # (resamples, points)
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
    return tuple(_from_scale(x, log) for x in (scaled.mean(axis=0), low, high))  # type: ignore[return-value]


@lru_cache
def _weights(n: int) -> np.ndarray:
    # Each row averages one resample of n seeds. The generator is fixed, so that a figure's bytes are.
    drawn = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    return np.stack([(drawn == seed).mean(axis=1) for seed in range(n)], axis=1)


def _to_scale(values: Sequence[float] | np.ndarray, log: bool) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if not log:
        return array
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(array > 0, np.log(array), np.nan)


def _from_scale(values: np.ndarray | float, log: bool) -> np.ndarray:
    return np.exp(values) if log else np.asarray(values)
