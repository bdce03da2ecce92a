from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.estimators.series.seasons import check_seasons, find_seasons, repeated_periods
from gpytorch_nkn.estimators.series.series_input import as_time

YEAR = 365.2425


@pytest.mark.parametrize(
    ("frequency", "periods", "expected"),
    [
        ("h", 24 * 21, [1.0, 7.0]),
        ("30min", 48 * 3, [1.0]),
        ("12h", 2 * 14, [1.0, 7.0]),
        ("D", 365, [7.0]),
        ("B", 300, [7.0]),
        ("D", 3 * 365, [7.0, YEAR]),
        ("MS", 60, [YEAR]),
        ("ME", 23, []),
        ("6MS", 8, [YEAR]),
        ("YS", 40, []),
    ],
)
def test_calendar_of_dates(frequency, periods, expected):
    dates = pd.date_range("2001-01-01", periods=periods, freq=frequency)
    assert find_seasons(as_time(dates), in_days=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("per_unit", "n", "expected"),
    [
        (12, 60, [1.0]),
        (4, 40, [1.0]),
        (4, 7, []),
        (52.18, 200, [1.0]),
        (365, 1000, [7 / YEAR, 1.0]),
        (260, 400, [7 / YEAR]),
        (8766, 500, [1 / YEAR, 7 / YEAR]),
        (7, 50, [1.0]),
        (48, 700, [1.0, 7.0]),
        (10, 100, []),
    ],
)
def test_steps_per_unit_of_numbers(per_unit, n, expected):
    assert find_seasons(1990 + np.arange(n) / per_unit, in_days=False) == pytest.approx(expected)


def test_decimal_years_of_months():
    days = pd.date_range("1990-01-01", periods=60, freq="MS")
    years = days.year + (days.dayofyear - 1) / (365 + days.is_leap_year)
    assert find_seasons(years.to_numpy(dtype=float), in_days=False) == [1.0]


def test_gaps_and_repeated_times_do_not_hide_a_season():
    time = np.repeat(np.arange(120) / 12, 2)[np.r_[0:50, 90:240]]
    assert find_seasons(time, in_days=False) == [1.0]


def test_values_show_the_periods_without_a_calendar():
    rng, time = np.random.default_rng(0), np.arange(672.0)
    walk, noise = rng.normal(0, 0.1, 672).cumsum(), rng.normal(0, 0.5, 672)
    day, week = (np.tile(rng.normal(0, 2, n), 672 // n) for n in (24, 168))
    kept = rng.random(672) < 0.9
    for jump in (0 * time, time == 300, time > 300):  # an outlier, a change of level
        assert repeated_periods(time, day + walk + noise + 1000 * jump) == [24.0]
    assert repeated_periods(time[kept] / 10, (day + noise)[kept]) == pytest.approx([2.4])
    assert repeated_periods(time, day + week + noise) == [24.0, 168.0]
    for values in (walk, noise, noise[:20], time, time**2, 0 * time, day[:60]):
        assert repeated_periods(time[: len(values)], values) == []
    forecaster = NKNForecaster(quality="fast", progress=False, random_state=0)
    assert forecaster.fit(time[:168], (day + noise)[:168]).seasons_ == [24.0]
    assert np.corrcoef(forecaster.forecast(24)["median"], day[:24])[0, 1] > 0.9


def test_given_seasons():
    time = np.arange(100.0)
    assert check_seasons(12, time, in_days=False) == [12.0]
    assert check_seasons([30, 7], time, in_days=False) == [7.0, 30.0]
    assert check_seasons([7, 90], time, in_days=False) == [7.0]  # the data hold no two of 90
    assert check_seasons([], time, in_days=False) == []
    with pytest.raises(ValueError, match=r"at least two steps \(1 each\), got 1"):
        check_seasons(1, time, in_days=False)
    with pytest.raises(ValueError, match=r"at least two steps \(01:00:00 each\), got '75min'"):
        check_seasons("75min", time / 24, in_days=True)
    with pytest.raises(ValueError, match="finite"):
        check_seasons(np.inf, time, in_days=False)
    with pytest.raises(TypeError, match="in units of time, got {'a'}"):
        check_seasons({"a"}, time, in_days=False)
    with pytest.raises(ValueError, match="numbers in units of time, got"):
        check_seasons("7D", time, in_days=False)
    with pytest.raises(ValueError, match="durations such as '7D', .* got 'week'"):
        check_seasons("week", time, in_days=True)


@pytest.mark.parametrize(
    ("season", "days"),
    [
        (np.timedelta64(168, "h"), [7.0]),
        ([timedelta(days=7)], [7.0]),
        (["1W", "48h"], [2.0, 7.0]),
        (["2880min", 4], [2.0, 4.0]),
        (["1Y", "3M"], [YEAR / 4, YEAR]),
    ],
)
def test_seasons_as_durations_are_days(season, days):
    assert check_seasons(season, np.arange(800.0), in_days=True) == pytest.approx(days)
