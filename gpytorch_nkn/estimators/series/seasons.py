"""Seasons of a series that its time axis tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

__all__ = ["check_seasons", "find_seasons", "typical_step"]

_YEAR = 365.2425  # days
_CYCLES = 2.0  # of a season, that the data must hold
_TOLERANCE = 0.04  # of the number of steps per unit

# Seasons in days, and the longest step that still shows them.
_CALENDAR = ((1.0, 1 / 4), (7.0, 1.5), (_YEAR, _YEAR / 3.5))
# Units of numbers, in days, and how many steps of such a unit tell that it is one: quarters,
# months, weeks, days at work, days, hours, halves and quarters of hours of a year; days of a week;
# hours and their parts, to the minute, of a day.
_UNITS = (
    (_YEAR, (4, 12, _YEAR / 7, 5 * _YEAR / 7, *(_YEAR * n for n in (1, 24, 48, 96)))),
    (7.0, (7,)),
    (1.0, (24, 48, 96, 144, 288, 1440)),
)


def typical_step(time: np.ndarray) -> float:
    """The median step between different times ``N``."""
    return float(np.median(np.diff(np.unique(time))))


def find_seasons(time: np.ndarray, *, dates: bool) -> list[float]:
    """Days, weeks and years that the data hold twice, shortest first, in units of time.

    The unit is a day for dates; for numbers it is inferred from the number of steps in it.
    """
    step, span = typical_step(time), float(np.ptp(time))
    units = [1.0] if dates else [unit for unit, counts in _UNITS if _is_among(1 / step, counts)]
    if not units:
        return []
    unit = units[0]
    calendar = [
        period for period, longest in _CALENDAR if step * unit <= longest * (1 + _TOLERANCE)
    ]
    found = [period / unit for period in calendar]
    return [period for period in found if span + step >= _CYCLES * period * (1 - _TOLERANCE)]


def _is_among(value: float, counts: Sequence[float]) -> bool:
    return any(abs(value / count - 1) <= _TOLERANCE for count in counts)


def check_seasons(seasons: Any, time: np.ndarray) -> list[float]:
    """Given periods that the data hold twice, in days if as durations, shortest first.

    Raises:
        TypeError: They are not numbers.
        ValueError: A period is not finite, or shorter than two steps.
    """
    given: ArrayLike = [seasons] if np.ndim(seasons) == 0 else seasons
    if pd.api.types.infer_dtype(np.ravel(given)).startswith("timedelta"):
        given = pd.to_timedelta(np.ravel(given)).to_numpy() / np.timedelta64(1, "D")
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
