import numpy as np
import pandas as pd
import pytest

from gpytorch_nkn.estimators.series.covariates import covariate_frame
from gpytorch_nkn.estimators.series.time_axis import TimeAxis

SIX_DAYS = pd.offsets.CustomBusinessDay(weekmask="Mon Tue Wed Thu Fri Sat")
OFFICE_HOURS = pd.offsets.CustomBusinessHour(start="09:00", end="17:00")
LAST_SATURDAY = pd.offsets.LastWeekOfMonth(weekday=5)
_ENDS = {"weekday": 5, "startingMonth": 1}  # of years of 52 or 53 weeks
RETAIL = (
    pd.offsets.FY5253(variation="last", **_ENDS),
    pd.offsets.FY5253(variation="nearest", **_ENDS),
    pd.offsets.FY5253Quarter(variation="last", qtr_with_extra_week=4, **_ENDS),
    pd.offsets.FY5253Quarter(variation="nearest", qtr_with_extra_week=4, **_ENDS),
)
_YEAR_ENDS = pd.date_range("2010-01-01", periods=12, freq=RETAIL[0])
RETAIL_MONTHS = [  # of 4, 4 and 5 weeks, or 4, 5 and 4
    pd.DatetimeIndex([end + pd.Timedelta(weeks=w) for end in _YEAR_ENDS for w in weeks])
    for weeks in (
        (0, 4, 8, 13, 17, 21, 26, 30, 34, 39, 43, 47),
        (0, 4, 9, 13, 17, 22, 26, 30, 35, 39, 43, 48),
    )
]
MARKET_DAYS = pd.offsets.CustomBusinessDay(weekmask="Tue Thu")
MONTHS = pd.date_range("2020-01-01", periods=20, freq="MS")
DAYS = pd.date_range("2020-03-01", periods=40, freq="D")


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
        DAYS.as_unit("s"),
        pd.date_range("1890-01-01", periods=40, freq="QS", tz="America/New_York"),
        pd.period_range("1990Q1", periods=40, freq="Q"),
        pd.period_range("2020-01-01", periods=40, freq="W"),
        pd.RangeIndex(5, 45, name="row"),
        pd.Index(np.arange(40) * 0.25 + 1990),
        pd.timedelta_range("0h", periods=40, freq="6h"),
        *(
            pd.DatetimeIndex([pd.Timestamp(day) + pd.DateOffset(months=k * m) for k in range(40)])
            for day, m in [("2019-12-31", 1), ("2020-01-30", 1), ("2019-11-29", 1)]
            + [("2020-01-31", 3), ("2019-11-30", 6), ("2010-08-30", 3), ("1980-03-15", 12)]
        ),
        *(
            pd.date_range("2019-12-02", periods=60, freq=freq)
            for freq in ("BME", "BMS", "BQE", "WOM-3FRI", LAST_SATURDAY, "QE-JAN", "YE-JUN", "BYE")
            + ("ME", "W-FRI", "B", "SMS", "SME", SIX_DAYS, MARKET_DAYS)
        ),
        pd.date_range("2020-01-31 18:00", periods=40, freq="BME"),
        pd.date_range("2020-03-02", periods=300, freq=OFFICE_HOURS),
        (lambda days: days[days.weekday < 6])(pd.period_range("2020-01-01", periods=70)),
        *(
            (lambda times: times[times.month < 4])(pd.date_range("1990", end, freq=freq))
            for freq, end in (("MS", "2000"), ("D", "1993-01-06"), ("h", "1993-01-01 06:00"))
        ),
        (lambda months: months[months.month < 4])(pd.period_range("1990", "1999-12", freq="M")),
        (lambda times: times[times.quarter != 2])(pd.period_range("1980", "2010", freq="Q")),
        pd.date_range("2021-03-10", periods=200, freq="3h", tz="Europe/London"),
        *(
            MONTHS.repeat(len(days)) + pd.to_timedelta(np.tile(days, 20), "D")
            for days in ([0, 10, 20], [0, 5, 10, 15, 20, 25], [0, 7, 14, 21])
        ),
        pd.date_range("2012-01-01", periods=40, freq="BMS") + pd.offsets.BDay(1),
        pd.date_range("2020-01-01", periods=100, freq="W-SUN"),  # 53 weeks
        pd.period_range("2019-06-01", periods=100, freq="W-WED"),
        *(pd.date_range("1990-01-01", periods=40, freq=freq) for freq in RETAIL),
        *RETAIL_MONTHS,
        pd.date_range("2020-03-20", periods=60, freq="12h", tz="UTC"),
        *(
            pd.date_range("2020-03-20", periods=600, freq=f)
            for f in ("5min", "5h", "2D", "10D", "30D")
        ),
        *(
            pd.date_range("2020-03-02", periods=25, freq=f) for f in ("28D", "91D")
        ),  # no retail year
    ],
)
@pytest.mark.parametrize("gaps", [False, True])
def test_times_go_on_as_pandas_goes_on(index, gaps):
    known = index[:-12].delete([4, 11]) if gaps else index[:-12]
    if isinstance(known, pd.DatetimeIndex):
        known.freq = None  # which would go on by itself
    axis = TimeAxis.of(known)
    ahead = axis.next(12)
    assert type(ahead) is type(known) or not isinstance(known, pd.DatetimeIndex | pd.PeriodIndex)
    np.testing.assert_array_equal(np.asarray(ahead), np.asarray(index[-12:]))
    assert ahead.dtype.kind == known.dtype.kind and ahead.name == known.name
    if isinstance(known, pd.DatetimeIndex):  # numbers lead back to the times
        by_clock = known.tz_localize(None).to_numpy()
        np.testing.assert_array_equal(axis.times(axis.numbers(known)), by_clock)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2001-10", "2001-11"], ["2001-12-01", "2002-01-01"]),
        (["2001-10-31", "2001-11-30"], ["2001-12-31", "2002-01-31"]),
        (["2001-10-30", "2001-11-30", "2001-12-30"], ["2002-01-30", "2002-02-28", "2002-03-30"]),
        (["2001-11-29", "2001-12-29", "2002-01-29"], ["2002-02-28", "2002-03-29"]),
        (["2001-02-28", "2002-02-28", "2003-02-28"], ["2004-02-29", "2005-02-28"]),
        (["2001-01-31", "2001-02-28", "2001-03-30"], ["2001-04-30", "2001-05-31", "2001-06-29"]),
        (["2001-01-05", "2001-02-02", "2001-03-02"], ["2001-03-30"]),  # 28 days
        (["2001-01-01T22", "2001-01-01T23"], ["2001-01-02T00", "2001-01-02T01"]),
        (["2001-01-01", "2001-01-02", "2001-01-07", "2001-01-08"], ["2001-01-09"]),  # irregular
    ],
)
def test_short_series_go_on(times, expected):
    ahead = TimeAxis.of(pd.DatetimeIndex(times)).next(len(expected))
    assert ahead.tolist() == pd.DatetimeIndex(expected).tolist()


