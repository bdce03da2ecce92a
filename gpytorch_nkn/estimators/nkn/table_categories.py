"""Columns of categories in a data frame, as codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gpytorch_nkn.estimators.table_input import holds_numbers
from gpytorch_nkn.fit import warn_user

__all__ = ["Categories"]

_MOST = 0.8  # fraction of a column's strings from which on a warning describes them
_FEW = 10  # strings that may all differ without a warning
_LOOKED_AT = 200  # distinct strings that are checked for dates
_DATE = r"\d[-/. ]\w+[-/. ]\d"


@dataclass(frozen=True, eq=False)
class Categories:
    """The categories of the columns of texts and of pandas' categorical columns."""

    known: dict[Any, pd.Index]  # by name of the column, in the order of their codes

    @classmethod
    def of(cls, X: Any) -> Categories:
        """Find them in a data frame; other tables have none."""
        if not isinstance(X, pd.DataFrame):
            return cls({})
        columns = [column for column, kind in X.dtypes.items() if _is_categorical(X, column, kind)]
        return cls({column: _distinct(X[column]) for column in columns})

    def mask(self, X: Any) -> np.ndarray:
        """Mask ``D`` of the columns of categories, of the table that they were found in."""
        if not self.known:
            return np.zeros(0, dtype=bool)
        return np.array([column in self.known for column in X.columns])

    def warn_of_other_kinds(self, X: Any) -> None:
        """Warn of columns whose strings are probably numbers, dates or names of rows."""
        for column in self.known:
            if isinstance(X[column].dtype, pd.CategoricalDtype):
                continue
            found = X[column].dropna().astype(str)
            strings = found.drop_duplicates()
            numbers = pd.to_numeric(strings, errors="coerce").notna()
            some = strings[:_LOOKED_AT]
            dates = some[some.str.contains(_DATE)]
            dates = pd.to_datetime(dates, format="mixed", errors="coerce").dropna()
            if numbers.mean() >= _MOST:
                what = f"most of its strings are numbers, and {strings[~numbers].iloc[0]!r} is not"
                advice = f"pandas.to_numeric(X[{column!r}], errors='coerce') makes gaps of others"
            elif len(dates) >= _MOST * len(some):
                what = f"its strings are dates such as {some.iloc[0]!r}"
                advice = f"pandas.to_datetime(X[{column!r}], format='mixed', errors='coerce') "
                advice += "makes them dates, with dayfirst=True if the day comes first"
            elif len(strings) >= _MOST * len(found) and len(found) >= _FEW:
                what = f"nearly all of its strings differ, such as {some.iloc[0]!r}"
                advice = "leave it out if they name rows, or extract numbers from them"
            else:
                continue
            warn_user(f"Column {column!r} is taken for categories, but {what}: {advice}.")

    def __call__(self, X: Any) -> Any:
        """The table with codes in the columns of categories.

        A category that was never seen has a code that no other has, so that the kernel takes it for
        different from all. Missing ones are NaN.

        Raises:
            TypeError: It is no data frame, though there are such columns.
        """
        if not self.known:
            return X
        if not isinstance(X, pd.DataFrame):
            raise TypeError(
                f"The columns {list(self.known)} hold categories: X must be a data frame as in "
                f"fit, got {type(X).__name__}."
            )
        codes = {}
        for column, known in self.known.items():
            if column in X:  # else scikit-learn's check of the names raises later
                found = _plain(X[column])
                seen, missing = known.get_indexer(found), found.isna()
                own = np.where(missing, np.nan, seen)
                new = (seen < 0) & ~missing
                own[new] = len(known) + pd.factorize(found[new])[0]
                codes[column] = own
        coded = X.copy()
        for column, values in codes.items():
            coded[column] = values
        return coded


def _is_categorical(X: pd.DataFrame, column: Any, kind: Any) -> bool:
    if isinstance(kind, pd.CategoricalDtype):
        return True
    if not (pd.api.types.is_object_dtype(kind) or pd.api.types.is_string_dtype(kind)):
        return False
    present = X[column].dropna()
    texts = all(isinstance(value, str | bool | np.bool_) for value in present)
    return texts and len(present) > 0 and not holds_numbers(present.to_frame())


def _plain(column: pd.Series) -> pd.Index:
    """Values as objects, with one value for all that are missing."""
    values = column.astype(object)
    return pd.Index(values.where(column.notna(), None), dtype=object)


def _distinct(column: pd.Series) -> pd.Index:
    """Values that occur, sorted."""
    found = _plain(column.dropna()).unique()
    return pd.Index(sorted(found, key=lambda v: (str(v), repr(v))), dtype=object)
