"""Long series, distant forecasts, and their limits."""

import time as clock
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators import NKNForecaster, forecast_many
from gpytorch_nkn.estimators.series import member, scoring, series as rows
from gpytorch_nkn.fit import Recipe

FAST = {
    "quality": "fast",
    "transform": "identity",
    "outliers": "keep",
    "random_state": 0,
    "recipe": Recipe(adam_steps=0, lbfgs_iterations=12),
}


def hours(count, seed=0, memory=0.8):
    """Days and autocorrelated noise of standard deviation 5 about 100."""
    rng = np.random.default_rng(seed)
    noise = np.zeros(count)
    for row in range(1, count):
        noise[row] = memory * noise[row - 1] + 5 * np.sqrt(1 - memory**2) * rng.standard_normal()
    values = 100 + 10 * np.sin(2 * np.pi * np.arange(count) / 24) + noise
    return pd.Series(values, pd.date_range("2024-01-01", periods=count, freq="h"))


@pytest.fixture(scope="module", autouse=True)
def _few_rows():
    """The same on fewer rows, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_LEARNED", 250)
        patch.setattr(scoring, "_SEEN", 150)
        patch.setattr(member, "CONDITIONED", 500)
        yield


@pytest.fixture(scope="module")
def stationary():
    series = hours(1200)
    return series, NKNForecaster(horizon=200, **FAST).fit(series[:1000])


def test_half_of_the_rows_are_the_last_ones_and_the_others_are_thinned():
    seen = rows.view(5000, 4000, 500)
    assert len(seen) == 500 and seen[0] >= 1000 and seen[-1] == 4999
    steps = np.diff(seen)
    assert (steps > 0).all() and (steps[-249:] == 1).all()
    assert steps[:50].mean() > 2 * steps[200:249].mean()


def test_intervals_of_a_stationary_series_do_not_widen(stationary):
    series, model = stationary
    found = model.forecast()
    far = found[-100:]
    width = (far["hi-95"] - far["lo-95"]).mean()
    truth = 2 * 1.96 * 5
    assert truth / 1.5 < width < 1.5 * truth
    inside = (found["lo-95"] <= series[1000:]) & (series[1000:] <= found["hi-95"])
    assert 0.9 < inside.mean()


def test_the_median_of_a_stationary_series_returns_to_its_mean():
    past = hours(2000, memory=0.97)
    last_day = NKNForecaster(horizon=400, **FAST).fit(past).forecast()["median"][-24:]
    assert abs(last_day.mean() - 100) < 0.5 * abs(past[-48:].mean() - 100)


def test_new_observations_and_paths_of_a_long_series(stationary):
    series, model = stationary
    paths = model.sample_paths(400, horizon=24, random_state=1)
    table = model.forecast(24)
    width = (table["hi-95"] - table["lo-95"]).to_numpy()
    assert (np.abs(paths.median(axis=1) - table["median"]) < 0.15 * width).all()
    longer = deepcopy(model).update(series[1000:])
    assert longer.forecast(24).index[0] == series.index[-1] + pd.Timedelta("1h")


def test_logarithms_do_not_grow_faster_than_ever_seen():
    days = np.arange(60)
    values = 200 * np.exp(-(((days - 45) / 12) ** 2)) + 1
    cases = pd.Series(np.random.default_rng(0).poisson(values) + 1.0, days)
    model = NKNForecaster(seasons=[], horizon=14, **FAST | {"transform": "log"}).fit(cases)
    windows = [cases[k : k + 14].max() for k in range(47)]
    growth = max(b / a for a, b in zip(windows, windows[14:], strict=False))
    assert model.forecast()["hi-95"].max() < windows[-1] * growth**2


@pytest.mark.parametrize("growth", [0.0, 0.05])
def test_far_beyond_the_data_growth_is_linear(growth, one_structure):
    months = pd.date_range("2015-01", periods=24, freq="MS")
    noise = 0.05 * np.random.default_rng(0).standard_normal(24)
    values = pd.Series(100 * np.exp(growth * np.arange(24) + noise), months)
    model = NKNForecaster(seasons=[], horizon=5000, **FAST | {"transform": "log"}).fit(values)
    with pytest.warns(UserWarning, match="in 1 window of 16 steps: the series is too short"):
        found = model.forecast(level=95)[["median", "hi-95"]]
    assert (found.iloc[-1] < 3 * found.iloc[2000]).all()  # 2.5 times as far ahead
    assert found["hi-95"].iloc[-1] < 1e5 * values.max()


MONTHS, HOURS = (
    pd.period_range("2015-01", periods=48, freq="M"),
    pd.date_range("2024-01-01", periods=100, freq="h"),
)


@pytest.mark.parametrize(
    ("times", "horizon", "scored", "windows", "advice"),
    [
        (MONTHS, None, 12, "2 windows of 12", r"set NKNForecaster\(horizon=13\)"),  # two years
        (MONTHS, 30, 24, "1 window of 24", "the series is too short"),  # come before these
        (HOURS, None, 24, "2 windows of 24", r"set NKNForecaster\(horizon=25\)"),
        (HOURS[HOURS.hour % 12 > 1], 10, 10, "4 windows of 10", r"set NKNForecaster\(horizon=11\)"),
    ],
)
def test_only_forecasts_beyond_the_scored_steps_give_a_warning(
    times, horizon, scored, windows, advice, one_structure
):
    series = pd.Series(hours(len(times)).to_numpy(), times)
    model = NKNForecaster(**FAST, horizon=horizon).fit(series)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        last = model.forecast(scored).index[-1]
    later = model.time_axis_.next(scored + 1)
    match = rf"to step {scored} \({last}\), in {windows} steps: {advice}"
    for call in (
        lambda: model.forecast(scored + 1),
        lambda: model.sample_paths(2, horizon=scored + 1),
        lambda: model.predict(later if horizon else later[-1:]),
    ):
        with pytest.warns(UserWarning, match=match) as found:
            call()
        assert len(found) == 1
    if "set" in advice:
        longer = model.set_params(horizon=scored + 1).fit(series)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            longer.forecast()


def test_backtests_and_many_series_give_one_warning(one_structure):
    series = pd.Series(hours(40).to_numpy(), MONTHS[:40])
    with pytest.warns(UserWarning, match="2 of 3 windows are .* to step 12.* to step 3 ") as found:
        NKNForecaster(**FAST).cross_validation(series, horizon=12, windows=3)
    assert len(found) == 1
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": MONTHS[:count].to_timestamp(), "y": series[:count]})
        for name, count in (("long", 40), ("new", 15), ("short", 12))
    )
    match = r"2 of 3 series \(the first, 'new'\) are not .* to step 12.* to step 10 "
    with pytest.warns(UserWarning, match=match) as found:
        forecast_many(frame, 12, **FAST)
    assert len(found) == 1


def test_irregular_times_give_no_warning_in_a_backtest(one_structure):
    times = np.random.default_rng(1).exponential(size=120).cumsum()
    series = pd.Series(hours(120).to_numpy(), times)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NKNForecaster(seasons=[], **FAST).cross_validation(series, horizon=6, windows=2)


def test_a_small_budget_still_gives_a_sound_forecast():
    series = hours(20_168)
    past, future = series[:20_000], series[20_000:]
    begin = clock.monotonic()
    found = NKNForecaster(horizon=168, budget=0.5, random_state=0).fit(past).forecast()
    assert clock.monotonic() - begin < 4.5
    naive = np.abs(past[-168:].to_numpy() - future.to_numpy()).mean()
    assert np.abs(found["median"] - future).mean() < 1.2 * naive
    assert (found["hi-95"] - found["lo-95"]).mean() < 3 * 20


def test_long_series_with_covariates_gaps_irregular_times_and_time_zones(one_structure):
    rng = np.random.default_rng(0)
    series = hours(900).tz_localize("Europe/Vienna", nonexistent="shift_forward", ambiguous=True)
    heat = pd.DataFrame({"heat": rng.standard_normal(900)}, series.index)
    series += 20 * heat["heat"].to_numpy()
    later = pd.to_timedelta(rng.integers(0, 20, 900), unit="min")
    series.index = heat.index = series.index + later
    series[400:450] = np.nan
    past, future = series[:800], series[800:]
    model = NKNForecaster(horizon=100, **FAST).fit(past, covariates=heat[:800])
    found = model.predict(future.index, covariates=heat[800:])
    assert np.sqrt(np.mean((found - future) ** 2)) < 1.3 * 5
