"""Rules of dates that recur in months, weeks or years, and the times that follow a series."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import pdtrc  # upper tail of Poisson distributions

__all__ = [
    "MonthlyDates",
    "closed_months",
    "next_in_month",
    "next_in_retail_year",
    "next_in_week",
    "next_in_year",
    "next_times",
]

_DAY, _WEEK = np.timedelta64(1, "D"), np.timedelta64(7, "D")
_MONTH, _YEAR = np.timedelta64(1, "M"), np.timedelta64(1, "Y")
_ALL_DAYS, _WORKDAYS = "1111111", "1111100"  # weekdays
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_RECENT_SPAN = np.timedelta64(13, "W")  # last part of a series, which determines closed times
_MIN_DATES = 6  # smallest number of dates for a rule
_MIN_OPEN_FREQUENCY = 0.25  # smallest frequency of open times of the week, relative to the highest
_MAX_MISSING = 1 / 3  # largest fraction of open times without a date
_MAX_CHANCE = 0.01  # largest probability that random gaps explain closed times or months
_MONTHLY_RANGE = 7  # range of days of the month below which a series is nearly monthly
_MIN_GAP = 4  # smallest distance in days between several dates per month
_MAX_DAYS = 6  # largest number of days of the year on which a series recurs
_MAX_STEPS_PER_DATE = 50  # number of steps per date above which times are irregular


@dataclass(frozen=True)
class MonthlyDates:
    """One date in each month, such as the 30th, the last business day or the third Friday."""

    weekdays: str  # weekdays that are counted, as for numpy.busday_offset
    number: int  # index of the counted day in a month from 0; -1 for the last one
    clock: np.timedelta64  # time of day
    moved: Literal["", "backward", "forward"] = ""  # direction from holidays to business days

    @classmethod
    def of(cls, dates: np.ndarray, least: float = 1.0) -> MonthlyDates | None:
        """Infer the rule of sorted, distinct dates ``N``.

        Returns the first of the rules that most dates follow; ``None`` if less than a fraction
        ``least`` of the dates follow it.
        """
        days, months = dates.astype("datetime64[D]"), dates.astype("datetime64[M]")
        clocks = dates - days
        if dates.size < 2 or (clocks != clocks[0]).any() or not np.diff(months).astype(int).all():
            return None
        numbers = ((days - months.astype("datetime64[D]")) / _DAY).astype(int)
        number, clock = int(numbers.max()), clocks[0].astype("timedelta64[ms]")
        rules = [cls(_ALL_DAYS, -1, clock), cls(_ALL_DAYS, number, clock)]
        if np.ptp(np.diff(days)):  # equal steps are a number of days, not a monthly rule
            weekday = _WEEKDAYS[(days[0].astype(int) + 3) % 7]  # 1970 began on a Thursday
            counted = product((_WORKDAYS, weekday), (0, 1, 2, 3, -1))
            rules += [cls(weekdays, k, clock) for weekdays, k in counted]
            rules.append(cls(_ALL_DAYS, number, clock, "backward"))
            rules.append(cls(_ALL_DAYS, int(numbers.min()), clock, "forward"))
            rules.append(cls(_ALL_DAYS, int(np.bincount(numbers).argmax()), clock))
        follow = [np.mean(rule.dates(months) == dates) for rule in rules]
        return rules[int(np.argmax(follow))] if max(follow) >= least else None

    def dates(self, months: np.ndarray) -> np.ndarray:
        """Return the date in each of ``M`` months, to the millisecond."""
        last = (months + _MONTH).astype("datetime64[D]") - _DAY
        if self.number < 0:
            days = np.busday_offset(last, 0, "backward", self.weekdays)
        else:
            first = months.astype("datetime64[D]")
            days = np.busday_offset(first, self.number, "forward", self.weekdays)
        days = np.minimum(days, last)
        if self.moved:
            days = np.busday_offset(days, 0, self.moved)
        return days.astype("datetime64[ms]") + self.clock

    def months(self, dates: np.ndarray) -> np.ndarray:
        """Return the last months ``M`` whose dates are not after the given dates ``M``."""
        months = dates.astype("datetime64[M]")
        return months - (self.dates(months) > dates) * _MONTH

    def next(self, dates: np.ndarray, count: int) -> np.ndarray:
        """Continue sorted dates ``N`` of this rule, with their median step in months."""
        months = dates.astype("datetime64[M]")
        return self.dates(months[-1] + np.arange(1, count + 1) * _median_step(months))


def closed_months(dates: np.ndarray) -> np.ndarray:
    """Return the months of the year (0 to 11) that have no dates in two or more years.

    Dates ``N`` are sorted and distinct, in every month or in every second, third, ... month. The
    result is empty if random gaps can explain the missing months.
    """
    months = np.unique(dates.astype("datetime64[M]").astype(int))
    step = int(np.median(np.diff(months))) if months.size > 1 else 12
    past = np.arange(months[0], months[-1] + 1, step)
    years = past.size * step / 12
    if years < 2 or 12 % step or not np.isin(months, past).all():
        return np.arange(0)
    missing = 1 - months.size / np.isin(past % 12, months % 12).sum()
    is_known = 12 / step * missing**years <= _MAX_CHANCE
    return np.setdiff1d(past % 12, months % 12) if is_known else np.arange(0)


def next_in_month(dates: np.ndarray, count: int) -> np.ndarray | None:
    """Continue a series with several dates per month, or with nearly the same day in each month.

    Several dates are, for example, the 1st and the 15th. If days of the month differ by less than a
    week, the series follows the rule of most dates. Holidays may cause exceptions.
    Dates ``N`` are sorted and distinct. Returns ``count`` dates, or ``None`` for other series.
    """
    months, days = dates.astype("datetime64[M]"), dates.astype("datetime64[D]")
    numbers = (days - months.astype("datetime64[D]")) // _DAY
    if dates.size < 2 or _are_equal(np.diff(dates)):
        return None
    if (
        dates.size >= _MIN_DATES
        and np.ptp(numbers) < _MONTHLY_RANGE
        and np.diff(months).astype(int).all()
    ):
        rule = MonthlyDates.of(days, least=0.0)
        return None if rule is None else rule.next(days, count) + (dates[-1] - days[-1])
    different = np.unique(numbers)
    begins = different[np.diff(different, prepend=-_MIN_GAP) >= _MIN_GAP]
    if begins.size < 2 or dates.size < 0.6 * begins.size * np.ptp(months.astype(int)):
        return None
    groups = np.searchsorted(begins, numbers, "right")
    rules = [MonthlyDates.of(dates[groups == n]) for n in range(1, begins.size + 1)]
    if None in rules:
        return None
    later = months[-1] + np.arange(count // begins.size + 2) * _MONTH
    ahead = np.sort(np.concatenate([rule.dates(later) for rule in rules if rule]))
    return ahead[ahead > dates[-1]][:count]


def next_in_week(dates: np.ndarray, count: int) -> np.ndarray | None:
    """Continue a series at certain times of the week, such as opening hours.

    Times of the week with few or no recent dates count as closed. Dates ``N`` are sorted and
    distinct. Returns ``count`` dates, or ``None`` for other series.
    """
    recent = dates[dates > dates[-1] - _RECENT_SPAN]
    if recent.size < _MIN_DATES:
        return None
    gaps = (recent - recent[0]).astype("timedelta64[ms]").astype("int64")
    step = np.gcd.reduce(gaps)
    week = _WEEK.astype("timedelta64[ms]").astype("int64")
    steps = gaps // step  # numbers of steps after the first date
    if week % step or steps[-1] > _MAX_STEPS_PER_DATE * recent.size:
        return None
    size = week // step
    if steps[-1] < size:  # no time of the week can recur
        return None
    possible = np.bincount(np.arange(steps[-1] + 1) % size, minlength=size)
    seen = np.bincount(steps % size, minlength=size)
    frequency = seen / np.maximum(possible, 1)
    is_open = frequency > _MIN_OPEN_FREQUENCY * frequency.max()
    missing = 1 - seen[is_open].sum() / possible[is_open].sum()
    # With gaps in open times, closed times must have been possible in as many weeks.
    weeks = possible.min() if missing else possible[is_open].min()
    closed = size - is_open.sum()
    if missing >= _MAX_MISSING or weeks < 2 or not closed:
        return None
    if pdtrc(closed - 1, size * missing**weeks) > _MAX_CHANCE:
        return None
    ahead = steps[-1] + np.arange(1, size * (count // is_open.sum() + 2))
    ahead = ahead[is_open[ahead % size]][:count] - steps[-1]
    if 2 * ahead[0] < np.diff(steps).min():  # the clock has changed
        return None
    return dates[-1] + (ahead * step).astype("timedelta64[ms]")


def next_in_year(dates: np.ndarray, count: int) -> np.ndarray | None:
    """Continue a series on two to six days of the year, such as 15 February and 1 September.

    Dates ``N`` are sorted and distinct. Returns ``count`` dates, or ``None`` for other series.
    """
    years, months = dates.astype("datetime64[Y]"), dates.astype("datetime64[M]")
    if ((dates + _DAY).astype(months.dtype) > months).all():  # ends of months, 28 or 29 February
        ahead = next_in_year(dates + _DAY, count)
        return None if ahead is None else ahead - _DAY
    if dates.size > _MAX_DAYS * (np.ptp(years.astype(int)) + 1):
        return None
    days = (months - years).astype(int), (dates - months).astype(int)
    (month, time), seen = np.unique(days, axis=1, return_counts=True)
    if not 2 <= seen.size <= _MAX_DAYS or seen.min() < 2:
        return None
    later = np.arange(years[0], years[-1] + (count + 2) * _YEAR).astype("datetime64[M]")
    later = (later[:, None] + month * _MONTH).astype(dates.dtype)
    times = np.sort((later + time.astype((dates - months).dtype)).ravel())
    past = times[(times >= dates[0]) & (times <= dates[-1])]
    return times[times > dates[-1]][:count] if np.array_equal(past, dates) else None


def next_in_retail_year(dates: np.ndarray, count: int) -> np.ndarray | None:
    """Continue the ends of 52-53-week years, or of their quarters or months (4, 4 and 5 weeks).

    Dates ``N`` are sorted and distinct. Returns ``count`` dates, or ``None`` for other series.
    """
    gaps, last = np.diff(dates) / _WEEK, dates[-1]
    if dates.size < 3 or _are_equal(gaps) or (gaps % 1).any() or np.median(gaps) < 4:
        return None
    ends: Any = {"start": dates[0] - 60 * _WEEK}
    ends["end"] = last + int(count * np.median(gaps) + 110) * _WEEK
    month: Any = {"weekday": pd.Timestamp(last).weekday()}
    years = [
        pd.date_range(**ends, freq=pd.offsets.FY5253(variation=how, startingMonth=m, **month))
        for how, m in product(("last", "nearest"), range(1, 13))
    ]
    years.append(pd.date_range(**ends, freq="364D") + (last - ends["start"]) % (52 * _WEEK))
    rules: list[tuple[int, np.ndarray]] = []  # number of dates in the data's range, later dates
    for year in years:
        begins = year.to_numpy(dates.dtype)
        weeks = (dates - begins[np.searchsorted(begins, dates, "right") - 1]) / _WEEK
        times = np.unique(begins[:, None] + np.unique(weeks).astype(int) * _WEEK)
        if weeks.min() == 0 and weeks.max() < 52:  # no date a week before the end of a long year
            rules.append((np.sum((times >= dates[0]) & (times <= last)), times[times > last]))
    size, ahead = min(rules, key=lambda rule: rule[0], default=(2 * dates.size, dates))
    return ahead[:count] if size <= 1.2 * dates.size else None


def next_times(times: np.ndarray, count: int) -> np.ndarray:
    """Return the ``count`` times after sorted, distinct times ``N``, with the median step."""
    if times.size < 2:
        raise ValueError(f"A step needs two different times, got {times.size}.")
    gaps, step = np.diff(times), _median_step(times)
    if gaps.dtype.kind == "f":
        steps = np.round(gaps / step)
        if (abs(gaps - steps * step) < step / 4).all():
            step = gaps.sum() / steps.sum()  # mean length, because steps may vary as months do
    return times[-1] + np.arange(1, count + 1) * step


def _are_equal(steps: np.ndarray) -> bool:
    """Return whether steps ``N`` are multiples of the shortest, as with missing times."""
    return not (steps % steps.min()).astype(bool).any()


def _median_step(times: np.ndarray) -> Any:
    gaps = np.sort(np.diff(times))
    return gaps[(gaps.size - 1) // 2]  # lower median, because missing times make steps longer
