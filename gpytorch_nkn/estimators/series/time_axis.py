"""Conversion of the times of a series to numbers, and the times that follow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gpytorch_nkn.estimators.series.recurring_dates import (
    MonthlyDates,
    closed_months,
    next_in_month,
    next_in_retail_year,
    next_in_week,
    next_in_year,
    next_times,
)
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_input import as_time, as_times, local, matched, starts

__all__ = ["TimeAxis"]

_MONTH = 365.2425 / 12  # days
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """Converts the times of a series to numbers and continues them.

    Dates become days since 1970. If they follow a monthly rule, such as the 30th or the last
    business day, all months have the same length. Dates with a time zone become local times. If
    the clock is set back, local times are repeated; if it is set forward, there is a gap.
    """

    index: pd.Index  # the times N
    monthly: MonthlyDates | None  # rule of at most one date per month
    by_clock: bool  # whether dates with a time zone continue in local time; otherwise in UTC

    @classmethod
    def of(cls, index: pd.Index) -> TimeAxis:
        """Infer the axis from times."""
        monthly = None
        if _has_dates(index):
            monthly = MonthlyDates.of(local(index).dropna().unique().sort_values().to_numpy())
        return cls(index, monthly, _by_clock(index))

    @property
    def has_dates(self) -> bool:
        """Whether times are dates rather than numbers or durations."""
        return _has_dates(self.index)

    @property
    def in_days(self) -> bool:
        """Whether numbers are days, as for dates and durations."""
        return self.has_dates or isinstance(self.index, pd.TimedeltaIndex)

    @property
    def step(self) -> float:
        """Median step of the numbers."""
        return typical_step(self.numbers(self.index))

    def numbers(self, x: ArrayLike) -> np.ndarray:
        """Convert times ``M`` to numbers."""
        times = as_times(x)
        numbers = as_time(times)  # raises for strings and missing times
        if _has_dates(times) != self.has_dates:
            kinds = {True: "dates", False: "numbers"}
            raise TypeError(
                f"The series was fitted over {kinds[self.has_dates]}, "
                f"got {kinds[_has_dates(times)]}."
            )
        if not self.has_dates:
            return numbers
        zone, fitted_zone = _zone(times), _zone(self.index)
        if (zone is None) != (fitted_zone is None):
            raise TypeError(
                f"The series was fitted over dates {_zone_text(fitted_zone)}, "
                f"got dates {_zone_text(zone)}."
            )
        times = local(matched(self.in_zone(times), self.index))
        if self.monthly is None:
            return as_time(times)
        dates = times.to_numpy()
        months = self.monthly.months(dates)
        begin, end = (self.monthly.dates(months + np.timedelta64(k, "M")) for k in (0, 1))
        return (months.astype(float) + (dates - begin) / (end - begin)) * _MONTH

    def in_zone(self, times: pd.Index) -> pd.Index:
        """Convert dates with a time zone to the zone of the series."""
        return times if _zone(times) is None else times.tz_convert(_zone(self.index))

    def extended(self, times: pd.Index) -> TimeAxis:
        """Add times ``M`` that are not known, and keep the frequency if they continue it."""
        index = self.index.append(times[~times.isin(self.index)])
        with suppress(ValueError):
            if isinstance(index, pd.DatetimeIndex):
                index = pd.DatetimeIndex(index, freq=self.index.freq)
        return replace(self, index=index)

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Convert numbers ``M`` to times: local times to the millisecond for dates."""
        if not self.has_dates:
            return numbers
        if self.monthly is not None:
            index = np.floor(numbers / _MONTH + 1e-9)
            months = index.astype("int64").astype("datetime64[M]")
            begin, end = (self.monthly.dates(months + np.timedelta64(k, "M")) for k in (0, 1))
            elapsed = np.clip(numbers / _MONTH - index, 0, None) * (end - begin).astype(float)
            return begin + np.round(elapsed).astype("timedelta64[ms]")
        return np.round(numbers * 86_400_000).astype("int64").astype("datetime64[ms]")

    def next(self, count: int) -> pd.Index:
        """Return the times after the end of the series.

        The times follow the frequency of the index, a rule of recurring dates, or the times of the
        week in the data; otherwise median steps. Months of the year that never occur are omitted.
        """
        known = self.index.unique().sort_values()
        if isinstance(known, pd.PeriodIndex):
            dates = self._next_dates(starts(known).to_numpy(), count, known)
            return pd.DatetimeIndex(dates).to_period(known.freq).rename(known.name)
        if not isinstance(known, pd.DatetimeIndex):
            return pd.Index(next_times(known.to_numpy(), count), name=known.name)
        if known.freq is not None:
            try:
                ahead = pd.date_range(known[-1], periods=count + 1, freq=known.freq)
            except pd.errors.OutOfBoundsDatetime:  # beyond the range of nanoseconds
                ahead = pd.date_range(known[-1], periods=count + 1, freq=known.freq, unit="s")
            return ahead[1:].rename(known.name)
        zone = known.tz if self.by_clock or known.tz is None else "UTC"
        moments = known.tz_convert(zone).tz_localize(None) if zone else known
        dates = self._next_dates(moments.unique().sort_values().to_numpy(), count)
        ahead = pd.DatetimeIndex(dates, name=known.name)
        if known.tz is not None:
            ahead = ahead.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            ahead = ahead.tz_convert(known.tz)
        try:
            return ahead.as_unit(known.unit)
        except pd.errors.OutOfBoundsDatetime:  # beyond the range of nanoseconds
            return ahead

    def _next_dates(
        self, dates: np.ndarray, count: int, periods: pd.PeriodIndex | None = None
    ) -> np.ndarray:
        """Return the ``count`` next dates in open months, given sorted dates ``N``."""
        closed, ahead, number = closed_months(dates), dates[:0], count
        while len(ahead) < count:
            ahead = self._next_dates_in_all_months(dates, number, periods)
            ahead = ahead[~np.isin(ahead.astype("datetime64[M]").astype(int) % 12, closed)]
            number *= 4
        return ahead[:count]

    def _next_dates_in_all_months(
        self, dates: np.ndarray, count: int, periods: pd.PeriodIndex | None
    ) -> np.ndarray:
        """Return the ``count`` next dates, including dates in closed months."""
        monthly = (self.monthly.next,) if self.monthly is not None else ()
        for rule in (next_in_year, *monthly, next_in_retail_year, next_in_month, next_in_week):
            if (ahead := rule(dates, count)) is not None:
                return ahead
        if periods is None:
            return next_times(dates, count)
        ordinals = periods.asi8
        step = int(next_times(ordinals, 1)[0] - ordinals[-1]) if len(periods) > 1 else 1
        ahead = ordinals[-1] + step * np.arange(1, count + 1)
        return starts(pd.PeriodIndex.from_ordinals(ahead, freq=periods.freq)).to_numpy()


def _by_clock(index: pd.Index) -> bool:
    if _zone(index) is None:
        return False
    different = index.dropna().unique().sort_values()
    if pd.Series(different).diff().median() >= 0.95 * _DAY:
        return True
    clock, utc = (times.tz_localize(None) for times in (different, different.tz_convert("UTC")))
    of_day = (times - times.normalize() for times in (clock, utc))
    by_clock, by_utc = ((times.nunique(), times.min()) for times in of_day)
    # Equal steps across a change of the clock have more times of day by the clock. Without a
    # change, regular times often include midnight.
    is_open_at_times = by_clock[0] == by_utc[0] and next_in_week(clock.to_numpy(), 1) is not None
    return by_clock < by_utc or is_open_at_times


def _has_dates(index: pd.Index) -> bool:
    return isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)


def _zone(index: pd.Index) -> Any:
    return getattr(index, "tz", None)


def _zone_text(zone: Any) -> str:
    return "without a time zone" if zone is None else f"in time zone {zone}"
