"""Columns of dates, durations and categories in a data frame, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpytorch_nkn.estimators.table_input import numbers_of
from gpytorch_nkn.fit import warn_user

__all__ = ["TableColumns"]

_DAY = pd.Timedelta(days=1)
_MOST = 0.8  # least fraction of strings that are numbers, dates or distinct for a warning
_FEW = 10  # least number of rows for a warning of distinct strings
_LOOKED_AT = 200  # largest number of distinct strings that are checked for dates
_KINDS = {
    "categorical": "categories",
    **dict.fromkeys(("date", "datetime", "datetime64", "period"), "dates"),
    **dict.fromkeys(("timedelta", "timedelta64"), "durations"),
}
_DATE = r"\d[-/. ]\w+[-/. ]\d"


@dataclass(frozen=True, eq=False)
class TableColumns:
    """Converter of the columns of a data frame that do not hold numbers.

    Dates become days since the first date of the fit, in its time zone; durations, days; and
    categories, codes.
    """

    first: dict[Any, pd.Timestamp | None]  # first date by column; None for durations
    categories: dict[Any, pd.Index]  # by column, in the order of their codes

    @classmethod
    def of(cls, X: Any) -> TableColumns:
        """Find columns of dates, durations and categories in a data frame; arrays have none.

        Warns of categories whose strings are probably numbers, dates or row identifiers.
        """
        first: dict[Any, pd.Timestamp | None] = {}
        categories = {}
        for label, column in _columns(X) if isinstance(X, pd.DataFrame) else ():
            kind = _kind(column)
            if kind in ("dates", "durations"):
                first[label] = _dates(column).min() if kind == "dates" else None
            elif kind:
                values = _plain(column.dropna()).unique()
                ordered = sorted(values, key=lambda v: (str(v), repr(v)))
                categories[label] = pd.Index(ordered, dtype=object)
                if not isinstance(column.dtype, pd.CategoricalDtype):
                    _warn_of_strings(label, column.dropna().astype(str))
        return cls(first, categories)

    @property
    def first_dates(self) -> dict[str, np.datetime64]:
        """First date of each column of dates, in its time zone."""
        dates = {c: first for c, first in self.first.items() if first is not None}
        return {str(c): first.tz_localize(None).to_datetime64() for c, first in dates.items()}

    def mask(self, X: Any, num_columns: int) -> np.ndarray:
        """Return the mask ``D`` of the categorical columns of a table."""
        if not self.categories:
            return np.zeros(num_columns, dtype=bool)
        return X.columns.isin(list(self.categories))

    def __call__(self, X: Any) -> Any:
        """Convert the columns of a table; missing values become NaN.

        Each category that is not in the fit gets a new code, so that the kernel treats it as
        different from all others.
        """
        if not self.first and not self.categories:
            return X
        if not isinstance(X, pd.DataFrame):
            raise TypeError(
                f"The columns {[*self.first, *self.categories]} hold dates, durations or "
                f"categories: X must be a data frame as in fit, got {type(X).__name__}."
            )
        converted = X.copy()
        for number, (label, column) in enumerate(_columns(X)):  # names are checked later
            if label in self.first:
                converted.isetitem(number, self._days(column))
            elif label in self.categories:
                converted.isetitem(number, self._codes(column))
        return converted

    def _days(self, values: pd.Series) -> np.ndarray:
        first = self.first[values.name]
        wanted = "durations" if first is None else "dates"
        if not values.notna().any():
            return np.full(len(values), np.nan)
        if _kind(values) != wanted:
            raise ValueError(
                f"The column {values.name!r} must hold {wanted} as in fit, got {values.dtype}: "
                f"convert it by pandas.to_{'timedelta' if first is None else 'datetime'}."
            )
        if first is None:
            return (pd.to_timedelta(values) / _DAY).to_numpy(float)
        dates = _dates(values)
        if (first.tz is None) != (dates.dt.tz is None):
            kinds = {True: "without a time zone", False: "with a time zone"}
            raise ValueError(
                f"The column {values.name!r} must hold dates {kinds[first.tz is None]} as in fit, "
                f"got dates {kinds[first.tz is not None]}."
            )
        if first.tz is not None:
            dates = dates.dt.tz_convert(first.tz).dt.tz_localize(None)
            first = first.tz_localize(None)
        return ((dates - first) / _DAY).to_numpy(float)

    def _codes(self, values: pd.Series) -> np.ndarray:
        categories, plain = self.categories[values.name], _plain(values)
        positions, missing = categories.get_indexer(plain), plain.isna()
        codes = np.where(missing, np.nan, positions)
        new = (positions < 0) & ~missing
        codes[new] = len(categories) + pd.factorize(plain[new])[0]
        similar = {_text(value): value for value in categories}
        for value in plain[new].unique():
            if (text := _text(value)) in similar:
                warn_user(
                    f"Column {values.name!r} has the new category {value!r}, which differs from "
                    f"{similar[text]!r} of the fit only in type or spaces: convert it as in fit."
                )
                break
        return codes


def _text(value: Any) -> str:
    """Return the text of a category, which is the same for 7, 7.0, ``"7"`` and ``"7 "``."""
    return str(value).strip().removesuffix(".0")


def _columns(X: pd.DataFrame) -> Iterator[tuple[Any, pd.Series]]:
    """Yield names and columns of a data frame, with objects in place of pyarrow's types."""
    for label, column in X.items():
        is_arrow = isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind in "mMO"
        yield label, column.astype(object) if is_arrow else column


