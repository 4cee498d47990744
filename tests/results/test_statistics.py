"""Numbers over seeds, as figures and tables use them."""

import math

import numpy as np
import pytest
from scipy import stats

from cmr_runner.results.numerals import interval, number, plus_minus, times_over
from cmr_runner.results.statistics import T_975, centre, spread, t_band, t_interval, t_quantile


@pytest.mark.parametrize("df", [*range(1, len(T_975) + 1), 40, 200])
def test_t_quantiles_are_students(df):
    assert t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=5e-4 if df <= len(T_975) else 0.04)


def test_t_interval_matches_scipy_on_both_scales():
    values = [3.1, 2.7, 4.0, 3.3]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert t_interval(values, log=False) == pytest.approx((low, high), rel=1e-3)
    logs = np.log(values)
    low, high = np.exp(stats.t.interval(0.95, 3, np.mean(logs), stats.sem(logs)))
    assert t_interval(values, log=True) == pytest.approx((low, high), rel=1e-3)


@pytest.mark.parametrize("log", [False, True])
def test_two_seeds_have_a_spread_but_no_interval_and_one_has_neither(log):
    assert all(map(math.isnan, t_interval([1.0, 2.0], log)))
    assert spread([1.0, 2.0], log) == pytest.approx(math.exp(math.log(2) / 2**0.5) if log else 0.5**0.5)
    assert all(map(math.isnan, t_interval([1.0], log)))
    assert math.isnan(spread([1.0], log))


def test_centre_on_a_log_scale_is_the_geometric_mean():
    assert centre([1.0, 100.0], log=True) == pytest.approx(10.0)
    assert centre([1.0, 100.0], log=False) == pytest.approx(50.5)


def test_band_is_students_interval_at_every_point():
    values = np.random.default_rng(3).lognormal(size=(6, 9))
    middle, low, high = t_band(values, log=True)
    np.testing.assert_allclose(middle, stats.gmean(values, axis=0))
    for point in range(9):
        assert t_interval(values[:, point], log=True) == pytest.approx((low[point], high[point]))


def test_band_covers_the_mean_as_often_as_it_says_also_for_three_seeds():
    values = np.random.default_rng(0).normal(size=(3, 4000))
    _, low, high = t_band(values, log=False)
    assert 0.94 < ((low < 0) & (high > 0)).mean() < 0.96


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_point_where_a_seed_is_not_finite_has_no_mean(odd):
    middle, low, high = t_band(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, odd]]), log=True)
    assert np.isfinite([middle[0], low[0], high[0]]).all()
    assert np.isnan([middle[1], low[1], high[1]]).all()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (86.04, "86.0"),
        (3.4, "3.40"),
        (9.996, "10.0"),
        (3900, "3900"),
        (1.25e7, "1.25 × 10⁷"),
        (2e-6, "2.00 × 10⁻⁶"),
        (0, "0.00"),
    ],
)
def test_numbers_read_well(value, text):
    assert number(value) == text


def test_a_spread_shares_the_decimals_and_power_of_its_value():
    assert plus_minus(1.25e7, 3.5e6) == "(1.25 ± 0.35) × 10⁷"
    assert plus_minus(87.284, 0.996, 4) == "87.28 ± 1.00"
    assert plus_minus(3.1, math.nan) == "3.10"
    assert plus_minus(math.inf, math.nan) == "∞"
    assert times_over(8946.0, 1.634) == "8946 ×÷ 1.63"
    assert times_over(8946.0, math.nan) == "8946"
    assert interval(math.nan, math.nan) == "–"


def test_values_too_large_to_square_have_an_infinite_spread_and_stop_nothing():
    assert spread([1e200, -1e200, 0.0], log=False) == math.inf
    low, high = t_interval([1e200, -1e200, 0.0], log=False)
    assert (low, high) == (-math.inf, math.inf)
