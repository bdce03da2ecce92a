import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators.series.time_axis import TimeAxis

DAYS = pd.date_range("2020-03-01", periods=40, freq="D")


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2019-01-01", periods=30, freq="MS"),
        pd.date_range("2019-01-31", periods=30, freq="ME"),
        pd.date_range("2019-01-01", periods=30, freq="MS") + pd.Timedelta("14D"),
        pd.date_range("2019-01-01", periods=30, freq="MS", tz="Europe/Berlin"),
        pd.period_range("2019-01", periods=30, freq="M"),
    ],
)
def test_months_are_of_equal_length(index):
    steps = np.diff(TimeAxis.of(index).numbers(index))
    np.testing.assert_allclose(steps, 365.2425 / 12, rtol=1e-12)


def test_days_within_a_month_lie_between_its_ends():
    axis = TimeAxis.of(pd.date_range("2019-01-01", periods=30, freq="MS"))
    days = pd.date_range("2020-02-01", periods=30)  # to the first of March
    counted = axis.numbers(days)
    np.testing.assert_allclose(np.diff(counted), 365.2425 / 12 / 29, rtol=1e-9)
    assert counted[-1] == axis.numbers(pd.DatetimeIndex(["2020-03-01"]))[0]


@pytest.mark.parametrize(
    "index",
    [
        DAYS,
        pd.date_range("1890-03-31", periods=300, freq="QE"),
        pd.date_range("2019-01-01", periods=30, freq="MS") + pd.Timedelta("14D"),
        pd.date_range("2020-01-01", periods=50, freq="7h"),
    ],
)
def test_numbers_lead_back_to_the_times(index):
    axis = TimeAxis.of(index)
    np.testing.assert_array_equal(axis.times(axis.numbers(index)), index.to_numpy())


@pytest.mark.parametrize(
    "index",
    [
        DAYS,
        DAYS.tz_localize("Europe/Berlin"),  # summer time begins within
        DAYS.as_unit("s"),
        pd.date_range("2020-01-31", periods=40, freq="ME"),
        pd.date_range("2020-01-01", periods=40, freq="QS", tz="America/New_York"),
        pd.date_range("2020-01-03", periods=40, freq="W-FRI"),
        pd.bdate_range("2020-01-01", periods=40),
        pd.date_range("2020-03-20", periods=400, freq="h", tz="Europe/Berlin"),
        pd.period_range("1990Q1", periods=40, freq="Q"),
        pd.period_range("2020-01-01", periods=40, freq="W"),
        pd.RangeIndex(5, 45, name="row"),
        pd.Index(np.arange(40) * 0.25 + 1990),
        pd.timedelta_range("0h", periods=40, freq="6h"),
    ],
)
@pytest.mark.parametrize("gaps", [False, True])
def test_times_go_on_as_pandas_goes_on(index, gaps):
    known = index[:-12].delete([4, 11]) if gaps else index[:-12]
    ahead = TimeAxis.of(known).next(12)
    assert type(ahead) is type(known) or not isinstance(known, pd.DatetimeIndex | pd.PeriodIndex)
    np.testing.assert_array_equal(np.asarray(ahead), np.asarray(index[-12:]))
    assert ahead.dtype.kind == known.dtype.kind and ahead.name == known.name


@pytest.mark.parametrize(
    "index",
    [
        pd.period_range("2020-01", periods=12, freq="M")[::2],
        pd.period_range("2020-01", periods=6, freq="2M"),
    ],
)
def test_periods_of_every_other_month(index):
    assert TimeAxis.of(index).next(2).astype(str).tolist() == ["2021-01", "2021-03"]


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2250-01-01", periods=12, freq="YS"),
        pd.period_range("2250-01", periods=12, freq="Y"),
    ],
)
def test_times_go_on_beyond_the_nanoseconds_of_pandas(index):
    axis = TimeAxis.of(index)
    ahead = axis.next(30)
    assert ahead[-1].year == 2291
    np.testing.assert_allclose(np.diff(axis.numbers(ahead)), 365.2425)


def test_an_axis_that_is_extended_counts_as_before():
    axis = TimeAxis.of(pd.date_range("2019-01-01", periods=30, freq="MS"))
    before = axis.numbers(DAYS)
    np.testing.assert_array_equal(axis.extended(DAYS).numbers(DAYS), before)


def test_clocks_of_other_zones_are_the_same_moments():
    index = DAYS.tz_localize("Europe/Berlin")
    axis = TimeAxis.of(index)
    np.testing.assert_array_equal(axis.numbers(index.tz_convert("UTC")), axis.numbers(index))
    np.testing.assert_array_equal(np.diff(axis.numbers(index)), 1.0)
    with pytest.raises(TypeError, match="of time zone Europe/Berlin, got dates without a time"):
        axis.numbers(DAYS)


def test_hours_of_a_zone_are_of_equal_length():
    index = pd.date_range("2020-03-28", periods=72, freq="h", tz="Europe/Berlin")
    np.testing.assert_allclose(np.diff(TimeAxis.of(index).numbers(index)), 1 / 24, rtol=1e-6)
