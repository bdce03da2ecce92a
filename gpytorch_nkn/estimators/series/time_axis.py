"""The times of a series: how they are counted, and how they go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gpytorch_nkn.estimators.series.recurring_dates import (
    MonthlyDates,
    next_in_month,
    next_in_week,
    next_times,
)
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_input import as_time, as_times, starts

__all__ = ["TimeAxis"]

_MONTH = 365.2425 / 12  # days
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """How the times of a series are counted, and how they go on.

    Dates are counted in days since 1970; those of which a month has one at most, by a rule such as
    the 30th or the last day at work, in months of equal length. Dates of a time zone are counted
    by its clock where steps are of a day or more or there are opening hours, and else in UTC.

    Attributes:
        index: Times ``N`` as they came.
        monthly: The rule of dates of which a month has one at most; None without a rule.
        by_clock: Whether times of a zone are counted by its clock.
    """

    index: pd.Index
    monthly: MonthlyDates | None
    by_clock: bool

    @classmethod
    def of(cls, index: pd.Index) -> TimeAxis:
        """The axis of times, which tell how they are counted."""
        return cls(index, _monthly(index), _by_clock(index))

    def extended(self, index: pd.Index) -> TimeAxis:
        """The axis with other times, which are counted in the same way."""
        return replace(self, index=index)

    @property
    def has_dates(self) -> bool:
        """Whether times are dates; else they are numbers or durations."""
        return _has_dates(self.index)

    @property
    def in_days(self) -> bool:
        """Whether times are counted in days: dates and durations."""
        return self.has_dates or isinstance(self.index, pd.TimedeltaIndex)

    @property
    def step(self) -> float:
        """The typical step, as numbers are counted."""
        return typical_step(self.numbers(self.index))

    def numbers(self, x: ArrayLike) -> np.ndarray:
        """Times ``M`` of the same kind as numbers.

        Raises:
            TypeError: They are of another kind, or only one of the two has a time zone.
            ValueError: Some are missing or infinite.
        """
        times = as_times(x)
        if not _has_dates(times):
            numbers = as_time(times)  # or an error: they may be words
        if _has_dates(times) != self.has_dates:
            kinds = {True: "dates", False: "numbers"}
            raise TypeError(
                f"The series was fitted over {kinds[self.has_dates]}, "
                f"got {kinds[_has_dates(times)]}."
            )
        if not self.has_dates:
            return numbers
        own, zone = _zone(times), _zone(self.index)
        if (own is None) != (zone is None):
            raise TypeError(
                f"The series was fitted over dates {_named(zone)}, got dates {_named(own)}."
            )
        if own is not None:
            times = times.tz_convert(zone if self.by_clock else "UTC").tz_localize(None)
        times = _stamps(times)
        if self.monthly is None:
            return as_time(times)
        missing = times.isna()
        if missing.any():
            raise ValueError(f"x contains {int(missing.sum())} missing dates (NaT).")
        dates = times.to_numpy()
        months = self.monthly.months(dates)
        begin, end = (self.monthly.dates(months + k) for k in (0, 1))
        return (months.astype(float) + (dates - begin) / (end - begin)) * _MONTH

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """The times ``M`` of numbers, to the millisecond for dates, by the clock of their zone."""
        if not self.has_dates:
            return numbers
        if self.monthly is not None:
            whole = np.floor(numbers / _MONTH + 1e-9)
            months = whole.astype("int64").astype("datetime64[M]")
            begin, end = (self.monthly.dates(months + k) for k in (0, 1))
            part = np.clip(numbers / _MONTH - whole, 0, None) * (end - begin).astype(float)
            return begin + np.round(part).astype("timedelta64[ms]")
        dates = np.round(numbers * 86_400_000).astype("int64").astype("datetime64[ms]")
        zone = _zone(self.index)
        if zone is None or self.by_clock:
            return dates
        return pd.DatetimeIndex(dates, tz="UTC").tz_convert(zone).tz_localize(None).to_numpy()

    def next(self, count: int) -> pd.Index:
        """The next times after the end.

        By the frequency of the index; else dates of which a month has one go on by their rule,
        dates at some times of the week at these, and all other times in steps of the median step.
        """
        known = self.index.unique().sort_values()
        if isinstance(known, pd.PeriodIndex):
            dates = next_in_week(starts(known).to_numpy(), count)
            if dates is not None:
                return pd.DatetimeIndex(dates).to_period(known.freq).rename(known.name)
            ordinals = known.asi8
            step = int(next_times(ordinals, 1)[0] - ordinals[-1]) if len(known) > 1 else 1
            found = ordinals[-1] + step * np.arange(1, count + 1)
            return pd.PeriodIndex.from_ordinals(found, freq=known.freq, name=known.name)
        if not isinstance(known, pd.DatetimeIndex):
            return pd.Index(next_times(known.to_numpy(), count), name=known.name)
        if known.freq is not None:
            try:
                ahead = pd.date_range(known[-1], periods=count + 1, freq=known.freq)
            except pd.errors.OutOfBoundsDatetime:  # of nanoseconds
                ahead = pd.date_range(known[-1], periods=count + 1, freq=known.freq, unit="s")
            return ahead[1:].rename(known.name)
        dates, zone = known.tz_localize(None).unique().sort_values().to_numpy(), known.tz
        if self.monthly is not None:
            found = self.monthly.next(dates, count)
        else:
            found = next_in_month(dates, count)
            found = next_in_week(dates, count) if found is None else found
        if found is None:
            if zone is not None and not self.by_clock:
                zone, dates = "UTC", known.tz_convert("UTC").tz_localize(None).to_numpy()
            found = next_times(dates, count)
        ahead = pd.DatetimeIndex(found, name=known.name)
        if known.tz is not None:
            ahead = ahead.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            ahead = ahead.tz_convert(known.tz)
        try:
            return ahead.as_unit(known.unit)
        except pd.errors.OutOfBoundsDatetime:  # of nanoseconds
            return ahead


def _monthly(index: pd.Index) -> MonthlyDates | None:
    if not _has_dates(index):
        return None
    index = index.tz_localize(None) if _zone(index) is not None else index
    return MonthlyDates.of(_stamps(index).dropna().unique().sort_values().to_numpy())


def _by_clock(index: pd.Index) -> bool:
    if _zone(index) is None:
        return False
    different = index.dropna().unique().sort_values()
    by_day = bool(pd.Series(different).diff().median() >= 0.95 * _DAY)
    return by_day or next_in_week(different.tz_localize(None).to_numpy(), 1) is not None


def _has_dates(index: pd.Index) -> bool:
    return isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)


def _zone(index: pd.Index) -> Any:
    return getattr(index, "tz", None)


def _named(zone: Any) -> str:
    return "without a time zone" if zone is None else f"of time zone {zone}"


def _stamps(index: pd.Index) -> pd.Index:
    return starts(index) if isinstance(index, pd.PeriodIndex) else index
