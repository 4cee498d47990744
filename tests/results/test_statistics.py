"""Numbers over seeds, as figures and tables use them."""

import math

import numpy as np
import pytest
from scipy import stats

from cmr_runner.results.numerals import interval, number, plus_minus
from cmr_runner.results.statistics import T_975, bootstrap_band, centre, standard_deviation, t_interval, t_quantile


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


def test_one_seed_has_no_interval_and_no_deviation():
    assert all(map(math.isnan, t_interval([1.0], log=False)))
    assert math.isnan(standard_deviation([1.0]))


def test_centre_on_a_log_scale_is_the_geometric_mean():
    assert centre([1.0, 100.0], log=True) == pytest.approx(10.0)
    assert centre([1.0, 100.0], log=False) == pytest.approx(50.5)


def test_bootstrap_band_holds_the_mean_stays_inside_the_seeds_and_repeats():
    values = np.random.default_rng(3).lognormal(size=(6, 9))
    middle, low, high = bootstrap_band(values, log=True)
    np.testing.assert_allclose(middle, stats.gmean(values, axis=0))
    assert (values.min(axis=0) <= low).all()
    assert (low < middle).all()
    assert (middle < high).all()
    assert (high <= values.max(axis=0)).all()
    np.testing.assert_array_equal(low, bootstrap_band(values, log=True)[1])


def test_bootstrap_band_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 400))
    _, low, high = bootstrap_band(values, log=False)
    assert 0.90 < ((low < 0) & (high > 0)).mean() < 0.98


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_point_where_a_seed_is_not_finite_has_no_mean(odd):
    middle, low, high = bootstrap_band(np.array([[1.0, 2.0], [1.0, odd]]), log=True)
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
    assert interval(math.nan, math.nan) == "–"
