"""The times of a series: how they are counted, and how they go on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gpytorch_nkn.datasets import future_times, shift_to_month
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_input import as_time, as_times, starts

__all__ = ["TimeAxis"]

_MONTH = 365.2425 / 12  # days
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """How the times of a series are counted, and how they go on.

    Dates are counted in days since 1970; those of a monthly, quarterly or yearly series in months
    of equal length. Dates of a time zone are counted by its clock where steps are of a day or
    more, and else in UTC.

    Attributes:
        index: Times ``N`` as they came.
        month: What brings dates to the beginning of a month; None if nothing does.
        by_clock: Whether times of a zone are counted by its clock.
    """

    index: pd.Index
    month: np.timedelta64 | None
    by_clock: bool

    @classmethod
    def of(cls, index: pd.Index) -> TimeAxis:
        """The axis of times, which tell how they are counted."""
        return cls(index, _month(index), _by_clock(index))

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
        if self.month is None:
            return as_time(times)
        missing = times.isna()
        if missing.any():
            raise ValueError(f"x contains {int(missing.sum())} missing dates (NaT).")
        dates = times.to_numpy() + self.month
        months = dates.astype("datetime64[M]")
        begin, end = (m.astype("datetime64[s]") for m in (months, months + np.timedelta64(1, "M")))
        return (months.astype(float) + (dates - begin) / (end - begin)) * _MONTH

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """The times ``M`` of numbers, to the millisecond for dates (without a time zone)."""
        if not self.has_dates:
            return numbers
        if self.month is None:
            return np.round(numbers * 86_400_000).astype("int64").astype("datetime64[ms]")
        whole = np.floor(numbers / _MONTH + 1e-9)
        begin, end = ((whole + k).astype("int64").astype("datetime64[M]") for k in (0, 1))
        begin, end = begin.astype("datetime64[ms]"), end.astype("datetime64[ms]")
        part = np.clip(numbers / _MONTH - whole, 0, None) * (end - begin).astype(float)
        return begin + np.round(part).astype("timedelta64[ms]") - self.month

    def next(self, count: int) -> pd.Index:
        """The next times after the end: by the frequency of the index, or the usual step."""
        known = self.index.unique().sort_values()
        if isinstance(known, pd.PeriodIndex):
            ordinals = known.asi8
            step = int(future_times(ordinals, 1)[0] - ordinals[-1]) if len(known) > 1 else 1
            found = ordinals[-1] + step * np.arange(1, count + 1)
            return pd.PeriodIndex.from_ordinals(found, freq=known.freq, name=known.name)
        frequency = _frequency(known) if isinstance(known, pd.DatetimeIndex) else None
        if frequency is not None:
            try:
                ahead = pd.date_range(known[-1], periods=count + 1, freq=frequency)
            except pd.errors.OutOfBoundsDatetime:  # of nanoseconds
                ahead = pd.date_range(known[-1], periods=count + 1, freq=frequency, unit="s")
            return ahead[1:].rename(known.name)
        if _zone(known) is None:
            return pd.Index(future_times(known.to_numpy(), count), name=known.name)
        # By the clock of the zone where a step is of whole days, so that an hour stays that hour.
        zone = known.tz if self.by_clock else "UTC"
        plain = known.tz_convert(zone).tz_localize(None).to_numpy()
        ahead = pd.DatetimeIndex(future_times(plain, count), name=known.name)
        ahead = ahead.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
        return ahead.tz_convert(known.tz)


def _month(index: pd.Index) -> np.timedelta64 | None:
    if not _has_dates(index):
        return None
    index = index.tz_localize(None) if _zone(index) is not None else index
    dates = _stamps(index).dropna().unique().to_numpy()
    shift = shift_to_month(dates) if dates.size > 1 else None
    if shift is None:
        return None
    moved = shift - (dates[0] + shift - (dates[0] + shift).astype("datetime64[M]"))
    return moved.astype("timedelta64[ms]")  # nanoseconds reach to the year 2262 only


def _by_clock(index: pd.Index) -> bool:
    if _zone(index) is None:
        return False
    different = pd.Series(index.dropna().unique().sort_values())
    return bool(different.diff().median() >= 0.95 * _DAY)


def _has_dates(index: pd.Index) -> bool:
    return isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)


def _zone(index: pd.Index) -> Any:
    return getattr(index, "tz", None)


def _named(zone: Any) -> str:
    return "without a time zone" if zone is None else f"of time zone {zone}"


def _stamps(index: pd.Index) -> pd.Index:
    return starts(index) if isinstance(index, pd.PeriodIndex) else index


def _frequency(index: pd.DatetimeIndex) -> Any:
    """The frequency of sorted dates without gaps; None for any other."""
    if index.freq is not None:
        return index.freq
    if len(index) < 3:
        return None
    with warnings.catch_warnings():  # pandas 3.1 announces an offset in place of the string
        warnings.simplefilter("ignore", DeprecationWarning)
        return pd.infer_freq(index)