def _warn_of_strings(label: Any, cells: pd.Series) -> None:
    """Warn of categories whose strings are probably numbers, dates or row identifiers."""
    strings = cells.drop_duplicates()
    numbers = pd.to_numeric(strings, errors="coerce").notna()
    sample = strings[:_LOOKED_AT]
    dates = sample[sample.str.contains(_DATE)]
    dates = pd.to_datetime(dates, format="mixed", errors="coerce").dropna()
    if numbers.mean() >= _MOST:
        problem = f"most of its strings are numbers, and {strings[~numbers].iloc[0]!r} is not"
        advice = f"pandas.to_numeric(X[{label!r}], errors='coerce') makes other strings NaN"
    elif len(dates) >= _MOST * len(sample):
        problem = f"its strings are dates such as {sample.iloc[0]!r}"
        advice = f"pandas.to_datetime(X[{label!r}], format='mixed', errors='coerce') "
        advice += "makes them dates, with dayfirst=True if the day comes first"
    elif len(strings) >= _MOST * len(cells) and len(cells) >= _FEW:
        problem = f"nearly all of its strings differ, such as {sample.iloc[0]!r}"
        advice = "drop it if its strings are row identifiers, or extract numbers from them"
    else:
        return
    warn_user(f"Column {label!r} is used as categories, but {problem}: {advice}.")


def _kind(values: pd.Series) -> str:
    """Return ``"dates"``, ``"durations"``, ``"categories"``, or an empty string for numbers."""
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    if inferred not in ("string", "boolean", "mixed") or pd.api.types.is_bool_dtype(values.dtype):
        return _KINDS.get(inferred, "")
    if not all(isinstance(value, str | bool | np.bool_) for value in values.dropna()):
        return ""
    try:
        numbers_of(values)
    except ValueError:
        return "categories"
    return ""


def _dates(values: pd.Series) -> pd.Series:
    """Convert to dates in the time zone of the first date, if it has one."""
    if pd.api.types.infer_dtype(values, skipna=True) == "period":
        values = pd.Series(pd.PeriodIndex(values).to_timestamp(), index=values.index)
    zone = getattr(next(iter(values.dropna()), None), "tzinfo", None)
    dates = pd.to_datetime(values, utc=True)
    return dates.dt.tz_localize(None) if zone is None else dates.dt.tz_convert(zone)


def _plain(column: pd.Series) -> pd.Index:
    """Convert values to objects, with None for all kinds of missing values."""
    values = column.astype(object)
    return pd.Index(values.where(column.notna(), None), dtype=object)
