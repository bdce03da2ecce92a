"""Stuck sensors, repeated times, lots, gaps in time, and updates beyond the data."""

import warnings

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.averaging import OrderedProbit
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.estimators.series import candidates, member, series as rows
from gpytorch_nkn.estimators.series.series import Series
from gpytorch_nkn.fit import Recipe

QUICK = {
    "quality": "fast",
    "outliers": "keep",
    "random_state": 0,
    "progress": False,
    "recipe": Recipe(adam_steps=0, lbfgs_iterations=12),
}


@pytest.fixture(autouse=True)
def _one_structure(monkeypatch):
    """Of few rows, for speed."""
    for known in (candidates.QUALITIES, candidates._LONG_QUALITIES):
        monkeypatch.setitem(known, "fast", ("damped",))


def monthly(values, start="2000-01"):
    index = pd.date_range(start, periods=len(values), freq="MS")
    return pd.Series(np.asarray(values, float), index)


def test_a_stuck_sensor_is_half_of_what_forecasts_depend_on():
    values = np.random.default_rng(0).normal(10, 1, 1500)
    series = Series(np.arange(1500.0), values, [], 6)
    assert series.reach == 600
    for drift in (0, 1e-9):
        values[-700:] = 3.3 + drift * np.arange(700)
        assert series.reach == 1400


def test_a_stuck_sensor_has_a_forecast(monkeypatch):
    monkeypatch.setattr(rows, "_ROWS", 60)
    monkeypatch.setattr(rows, "_LEARNED", 120)
    values = np.random.default_rng(0).normal(10, 1, 300)
    values[-150:] = 3.3
    table = NKNForecaster(**QUICK).fit(pd.Series(values)).forecast(3)
    assert np.isfinite(table).all(axis=None)
    np.testing.assert_allclose(table["median"], 3.3, atol=0.1)


def test_horizons_count_times_that_repeat_once():
    x = np.repeat(np.arange(40.0), 4)
    y = 2 * x + np.random.default_rng(0).normal(size=160) - 1000
    model = NKNForecaster(horizon=8, **QUICK).fit(x, y)
    table = model.forecast(8)
    assert abs(table["median"].iloc[-1] + 1000 - 2 * 47) < 2
    assert (table["hi-95"] - table["lo-95"]).between(3, 20).all()
    assert len(Series(x, y, [], 8).steps) == 160 and Series(x, y, [], 8).span == 8
    hours = np.concatenate([24 * day + np.arange(9.0, 17) for day in range(20)])
    assert Series(hours, hours, [], 8).span == 24  # with the usual gaps


@pytest.mark.parametrize(("seed", "lot"), [(1, 60), (0, 1000)])
def test_counts_in_lots(seed, lot):
    values = lot * (np.random.default_rng(seed).random(72) < 0.08)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kind = OrderedProbit.of(values, 0, np.inf)
        assert (np.diff(kind.cuts) > 0).all() and np.isfinite(kind.log_slope(values)).all()
        assert np.isfinite(kind.forward(np.arange(100.0))).all()
        model = NKNForecaster(**QUICK).fit(monthly(values))
        table = model.forecast(3)
        density = model.log_predictive_density(table.index, [0, lot, 30])
    assert (table["hi-95"] == lot).all() and (table["median"] == 0).all()
    assert density[2] < -5 < density[1] < density[0] < 0


def test_log_odds_of_the_rest_mirror_log_odds_of_a_share():
    steps = np.random.default_rng(1).normal(0, 0.2, 48)
    share = 1 / (1 + np.exp(-np.cumsum(steps) - 0.5))
    options = {"bounds": (0, 1), "transform": "logit", **QUICK}
    one, other = (
        NKNForecaster(**options).fit(monthly(y)).forecast(6, level=95) for y in (share, 1 - share)
    )
    np.testing.assert_allclose(1 - other[["median", "hi-95", "lo-95"]], one, rtol=1e-4)


def test_an_update_with_counts_beyond_the_fit():
    values = np.random.default_rng(0).poisson(2, 72)
    series = monthly([*values, *[60] * 24])
    model = NKNForecaster(**QUICK).fit(series[:72])
    model.update(series[72:])
    assert {member.transform for member in model.members_} == {"sqrt", "probit"}
    table = model.forecast(2)
    assert table["median"].between(40, 70).all() and (table["hi-95"] > 65).all()


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        (np.round(np.arange(35.0, -1, -1)), None),
        (np.arange(17.5, -0.5, -0.5), None),
        (np.arange(65.0, 101), (0, 100)),
    ],
)
def test_a_line_that_ends_at_a_bound_keeps_its_uncertainty(line, bounds):
    low, high = bounds or (0, np.inf)
    noise = np.random.default_rng(0).normal(size=36)
    values = np.clip(line + noise, low, high)
    table = NKNForecaster(bounds=bounds, **QUICK).fit(monthly(values)).forecast(6, level=95)
    assert table.ge(low).all(axis=None) and table.le(high).all(axis=None)
    assert (table["hi-95"] - table["lo-95"]).between(0.9, 8).all()


def test_a_line_that_would_cross_its_bound_has_a_wide_forecast():
    table = NKNForecaster(**QUICK).fit(monthly(np.arange(36.0, 0, -1))).forecast(6, level=95)
    assert (table["median"].iloc[1:] == 0).all() and table["hi-95"].iloc[-1] >= 4


@pytest.mark.parametrize("mean", [2, 100])
def test_an_update_of_counts_with_a_fraction(mean):
    model = NKNForecaster(**QUICK).fit(monthly(np.random.default_rng(0).poisson(mean, 40)))
    with pytest.raises(ValueError, match=r"integers as in the fit, got 2\.5"):
        model.update(monthly([2.5], "2003-05"))


def test_a_candidate_that_numbers_break_does_not_lose_the_others(monkeypatch):
    def broken(values):
        if values.max() < 3:  # logarithms
            raise ValueError("too small")
        return values.mean(), values.std()

    monkeypatch.setattr(member, "offset_and_scale", broken)
    model = NKNForecaster(**QUICK).fit(monthly(10 + np.random.default_rng(0).random(30)))
    assert model.scores_["status"].tolist() == ["ok", "failed: ArithmeticError: too small"]