def test_paydays_before_weekends_and_nearly_monthly_dates_stay_in_every_month():
    months = pd.date_range("2020-01-01", periods=48, freq="MS")
    paydays = months + pd.Timedelta("24D")
    paydays = pd.DatetimeIndex([pd.offsets.BDay().rollback(day) for day in paydays])
    axis = TimeAxis.of(paydays[:36])
    assert axis.next(12).tolist() == paydays[36:].tolist()
    np.testing.assert_allclose(np.diff(axis.numbers(paydays)), 365.2425 / 12, rtol=1e-12)
    ends = pd.offsets.CustomBusinessMonthEnd(holidays=[f"{y}-12-31" for y in range(2015, 2019)])
    ends = pd.date_range("2015-01-01", periods=59, freq=ends)  # three of the 48 are moved
    assert TimeAxis.of(ends[:48]).next(11).tolist() == ends[48:].tolist()
    nearly = months + pd.Timedelta("29D")
    nearly = nearly.where(months.month != 2, months + pd.Timedelta("27D"))  # in leap years, too
    ahead = TimeAxis.of(nearly[:36]).next(12)
    assert ahead.to_period("M").tolist() == months[36:].to_period("M").tolist()


@pytest.mark.parametrize(
    "days",
    [["02-15", "09-01"], ["01-15", "04-15", "06-15", "09-15"], ["01-08T09:30", "05-20T09:30"]],
)
def test_terms_of_every_year_stay_on_their_days(days):
    terms = pd.DatetimeIndex([f"{year}-{day}" for year in range(2010, 2022) for day in days])
    assert (TimeAxis.of(terms[:-9]).next(9) == terms[-9:]).all()


