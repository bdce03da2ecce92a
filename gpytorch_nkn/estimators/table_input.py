"""Checks and standardisation of numerical tables."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets

__all__ = [
    "Standardisation",
    "check_complete_targets",
    "check_numeric",
    "check_unique_names",
    "check_varies",
    "encode_classes",
    "holds_numbers",
    "is_constant",
    "missing_as_nan",
    "offset_and_scale",
    "warn_of_copies",
]

_SPREAD = 1e-12  # largest relative range of a column that is constant up to rounding
_COPIES = 0.1  # largest fraction of duplicate rows without a warning


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Offsets and scales of the varying columns of a table."""

    used: np.ndarray  # mask D of the columns in use
    offset: np.ndarray  # means of the columns in use
    scale: np.ndarray  # standard deviations of the columns in use

    @classmethod
    def of(
        cls, X: np.ndarray, *, keep_constant: bool = False, codes: np.ndarray | None = None
    ) -> Standardisation:
        """Learn the standardisation of a table ``N x D``, ignoring NaN.

        With ``keep_constant``, constant columns stay in use, unscaled. Columns in the mask
        ``codes`` (``D`` or empty) are not standardised.

        Raises:
            ValueError: Every column is constant, or values are too large to be standardised.
        """
        X = np.where(np.isnan(X).all(0), 0.0, X)
        with np.errstate(over="ignore", invalid="ignore"):
            offset, scale = np.nanmean(X, 0), np.nanstd(X, 0)
        wrong = np.flatnonzero(~np.isfinite(scale))
        if wrong.size:
            raise ValueError(
                f"The values of columns {wrong.tolist()} are too large to be standardised."
            )
        used = scale > _SPREAD * np.nanmax(np.abs(X), 0)
        if not used.any():
            raise ValueError(f"All {X.shape[1]} columns of X are constant: nothing can be learned.")
        if keep_constant:
            scale = np.where(used, scale, 1.0)
            used = np.ones_like(used)
        if codes is not None and codes.size:
            offset, scale = np.where(codes, 0.0, offset), np.where(codes, 1.0, scale)
        return cls(used, offset[used], scale[used])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Standardise the columns in use."""
        return (X[:, self.used] - self.offset) / self.scale


def check_unique_names(X: Any) -> None:
    """Raise a ``ValueError`` if two columns of a data frame have the same name."""
    if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
        repeated = X.columns[X.columns.duplicated()].unique().tolist()
        raise ValueError(
            f"Every column of X must have a unique name, got {repeated} more than once: rename "
            "these columns by X.columns = [...]."
        )


def check_complete_targets(y: Any) -> None:
    """Raise a ``ValueError`` if a target is missing: NaN, None, or pandas' NA or NaT."""
    missing = pd.isna(np.asarray(y, dtype=object))
    if np.ndim(missing) and missing.any():
        row = int(np.argwhere(missing)[0, 0])
        raise ValueError(
            f"Every row needs a target, but y contains NaN, first in row {row}: drop such rows of "
            "X and y."
        )


