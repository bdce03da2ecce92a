import joblib
import numpy as np
import pandas as pd
import pytest
import torch

from gpytorch_nkn.estimators import NKNForecaster, forecast_many
from gpytorch_nkn.estimators.series import many_series
from gpytorch_nkn.estimators.series.candidates import QUALITIES
from gpytorch_nkn.fit import Recipe

QUICK = {
    "quality": "fast",
    "transform": "identity",
    "outliers": "keep",
    "recipe": Recipe(adam_steps=0, lbfgs_iterations=4),
}
MONTHS = pd.date_range("2015-01-01", periods=40, freq="MS")


def series(name, values, times=MONTHS):
    return pd.DataFrame({"unique_id": name, "ds": times[: len(values)], "y": values})


def wave(phase, n=36):
    rng = np.random.default_rng(phase)
    return 9 + np.sin(2 * np.pi * np.arange(n) / 12 + phase) + 0.1 * rng.standard_normal(n)


@pytest.fixture(scope="module", autouse=True)
def _one_structure():
    """Of few rows, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(QUALITIES, "fast", ("damped",))
        yield


@pytest.fixture(scope="module")
def frame():
    parts = [series("tea", wave(1)), series("coffee", wave(2)), series("milk", wave(3, 30))]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def expected(frame):
    return forecast_many(frame, 6, **QUICK)[0]


def by_name(forecasts):
    return forecasts.set_index(["unique_id", "ds"]).sort_index()


def test_each_series_is_forecast_as_by_a_forecaster_of_its_own(frame, expected):
    bands = ["NKN", "NKN-lo-80", "NKN-hi-80", "NKN-lo-95", "NKN-hi-95"]
    assert expected.columns.tolist() == ["unique_id", "ds", *bands]
    assert expected["unique_id"].tolist() == ["tea"] * 6 + ["coffee"] * 6 + ["milk"] * 6
    for name, part in frame.groupby("unique_id"):
        model = NKNForecaster(**QUICK, horizon=6, random_state=0).fit(part.set_index("ds")["y"])
        own = model.forecast(6)
        found = expected[expected["unique_id"] == name]
        np.testing.assert_allclose(found[bands], own, rtol=1e-6)
        assert found["ds"].tolist() == own.index.tolist()
    assert expected["ds"].dtype == frame["ds"].dtype
    noisy = part.assign(noise=np.linspace(0, 1, len(part)))
    found = forecast_many(noisy, 6, noise_col="noise", **QUICK)[0]
    own = model.fit(*(noisy[c].to_numpy() for c in ("ds", "y")), noise_variance=noisy["noise"])
    np.testing.assert_allclose(found[bands], own.forecast(6), rtol=1e-6)


def test_forecasts_depend_on_neither_order_nor_processes(frame, expected):
    before = torch.get_num_threads(), torch.get_rng_state()
    shuffled = frame.sample(frac=1, random_state=0)
    with joblib.parallel_config("multiprocessing", n_jobs=2):
        found, failures = forecast_many(shuffled, 6, **QUICK)
    assert failures.empty
    pd.testing.assert_frame_equal(by_name(found), by_name(expected), rtol=1e-5)
    assert torch.get_num_threads() == before[0] and torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize(
    ("times", "ahead"),
    [
        (pd.period_range("2020Q1", periods=24, freq="Q"),
         pd.PeriodIndex(["2026Q1", "2026Q2"], freq="Q")),
        (pd.RangeIndex(5, 29), [29, 30]),
        (np.arange(24) / 4, [6.0, 6.25]),
        (MONTHS.strftime("%Y-%m-%d"), pd.to_datetime(["2017-01-01", "2017-02-01"])),
        (MONTHS.tz_localize("UTC"), pd.to_datetime(["2017-01-01", "2017-02-01"], utc=True)),
    ],
)  # fmt: skip
def test_times_of_any_kind_go_on_in_kind(times, ahead):
    data = pd.DataFrame({"id": 7, "at": times[:24], "sold": wave(0, 24)})
    found, _ = forecast_many(
        data, 2, level=50, id_col="id", time_col="at", target_col="sold", **QUICK
    )
    assert found.columns.tolist() == ["id", "at", "NKN", "NKN-lo-50", "NKN-hi-50"]
    pd.testing.assert_series_equal(found["at"], pd.Series(ahead), check_names=False)
    assert found["id"].tolist() == [7, 7]


def test_each_series_keeps_its_time_zone():
    """Months begin by the local clock; UTC would not know when it changes."""
    zones = "Europe/Berlin", "America/New_York"
    frames = [series(zone, wave(1), MONTHS.tz_localize(zone)).assign(x=wave(2)) for zone in zones]
    past, future = (pd.concat(f[rows] for f in frames) for rows in (slice(30), slice(30, 36)))
    found, _ = forecast_many(past, 6, future=future, **QUICK)
    assert found["ds"].tolist() == future["ds"].tolist()


def test_a_failure_leaves_the_others_alone(frame, expected):
    bad = {
        "two points": [1.0, 2.0],
        "one point": [1.0],
        "missing": [np.nan] * 5,
        "infinite": [1.0, 2.0, np.inf, 3.0],
    }
    parts = [series(name, values) for name, values in bad.items()]
    parts.append(series("no date", [1.0, 2.0, 4.0, 3.0], MONTHS[:4].where([True] * 3 + [False])))
    parts += 2 * [series("twice", [1.0, 2.0, 3.0])]
    with pytest.warns(
        UserWarning, match="6 of 9 series have no forecast.*'two points': ValueError"
    ):
        found, failures = forecast_many(pd.concat([*parts, frame]), 6, **QUICK)
    assert failures["unique_id"].tolist() == [*bad, "no date", "twice"]
    repeated = "Rows that repeat a time of the series: 3 (the first, 2015-01-01"
    words = ("got 2", "got 1", "got 0", "infinite", "NaT", repeated)
    for reason, word in zip(failures["reason"], words, strict=True):
        assert word in reason
    failed = found["unique_id"].isin(failures["unique_id"])
    assert len(found) == 9 * 6 and found.loc[failed, "NKN":].isna().all(axis=None)
    assert found.loc[found["unique_id"] == "two points", "ds"].iloc[0] == MONTHS[2]
    pd.testing.assert_frame_equal(found[~failed].reset_index(drop=True), expected)


def test_a_constant_series_goes_on_and_missing_values_are_gaps():
    gaps = np.where(np.arange(36) % 5 == 1, np.nan, wave(1))
    found, failures = forecast_many(
        pd.concat([series("flat", [4.0, np.nan, 4.0, 4.0]), series("gaps", gaps)]), 3, **QUICK
    )
    assert failures.empty and (found.iloc[:3, 2:] == 4.0).all(axis=None)
    model = NKNForecaster(**QUICK, horizon=3, random_state=0)
    own = model.fit(pd.Series(gaps, MONTHS[:36]).dropna()).forecast(3)
    np.testing.assert_allclose(found.iloc[3:, 2:], own, rtol=1e-6)


def test_covariates_are_found_by_series_and_time():
    rng = np.random.default_rng(0)
    price = rng.standard_normal((2, 40))
    parts = [
        series(name, wave(1) + slope * values[:36]).assign(price=values[:36])
        for name, slope, values in zip("ab", (3.0, -3.0), price, strict=True)
    ]
    future = pd.DataFrame(
        {
            "unique_id": np.repeat(["b", "a"], 40),
            "ds": np.tile(MONTHS, 2),
            "price": price[::-1].ravel(),
        }
    )
    found, failures = forecast_many(pd.concat(parts), 4, future=future, **QUICK | {"recipe": None})
    assert failures.empty
    season = 9 + np.sin(2 * np.pi * np.arange(36, 40) / 12 + 1)
    truth = np.concatenate([season + 3 * price[0, 36:], season - 3 * price[1, 36:]])
    assert np.abs(found["NKN"] - truth).max() < 1.0 < np.abs(truth - 9).max()
    short = future[(future["unique_id"] == "a") | (future["ds"] < MONTHS[38])]
    with pytest.warns(UserWarning, match="1 of 2 series"):
        _, failures = forecast_many(pd.concat(parts), 4, future=short, **QUICK)
    assert failures["unique_id"].tolist() == ["b"]


def test_rows_of_the_future_are_found_by_numbers():
    data = pd.DataFrame({"unique_id": "a", "ds": range(24), "y": wave(1, 24), "p": range(24)})
    ahead = pd.DataFrame({"unique_id": "a", "ds": [24, 24.5, 25, 26], "p": [24, 99, 25, 26]})
    kept = ahead[ahead["p"] < 50]
    one, two = (forecast_many(data, 2, future=rows, **QUICK)[0] for rows in (kept, ahead))
    pd.testing.assert_frame_equal(one, two)
    _, failures = forecast_many(data, 2, future=ahead[1:], **QUICK)
    assert "for every time, but 1 of 2 have none, the first 24" in str(failures.to_dict())


def test_ctrl_c_keeps_what_is_finished(frame, expected, monkeypatch):
    fit, calls = NKNForecaster.fit, [1]

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit(*args, **options)

    monkeypatch.setattr(NKNForecaster, "fit", interrupted)
    with pytest.warns(UserWarning, match="2 of 3 series"):
        found, failures = forecast_many(frame, 6, **QUICK)
    assert failures["reason"].tolist() == ["not reached: interrupted"] * 2
    pd.testing.assert_frame_equal(found[:6], expected[:6])
    calls[:] = [1, 1]
    with pytest.raises(KeyboardInterrupt):
        forecast_many(frame, 6, **QUICK)


def test_workers_that_die_leave_what_is_finished(frame, expected, monkeypatch):
    def dying(function, tasks, n_jobs, *, shared):
        yield 0, function(shared, *next(iter(tasks)))
        raise RuntimeError("out of memory")

    monkeypatch.setattr(many_series, "as_finished", dying)
    with pytest.warns(UserWarning, match="not reached: RuntimeError: out of memory"):
        found, failures = forecast_many(frame, 6, **QUICK)
    assert len(failures) == 2
    pd.testing.assert_frame_equal(found[:6], expected[:6])


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (None, {"qualty": "fast"}, TypeError, "unexpected keyword argument 'qualty'"),
        (None, {"quality": "slow"}, ValueError, "quality must be one of"),
        (None, {"level": 0.8}, ValueError, "level must be in per cent"),
        (None, {"n_jobs": 1.5}, TypeError, "n_jobs must be an integer, got 1.5"),
        (None, {"id_col": "name"}, ValueError, "no column 'name'; its.*unique_id, ds, y"),
        (None, {"id_col": "y"}, ValueError, "different columns"),
        (lambda f: f["y"], {}, TypeError, "must be a pandas data frame, got Series"),
        (lambda f: f[:0], {}, ValueError, "no rows"),
        (lambda f: f.assign(price=1.0), {}, ValueError, "further columns price"),
        (lambda f: f.assign(y="much"), {}, TypeError, "'y' must hold numbers, got (object|str)"),
        (lambda f: f.assign(ds="1/2/2020"), {}, ValueError, "dates such as 2024-01-31"),
        (lambda f: f.assign(ds=True), {}, TypeError, "'ds' must hold dates or numbers, got bool"),
        (lambda f: f.assign(unique_id=None), {}, ValueError, "rows without 'unique_id': 102"),
        (None, {"future": pd.DataFrame({"unique_id": ["a"], "ds": [1]})}, ValueError, "has none"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_rejected_before_anything_runs(
    frame, change, options, error, message, monkeypatch
):
    monkeypatch.setattr(NKNForecaster, "fit", lambda *_, **__: pytest.fail("it ran"))
    data = frame if change is None else change(frame)
    with pytest.raises(error, match=message):
        forecast_many(data, **{"horizon": 6, **options})
