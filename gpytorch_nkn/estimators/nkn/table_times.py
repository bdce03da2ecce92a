"""Columns of dates and durations in a data frame, as numbers of days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Times"]

_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True, eq=False)
class Times:
    """The columns of dates and of durations.

    Attributes:
        first: First date, in UTC where dates have a time zone, by name of the column; ``None`` for
            durations.
        aware: Names of columns whose dates have a time zone.
    """

    first: dict[Any, pd.Timestamp | None]
    aware: frozenset[Any]

    @classmethod
    def of(cls, X: Any) -> Times:
        """Find them in a data frame; other tables have none."""
        first: dict[Any, pd.Timestamp | None] = {}
        aware = set()
        for column in X.columns if isinstance(X, pd.DataFrame) else ():
            values, kind = X[column], _kind(X[column])
            if kind == "dates":
                dates, has_zone = _dates(values)
                first[column] = dates.min()
                aware |= {column} if has_zone else set()
            elif kind == "durations":
                first[column] = None
        return cls(first, frozenset(aware))

    def __call__(self, X: Any) -> Any:
        """The table with days since the first date of training, and days of durations.

        Missing times are NaN.

        Raises:
            TypeError: ``X`` is no data frame.
            ValueError: A column no longer holds dates or durations, or a time zone is missing.
        """
        if not self.first:
            return X
        if not isinstance(X, pd.DataFrame):
            raise TypeError(
                f"The columns {list(self.first)} hold dates or durations: X must be a data frame "
                f"as in fit, got {type(X).__name__}."
            )
        days = {}
        for column, first in self.first.items():
            if column not in X:  # scikit-learn's check of the names raises later
                continue
            values = X[column]
            wanted = "durations" if first is None else "dates"
            if values.notna().any() and _kind(values) != wanted:
                raise ValueError(
                    f"The column {column!r} must hold {wanted} as in fit, got {values.dtype}: "
                    f"convert it by pandas.to_{'timedelta' if first is None else 'datetime'}."
                )
            if not values.notna().any():
                days[column] = np.full(len(values), np.nan)
            elif first is None:
                days[column] = (pd.to_timedelta(values) / _DAY).to_numpy(float)
            else:
                dates, has_zone = _dates(values)
                if has_zone != (column in self.aware):
                    one, other = ("no", "one") if has_zone else ("a", "none")
                    zone = None if has_zone else "UTC"
                    raise ValueError(
                        f"The dates of column {column!r} had {one} time zone in fit and have "
                        f"{other} now: convert them by X[{column!r}].dt.tz_localize({zone!r})."
                    )
                days[column] = ((dates - first) / _DAY).to_numpy(float)
        counted = X.copy()
        for column, numbers in days.items():
            counted[column] = numbers
        return counted


def _kind(values: pd.Series) -> str:
    """Return ``"dates"``, ``"durations"`` or, for other values, an empty string."""
    kind = values.dtype
    if pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype):
        return "dates"
    if pd.api.types.is_timedelta64_dtype(kind):
        return "durations"
    if not pd.api.types.is_object_dtype(kind):
        return ""
    found = pd.api.types.infer_dtype(values, skipna=True)
    names = {"dates": ("date", "datetime", "datetime64", "period"), "durations": ("timedelta",)}
    return next((name for name, words in names.items() if found in words), "")


def _dates(values: pd.Series) -> tuple[pd.Series, bool]:
    """Return dates without their time zone, converted to UTC first, and whether they had one."""
    if pd.api.types.infer_dtype(values, skipna=True) == "period":
        values = pd.Series(pd.PeriodIndex(values).to_timestamp(), index=values.index)
    zones = {getattr(value, "tzinfo", None) is not None for value in values.dropna()}
    if len(zones) > 1:
        raise ValueError(
            f"The dates of column {values.name!r} must all have a time zone or none, got both."
        )
    dates = pd.to_datetime(values, utc=True)
    return dates.dt.tz_localize(None), zones == {True}