@pytest.mark.parametrize("months", [(2, 8), (1, 2, 6)])
def test_ends_of_months_stay_ends_in_leap_years(months):
    ends = pd.date_range("2001-01-31", "2008-12-31", freq="ME")
    terms = ends[ends.month.isin(months)]
    known = terms[terms.year < 2004]
    assert (TimeAxis.of(known).next(len(terms) - len(known)) == terms[len(known) :]).all()


def test_days_with_holidays_and_rare_openings_go_on_at_the_days_that_occur():
    days = pd.bdate_range("2001-01-01", "2001-06-29")
    known = days.delete([10, 60, 61, 90]).append(pd.DatetimeIndex(["2001-05-19"]))  # one Saturday
    ahead = TimeAxis.of(known).next(6)
    assert ahead.tolist() == pd.bdate_range("2001-07-02", periods=6).tolist()


@pytest.mark.parametrize(
    ("freq", "gap"),
    [("5min", 3), ("20min", 13), ("h", 15), ("2h", 6), ("6h", 30), ("D", 10), ("h", 3), ("D", 30)],
)
def test_one_long_gap_closes_no_time_of_the_week(freq, gap):
    index = pd.date_range("2001-01-01", "2001-02-20", freq=freq)
    for ends in (9, len(index) // 5):
        begin, end = index[: ends + 3], index[index >= index[ends + 3] + pd.Timedelta(days=gap)]
        known = begin.append(end[: max(ends, 9)])
        ahead = TimeAxis.of(known).next(3)
        assert ahead.tolist() == [known[-1] + k * index.freq for k in (1, 2, 3)]


@pytest.mark.parametrize("seed", [2, 3])
def test_gaps_at_random_close_no_time_of_the_week(seed):
    rng = np.random.default_rng(seed)
    for index in (
        pd.date_range("2001-01-01", periods=21 * 24, freq="h"),
        pd.date_range("2001-01-01", periods=30, freq="D"),
        pd.date_range("2001-01-01", periods=2000, freq="15min"),
    ):
        keep = rng.random(len(index)) < 0.8
        keep[len(index) // 2 : len(index) // 2 + len(index) // 10] = False
        keep[[0, -1]] = True
        ahead = TimeAxis.of(index[keep]).next(3)
        assert ahead.tolist() == [index[-1] + k * index.freq for k in (1, 2, 3)]


def test_numbers_go_on_in_the_step_of_the_series():
    def ahead(times, count):
        return TimeAxis.of(pd.Index(times)).next(count).to_numpy()

    np.testing.assert_allclose(ahead([0.0, 0.0, 2.0, 4.0, 8.0], 2), [10.0, 12.0])
    days = np.array([0.0, 31.0, 59.0, 90.0, 120.0, 151.0, 181.0, 212.0, 243.0]) / 365
    assert ahead(days, 12)[-1] - days[-1] == pytest.approx(1.0, abs=0.005)
    with pytest.raises(ValueError, match="two different times, got 1"):
        ahead([3.0, 3.0], 2)


def test_local_midnights_in_utc_go_on_by_days():
    days = pd.date_range("2024-02-25", periods=40, tz="Europe/Berlin")
    ahead = TimeAxis.of(pd.DatetimeIndex(days.to_numpy(), tz="UTC")).next(1)
    assert (ahead[0] - days[-1]) == pd.Timedelta(days=1)


def test_steps_of_milliseconds_go_on_in_little_memory():
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(1.5 * np.arange(40), unit="ms")
    assert (TimeAxis.of(times).next(2) - times[-1]).total_seconds().tolist() == [0.0015, 0.003]


@pytest.mark.parametrize("freq", ["B", "bh", pd.offsets.CustomBusinessDay(holidays=["2024-01-22"])])
def test_new_and_known_times_keep_the_frequency(freq):
    index = pd.date_range("2024-01-08", periods=14, freq=freq)
    axis = TimeAxis.of(index[:10])
    for times in (index[8:10], index[10:]):
        axis = axis.extended(times)
    assert axis.next(5).equals(TimeAxis.of(index).next(5))
    assert axis.extended(index[-1:] + pd.Timedelta(days=9)).index.freq is None


@pytest.mark.parametrize("freq", ["M", "2M"])
def test_periods_of_every_other_month(freq):
    index = pd.period_range("2020-01", "2020-11", freq=freq)
    index = index[::2] if freq == "M" else index
    assert TimeAxis.of(index).next(2).astype(str).tolist() == ["2021-01", "2021-03"]


@pytest.mark.parametrize("make", [pd.date_range, pd.period_range])
def test_times_go_on_beyond_the_nanoseconds_of_pandas(make):
    axis = TimeAxis.of(make("2250-01-01", periods=12, freq="YS" if make is pd.date_range else "Y"))
    ahead = axis.next(30)
    assert ahead[-1].year == 2291
    np.testing.assert_allclose(np.diff(axis.numbers(ahead)), 365.2425)


def test_clocks_of_other_zones_are_the_same_moments():
    index = DAYS.tz_localize("Europe/Berlin")
    axis = TimeAxis.of(index)
    np.testing.assert_array_equal(axis.numbers(index.tz_convert("UTC")), axis.numbers(index))
    np.testing.assert_array_equal(np.diff(axis.numbers(index)), 1.0)
    with pytest.raises(TypeError, match="in time zone Europe/Berlin, got dates without a time"):
        axis.numbers(DAYS)


CHANGES = {"Europe/Berlin": "2024-03-31", "America/New_York": "2024-11-03"}
CHANGES["Australia/Lord_Howe"] = "2024-10-06"  # by half an hour


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize(
    ("freq", "end"),
    [("h", 1), ("30min", 4), ("6h", 0), ("12h", -3), ("D", 0), ("W", 1), (OFFICE_HOURS, 4)]
    + [("12h", 1), ("6h", 4), (OFFICE_HOURS, -3)],
)
def test_series_go_on_across_a_change_of_the_clock(zone, freq, end):
    """By the clock; steps of at most an hour are equal, and an hour may occur twice."""
    change = pd.Timestamp(CHANGES[zone])
    ends = change - pd.Timedelta(days=90 if freq != "W" else 900), change + pd.Timedelta(days=40)
    if freq in ("h", "30min"):
        index = pd.date_range(*ends, freq=freq, tz="UTC").tz_convert(zone)
    else:
        index = pd.date_range(*ends, freq=freq)
        index = index.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
    count = (index < (change + pd.Timedelta(days=end)).tz_localize(zone)).sum()
    axis = TimeAxis.of(pd.DatetimeIndex(list(index[:count])))
    pd.testing.assert_index_equal(axis.next(len(index) - count), index[count:], exact=False)
    of_day = np.unique((axis.numbers(index) % 1).round(6))
    assert of_day.size == len(set(index.time))


@pytest.mark.parametrize("freq", ["D", "W-SUN", "M", "Q-DEC"])
def test_periods_match_the_dates_that_name_them(freq):
    """A period, its first and its last day are one time, whichever of them the series has."""
    periods = pd.period_range("2019-01-01", periods=16, freq=freq)
    first, last = periods.to_timestamp(), periods.to_timestamp(how="end").normalize()
    within = first + (last - first) / 2
    for known in (periods, first, last):
        axis, wanted = TimeAxis.of(known[:12]), known[12:]
        expected = axis.numbers(wanted)
        for given in (periods, within, first, last) if known is periods else (periods,):
            np.testing.assert_array_equal(axis.numbers(given[12:]), expected)
            values = pd.DataFrame({"a": np.arange(16.0)}, given)
            assert covariate_frame(values, wanted)["a"].tolist() == [12.0, 13.0, 14.0, 15.0]
    if freq != "D":
        with pytest.raises(TypeError, match="are dates within such periods: pass dates"):
            TimeAxis.of(first + pd.Timedelta("1D")).numbers(periods)
