"""Numbers over seeds: centres, spreads and Student's 95 % intervals, on a linear or a logarithmic scale.

κ, gradient norms and losses spread over decades: their centre is the geometric mean, their spread a factor, and their
interval is taken of the logarithms. Accuracies and moments use plain means and standard deviations.
"""

import math
from collections.abc import Sequence

import numpy as np

LEAST_SEEDS = 3  # the interval of two seeds is wider than any axis: the seeds themselves are shown instead
# Quantiles t(0.975, df) for df = 1 … 30; from there on the normal one is within 4 %.
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t_quantile(df: int) -> float:
    return T_975[df - 1] if df <= len(T_975) else 1.960


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if len(values) else math.nan


def centre(values: Sequence[float], log: bool) -> float:
    """Arithmetic mean, or geometric mean on a logarithmic scale."""
    return float(_from_scale(mean(_scaled(values, log)), log)) if len(values) else math.nan


def spread(values: Sequence[float], log: bool) -> float:
    """Standard deviation with n − 1 in the denominator; on a logarithmic scale the factor it stands for. nan for
    fewer than two values."""
    return float(_from_scale(_deviation(_scaled(values, log)), log)) if len(values) > 1 else math.nan


def t_interval(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Student's 95 % interval of the centre over seeds; (nan, nan) for fewer than three."""
    if len(values) < LEAST_SEEDS:
        return math.nan, math.nan
    scaled = _scaled(values, log)
    middle, half = mean(scaled), t_quantile(len(scaled) - 1) * _deviation(scaled) / math.sqrt(len(scaled))
    return float(_from_scale(middle - half, log)), float(_from_scale(middle + half, log))


def t_band(values: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre and Student's 95 % interval over the first axis of `values`, the seeds; no interval below three of them.

    A point where any seed is not finite has no centre: leaving that seed out there would draw a different group.
    """
    scaled = _to_scale(values, log)
    scaled = np.where(np.isfinite(scaled), scaled, np.nan)  # an infinite κ(J) would be subtracted from itself
    n = len(scaled)
    middle = scaled.mean(axis=0) if n else np.full(scaled.shape[1:], np.nan)
    half = np.full_like(middle, np.nan)
    if n >= LEAST_SEEDS:
        half = t_quantile(n - 1) * np.std(scaled, axis=0, ddof=1) / math.sqrt(n)
    return _from_scale(middle, log), _from_scale(middle - half, log), _from_scale(middle + half, log)


def _to_scale(values: np.ndarray, log: bool) -> np.ndarray:
    if not log:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log(values), np.nan)


# For the few seeds of one cell of a table, numpy's calls would cost far more than the arithmetic.


def _scaled(values: Sequence[float], log: bool) -> list[float]:
    return [math.log(value) if value > 0 else math.nan for value in values] if log else list(values)


def _deviation(values: Sequence[float]) -> float:
    middle = mean(values)
    distances = [value - middle for value in values]
    return math.sqrt(sum(x * x for x in distances) / (len(values) - 1))  # x ** 2 would raise where x * x is inf


def _from_scale(values: np.ndarray | float, log: bool) -> np.ndarray:
    return np.exp(values) if log else np.asarray(values)
