"""Seasons of a series, inferred from the time axis or given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

from gpytorch_nkn.fit import warn_user

__all__ = ["check_seasons", "find_seasons", "repeated_periods", "typical_step"]

_YEAR = 365.2425  # days
_CYCLES = 2.0  # number of periods that the data must cover
_TOLERANCE = 0.04  # relative error of the number of steps per unit
_LONG_UNITS = {"Y": _YEAR, "M": _YEAR / 12}  # in days; pandas rejects these durations

_ROWS = 4000  # number of last steps in which periods are searched, at quadratic cost
_LEAST_STRENGTH = 0.3  # of a season with many periods in a long series
_SAME_STRENGTH = 0.05  # a divisor of a period may be weaker by this
_MIN_RATIO = 5  # of two seasons
_MAX_JUMP = 3.0  # distance of a step's change from the quartiles, in interquartile ranges

_CALENDAR = (1.0, 7.0, _YEAR)  # seasons in days
# Units of time in days (year, week, day), and possible numbers of steps in a unit.
_UNITS = (
    (_YEAR, (4, 12, _YEAR / 7, 5 * _YEAR / 7, *(_YEAR * n for n in (1, 24, 48, 96)))),
    (7.0, (7,)),
    (1.0, (24, 48, 96, 144, 288, 1440)),
)


def typical_step(time: np.ndarray) -> float:
    """Return the median step between the distinct values of times ``N``."""
    return float(np.median(np.diff(np.unique(time))))


def find_seasons(time: np.ndarray, *, in_days: bool) -> list[float]:
    """Return the seasons (day, week, year) of at least two steps that the data cover twice.

    Seasons are in units of time, shortest first. If time is not in days, the unit is inferred from
    the step.
    """
    step, span = typical_step(time), float(np.ptp(time))
    units = [1.0] if in_days else [unit for unit, counts in _UNITS if _is_among(1 / step, counts)]
    if not units:
        return []
    unit = units[0]
    periods = [p / unit for p in _CALENDAR if p / unit >= 2 * step * (1 - _TOLERANCE)]
    return [period for period in periods if span + step >= _CYCLES * period * (1 - _TOLERANCE)]


def repeated_periods(time: np.ndarray, values: np.ndarray) -> list[float]:
    """Return up to two periods that values ``N`` repeat at least three times, shortest first.

    The strength of a season is the fraction of the variance around moving averages that the means
    of its phases in all other periods explain (a cross-validated form of the strength of Wang,
    Smith and Hyndman 2006, Characteristic-Based Clustering for Time Series Data). The strongest
    season of p steps counts if its strength exceeds 0.3 + (p + 4) / N, because few periods may
    agree by chance. A season of at most a fifth of its length, such as a day in a week, is added if
    it is at least half as strong. Without a season, the search is repeated with smaller jumps,
    because outliers and changes of level can hide seasons.
    """
    step = typical_step(time)
    recent = time > time[-1] - _ROWS * step
    time, values = time[recent], values[recent]
    count = round(np.ptp(time) / step) + 1
    if count > 2 * len(time) or np.ptp(values) == 0:
        return []
    grid = np.interp(time[0] + step * np.arange(count), time, values / np.ptp(values))
    for series in (grid, _without_jumps(grid)):
        found = {period: _strength(series, period) for period in range(2, count // 3 + 1)}
        likely = [p for p in found if found[p] > _LEAST_STRENGTH + (p + 4) / count]
        if likely:
            break
    else:
        return []
    longest = max(likely, key=found.__getitem__)
    divisors = [period for period in likely if longest % period == 0]
    longest = next(p for p in divisors if found[p] >= found[longest] - _SAME_STRENGTH)
    inside = [
        p
        for p in likely
        if longest % p == 0 and longest >= _MIN_RATIO * p and 2 * found[p] > found[longest]
    ]
    shorter = [max(inside, key=found.__getitem__)] if inside else []
    return [step * period for period in (*shorter, longest)]


def _without_jumps(values: np.ndarray) -> np.ndarray:
    """Return values ``N`` whose changes from step to step are clipped to the range of most."""
    changes = np.diff(values)
    low, high = np.quantile(changes, [0.25, 0.75])
    reach = _MAX_JUMP * (high - low)
    return np.concatenate([[0.0], changes.clip(low - reach, high + reach).cumsum()])


def _strength(values: np.ndarray, period: int) -> float:
    """Return the cross-validated strength of a season of values ``N`` at equal steps."""
    sums = np.concatenate([[0.0], values.cumsum()])
    trend = (sums[period:] - sums[:-period]) / period
    if period % 2 == 0:
        trend = (trend[1:] + trend[:-1]) / 2
    rest = values[period // 2 :][: len(trend)] - trend
    count = len(rest) // period
    cycles = rest[len(rest) - count * period :].reshape(count, period)
    cycles = cycles - cycles.mean()
    if cycles.std() < 1e-9:  # only rounding errors
        return 0.0
    errors = (cycles - cycles.mean(0)) * count / (count - 1)
    return float(1 - np.square(errors).sum() / np.square(cycles).sum())


def _is_among(value: float, counts: Sequence[float]) -> bool:
    return any(abs(value / count - 1) <= _TOLERANCE for count in counts)


def check_seasons(seasons: Any, time: np.ndarray, *, in_days: bool) -> list[float]:
    """Return the given periods that the data cover twice, shortest first, in units of time."""
    given = [seasons] if np.ndim(seasons) == 0 else seasons
    try:
        periods = np.unique([_period(season, in_days) for season in given])
    except (TypeError, ValueError) as error:
        durations = " or durations such as '7D', '24h', '30min' and '1Y'" if in_days else ""
        raise type(error)(
            f"seasons must be 'auto' or periods, as numbers in units of time{durations}, "
            f"got {seasons!r}."
        ) from None
    step, span = typical_step(time), float(np.ptp(time))
    if not (np.isfinite(periods) & (periods > 1.5 * step)).all():
        length = f"{step:g} days" if in_days else f"{step:g}"
        if in_days and step < 1:
            length = str(pd.Timedelta(days=step).round("ms")).removeprefix("0 days ")
        raise ValueError(
            f"seasons must be finite periods of at least two steps ({length} each), "
            f"got {seasons!r}."
        )
    is_covered = span + step >= _CYCLES * periods * (1 - _TOLERANCE)
    if not is_covered.all():
        warn_user(f"Seasons longer than half of the data are not used, got {seasons!r}.")
    return list(periods[is_covered].tolist())


def _period(value: Any, in_days: bool) -> float:
    """Return a period in units of time; a duration in days."""
    if not isinstance(value, str | timedelta | np.timedelta64):
        return float(value)
    if not in_days:
        raise ValueError(value)
    if isinstance(value, str) and value[-1:] in _LONG_UNITS:
        return float(value[:-1] or 1) * _LONG_UNITS[value[-1]]
    return pd.Timedelta(value) / pd.Timedelta(days=1)
