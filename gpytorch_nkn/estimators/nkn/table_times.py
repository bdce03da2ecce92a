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
    """The columns of dates and of durations."""

    first: dict[Any, pd.Timestamp | None]  # date in UTC, by name of the column; None for durations

    @classmethod
    def of(cls, X: Any) -> Times:
        """Find them in a data frame; other tables have none."""
        kinds = {column: _kind(X[column]) for column in X} if isinstance(X, pd.DataFrame) else {}
        return cls(
            {
                column: _dates(X[column]).min() if kind == "dates" else None
                for column, kind in kinds.items()
                if kind
            }
        )

    def __call__(self, X: Any) -> Any:
        """The table with days since the first date of training, and days of durations.

        Missing times are NaN.

        Raises:
            TypeError: ``X`` is no data frame.
            ValueError: A column no longer holds dates or durations.
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
            if not values.notna().any():
                days[column] = np.full(len(values), np.nan)
            elif _kind(values) != wanted:
                raise ValueError(
                    f"The column {column!r} must hold {wanted} as in fit, got {values.dtype}: "
                    f"convert it by pandas.to_{'timedelta' if first is None else 'datetime'}."
                )
            else:
                times = pd.to_timedelta(values) if first is None else _dates(values) - first
                days[column] = (times / _DAY).to_numpy(float)
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


def _dates(values: pd.Series) -> pd.Series:
    """Dates in UTC; those without a time zone count as such."""
    if pd.api.types.infer_dtype(values, skipna=True) == "period":
        values = pd.Series(pd.PeriodIndex(values).to_timestamp(), index=values.index)
    return pd.to_datetime(values, utc=True)