def encode_classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes, and the code ``N`` of each label.

    Raises:
        ValueError: Labels have several types, are continuous, or are of one class.
    """
    if labels.dtype == object:
        kinds = {
            "str" if isinstance(v, str) else "number" if np.isscalar(v) else type(v).__name__
            for v in labels.ravel()
        }
        if len(kinds) > 1:
            raise ValueError(
                f"Labels y must be of one type, got {' and '.join(sorted(kinds))}: convert them, "
                "e.g. by y.astype(str)."
            )
        labels = np.array(labels.tolist()) if kinds == {"number"} else labels
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes, got 1 class: {classes.tolist()}.")
    return classes, codes


def check_numeric(
    name: str, values: Any, *, categories: bool = False, fitted: bool = False
) -> None:
    """Raise an error unless a table or vector contains numbers.

    Args:
        name: Name of the argument in the message.
        values: The table or vector.
        categories: Explain in the message how columns of a data frame become categories.
        fitted: State in the message that the columns contained numbers in ``fit``.

    Raises:
        TypeError: An array contains dates or durations or has named fields, or ``values`` is not a
            table.
        ValueError: A value is masked or not a number.
    """
    if isinstance(values, pd.DataFrame):
        other = {
            column: kind
            for column, kind in values.dtypes.items()
            if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_complex_dtype(kind)
        }
        if other and not holds_numbers(values):
            found = ", ".join(
                f"{column!r} ({kind}{_such_as(values[column])})" for column, kind in other.items()
            )
            found = f"Every column must hold numbers, got {found}"
            if fitted:
                raise ValueError(
                    f"{found}: they held numbers in fit; convert them as there, or by "
                    "pandas.to_numeric(..., errors='coerce'), which makes gaps of unreadable cells."
                )
            if categories:
                raise ValueError(
                    f"{found}: make categories by .astype(str), numbers by pandas.to_numeric(..., "
                    "errors='coerce'), dates by pandas.to_datetime(..., errors='coerce'), where "
                    "unreadable cells become gaps."
                )
            times = any(kind.kind in "mM" for kind in other.values())
            dates = ", and dates as days, (dates - dates.min()) / pandas.Timedelta(days=1)"
            raise ValueError(
                f"{found}: encode them first, e.g. with sklearn.preprocessing.OneHotEncoder or "
                f"OrdinalEncoder{dates * times}."
            )
        return
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind in ("M", "m"):
        raise TypeError(
            f"{name} must hold numbers, got {values.dtype}: convert times to days, e.g. by "
            f"({name} - {name}.min()) / numpy.timedelta64(1, 'D')."
        )
    if kind == "V":
        raise TypeError(
            f"{name} must be a table, got named fields {values.dtype}: make it a pandas.DataFrame."
        )
    if not (values is None or np.ndim(np.asarray(values, dtype=object)) or issparse(values)):
        raise TypeError(
            f"{name} must be an array or a data frame, got {type(values).__name__}: make it a "
            "pandas.DataFrame."
        )
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        count = int(np.ma.getmaskarray(values).sum())
        raise ValueError(f"{name} must have no masked values, got {count} masked values.")
    advice = "remove units and other words; pandas.to_numeric(values, errors='coerce') makes other "
    advice += "strings NaN"
    if categories:
        advice = f"make {name} a pandas.DataFrame, whose columns may hold strings (categories) and "
        advice += "dates"
    _check_strings(name, values, advice)


def _such_as(column: pd.Series) -> str:
    """Describe the first value in a column of objects that is not a number."""
    if pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column):
        for value in column.dropna():
            if _fault_of(value):
                return f", such as {value!r}"
    return ""


def _fault_of(value: Any) -> TypeError | ValueError | None:
    """Return Python's error if a value is neither a number nor missing."""
    try:
        float(np.nan if pd.api.types.is_scalar(value) and pd.isna(value) else value)
    except (TypeError, ValueError) as error:
        return error
    return None


def _check_strings(name: str, values: Any, advice: str) -> None:
    """Raise an error for the first value in an array that is not a number."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "bifuc" or array.ndim not in (1, 2):
            return
        array.astype(float)
    except (TypeError, ValueError):
        array = np.asarray(values, dtype=object)
    else:
        return
    for index, value in np.ndenumerate(array):
        if fault := _fault_of(value):
            where = " and column ".join(map(str, index))
            reason = f" ({fault})" if isinstance(fault, TypeError) else ""
            raise type(fault)(
                f"{name} must hold numbers, got {value!r} in row {where}{reason}: {advice}."
            )


def missing_as_nan(X: Any) -> Any:
    """Return the table, with missing objects in a data frame replaced by NaN."""
    if isinstance(X, pd.DataFrame) and any(pd.api.types.is_object_dtype(k) for k in X.dtypes):
        return X.where(X.notna(), np.nan)
    return X


def holds_numbers(X: pd.DataFrame) -> bool:
    """Whether all columns of objects can be converted to numbers."""
    if any(
        kind.kind in "mMc" or isinstance(kind, pd.DatetimeTZDtype | pd.PeriodDtype)
        for kind in X.dtypes
    ):
        return False
    try:
        X.astype(float)
    except (TypeError, ValueError):
        return False
    return True


def is_constant(y: np.ndarray) -> bool:
    """Whether targets ``N`` are constant up to rounding errors."""
    return bool(np.ptp(y) <= _SPREAD * np.abs(y).max())


def check_varies(y: np.ndarray) -> None:
    """Raise a ``ValueError`` if targets ``N`` are constant."""
    if is_constant(y):
        raise ValueError(
            f"The targets are constant ({y[0]}): nothing can be learned. Predict this value, as "
            "forecast_many and scikit-learn's DummyRegressor do."
        )


def offset_and_scale(y: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of targets ``N``.

    Raises:
        ValueError: The targets are too large or too small to be standardised.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        offset, scale = float(y.mean()), float(y.std())
    if not 0 < scale < np.inf:
        raise ValueError(
            f"The targets, from {y.min():g} to {y.max():g}, are too large or too small to be "
            "standardised."
        )
    return offset, scale


def warn_of_copies(X: np.ndarray, y: np.ndarray) -> None:
    """Warn if many rows ``N x D`` are duplicates, targets included."""
    rows = np.column_stack([X, y])
    copies = len(rows) - len(np.unique(rows, axis=0))
    if copies > _COPIES * len(rows):
        warnings.warn(
            f"{copies} of {len(rows)} rows are exact copies of others, targets included. They "
            "bias the noise towards zero, and held-out densities of copies do not show how well "
            "new rows are predicted; drop_duplicates() removes repeated records.",
            UserWarning,
            stacklevel=3,
        )
