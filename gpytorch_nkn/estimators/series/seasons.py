"""Seasons of a series that its time axis tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["check_seasons", "find_seasons", "typical_step"]

_YEAR = 365.2425  # days
_CYCLES = 2.0  # of a season, that the data must hold
_TOLERANCE = 0.04  # of the number of steps per unit

# Of dates: seasons in days, and the longest step that still shows them.
_CALENDAR = ((1.0, 1 / 4), (7.0, 1.5), (_YEAR, _YEAR / 3.5))
# Of numbers: steps per unit of time that stand for a calendar (quarters, months, weeks and days of
# a year; days of a week; hours and their halves and quarters of a day), and whether they are days
# of a year, in which there are weeks, too.
_STEPS_PER_UNIT = (4, 12, 52, 365.25, 7, 24, 48, 96)


def typical_step(time: np.ndarray) -> float:
    """The median step between different times ``N``."""
    return float(np.median(np.diff(np.unique(time))))


def find_seasons(time: np.ndarray, *, dates: bool) -> list[float]:
    """Periods that the step of the time axis tells, shortest first, in units of time.

    Days, weeks and years for dates (in days). For numbers, one unit if it holds as many steps as
    a year has quarters, months or weeks, a week days, or a day hours, halves or quarters of an
    hour; a week and a year if it holds as many as a year has days.
    """
    step, span = typical_step(time), float(np.ptp(time))
    if dates:
        found = [period for period, longest in _CALENDAR if step <= longest * (1 + _TOLERANCE)]
    else:
        per_unit = 1 / step
        close = [n for n in _STEPS_PER_UNIT if abs(per_unit / n - 1) <= _TOLERANCE]
        found = [1.0] if close else []
        if close == [365.25]:
            found = [7 / 365.25, 1.0]
    return [period for period in found if span + step >= _CYCLES * period * (1 - _TOLERANCE)]


def check_seasons(seasons: Any, time: np.ndarray) -> list[float]:
    """Periods that were given, shortest first; those that the data do not hold twice are left out.

    Raises:
        TypeError: They are not numbers.
        ValueError: A period is not positive and finite, or not longer than two steps.
    """
    given: ArrayLike = [seasons] if np.ndim(seasons) == 0 else seasons
    try:
        periods = np.unique(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        raise TypeError(f"seasons must be 'auto' or periods, got {seasons!r}.") from None
    step, span = typical_step(time), float(np.ptp(time))
    if not (np.isfinite(periods) & (periods > 1.5 * step)).all():
        raise ValueError(
            f"seasons must be finite periods of at least two steps ({step:g} each), "
            f"got {seasons!r}."
        )
    found: Sequence[float] = periods.tolist()
    return [period for period in found if span + step >= _CYCLES * period * (1 - _TOLERANCE)]
