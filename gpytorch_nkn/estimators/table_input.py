"""Checks and standardisation of numeric tables."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets

from gpytorch_nkn.averaging import Transform

__all__ = [
    "Standardisation",
    "as_numbers",
    "check_complete_targets",
    "check_size",
    "check_varies",
    "encode_classes",
    "is_constant",
    "moments",
    "numbers_of",
    "offset_and_scale",
    "per_row",
    "scaled_variance",
    "stratified_folds",
    "varying",
    "warn_of_copies",
]

_MAX_NOISE = 1e100  # limit of noise variances; rows with this noise have no effect
_ROUNDING = 1e-13  # relative range up to which a column counts as constant
_MAX_NUMBER = 1e100  # largest number, because squares must be finite
_MAX_COPIES = 0.1  # largest fraction of duplicate rows without a warning


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Offsets and scales of the varying columns of a table."""

    used: np.ndarray  # mask D of the d columns in use
    offset: np.ndarray  # means d
    scale: np.ndarray  # standard deviations d

    @classmethod
    def of(cls, X: np.ndarray, *, keep_constant: bool, codes: np.ndarray) -> Standardisation:
        """Learn the standardisation of a table ``N x D``, ignoring NaN.

        With ``keep_constant``, constant columns stay in use and are centred only. Columns in the
        mask ``codes`` ``D`` are not standardised.
        """
        used = varying(X)
        offset, scale = moments(X)
        if keep_constant:
            scale = np.where(used, scale, 1.0)
            used = np.ones_like(used)
        offset, scale = np.where(codes, 0.0, offset), np.where(codes, 1.0, scale)
        return cls(used, offset[used], scale[used])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the columns in use of rows ``N x D``, standardised, ``N x d``."""
        return (X[:, self.used] - self.offset) / self.scale


@np.errstate(all="ignore")
def varies(X: np.ndarray) -> np.ndarray:
    """Return the mask ``D`` of columns in ``N x D`` whose range exceeds rounding errors.

    NaN is ignored.
    """
    low, high = np.fmin.reduce(X), np.fmax.reduce(X)
    return high - low > _ROUNDING * np.maximum(np.abs(low), np.abs(high))


def varying(X: np.ndarray) -> np.ndarray:
    """Return the mask of :func:`varies`; raise a ``ValueError`` if all columns are constant."""
    used = varies(X)
    if not used.any():
        raise ValueError("All columns of X are constant: nothing can be learned.")
    return used


@np.errstate(under="ignore")
def moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations ``D`` of the columns of ``N x D``, ignoring NaN.

    Columns are scaled by powers of two, so that squares neither underflow nor overflow.
    """
    X = np.where(np.isnan(X).all(0), 0.0, X)
    unit = np.ldexp(1.0, np.frexp(np.fmax.reduce(np.abs(X)))[1] - 1)
    return unit * np.nanmean(X / unit, 0), unit * np.nanstd(X / unit, 0)


def check_complete_targets(y: Any) -> None:
    """Raise a ``ValueError`` if a target is missing: NaN, None, pandas' NA or NaT, or masked."""
    missing = pd.isna(np.asarray(y, dtype=object)) | np.ma.getmask(y)
    if np.ndim(missing) and missing.any():
        row = int(np.argwhere(missing)[0, 0])
        raise ValueError(
            f"Every row needs a target, but y contains NaN, first in row {row}: drop such rows "
            "from X and y."
        )


def encode_classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes, and the code ``N`` of each label."""
    if labels.dtype == object:
        kinds = {
            "number" if isinstance(v, Real | np.bool_) else type(v).__name__.rstrip("_")  # np.str_
            for v in labels.ravel()
        }
        if len(kinds) > 1 or not kinds <= {"str", "number"}:
            raise ValueError(
                f"Labels y must be all strings or all numbers, got {' and '.join(sorted(kinds))}: "
                "convert them, e.g. by y.astype(str)."
            )
        labels = np.array(labels.tolist()) if kinds == {"number"} else labels
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes, got 1 class: {classes.tolist()}.")
    return classes, codes


def stratified_folds(
    codes: np.ndarray, number: int, random: np.random.RandomState
) -> list[np.ndarray]:
    """Return the row indices of ``number`` random folds, with nearly equal parts of every class.

    Unlike ``StratifiedKFold``, it does not warn of rare classes; a filter of this warning would act
    on all threads.
    """
    order = random.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    return [np.sort(order[fold::number]) for fold in range(number)]


def numbers_of(column: pd.Series) -> np.ndarray:
    """Convert a data frame's column to float64, with NaN for missing cells."""
    if column.dtype.kind in "mMc" or isinstance(column.dtype, pd.PeriodDtype):
        raise TypeError(f"{column.dtype} is not a numeric type.")
    return column.to_numpy(dtype=float, na_value=np.nan)


def as_numbers(name: str, values: Any, *, categories: bool = False, fitted: bool = False) -> Any:
    """Check that a table or vector holds numbers, and convert data frames to float64.

    Missing cells of data frames become NaN; other tables are returned unchanged. Messages contain
    the ``name`` of the argument. With ``categories`` they explain how columns of a data frame
    become categories; with ``fitted``, they state that the columns held numbers in ``fit``.
    """
    if isinstance(values, pd.DataFrame):
        return _frame_of_numbers(name, values, categories, fitted)
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
    _check_objects(name, values, advice)
    return values


def _frame_of_numbers(
    name: str, frame: pd.DataFrame, categories: bool, fitted: bool
) -> pd.DataFrame:
    converted, wrong, times = [], [], False
    for label, column in frame.items():
        try:
            converted.append(numbers_of(column))
        except (TypeError, ValueError):
            faulty = [value for value in column if _conversion_error(value)]
            example = f", such as {faulty[0]!r}" if faulty else ""
            wrong.append(f"{label!r} ({column.dtype}{example})")
            times |= column.dtype.kind in "mM"
    if not frame.shape[1]:
        raise ValueError(f"{name} must have at least one column, got none.")
    if not wrong:
        table = np.column_stack(converted)
        return pd.DataFrame(table, index=frame.index, columns=frame.columns)
    problem = f"Every column of {name} must hold numbers, got {', '.join(wrong)}"
    if fitted:
        raise ValueError(
            f"{problem}: they held numbers in fit; convert them as there, or by "
            "pandas.to_numeric(..., errors='coerce'), which makes unreadable cells NaN."
        )
    if categories:
        raise ValueError(
            f"{problem}: make categories by .astype(str), numbers by pandas.to_numeric(..., "
            "errors='coerce'), dates by pandas.to_datetime(..., errors='coerce'); the last two "
            "make unreadable cells missing."
        )
    dates = ", and dates as days, (dates - dates.min()) / pandas.Timedelta(days=1)" if times else ""
    raise ValueError(
        f"{problem}: encode them first, e.g. with sklearn.preprocessing.OneHotEncoder or "
        f"OrdinalEncoder{dates}."
    )


def _conversion_error(value: Any) -> TypeError | ValueError | None:
    """Return the error of ``float(value)`` if a value is neither a number nor missing."""
    try:
        float(np.nan if pd.api.types.is_scalar(value) and pd.isna(value) else value)
    except (TypeError, ValueError) as error:
        return error
    return None


def _check_objects(name: str, values: Any, advice: str) -> None:
    """Raise an error for the first value in an array that is not a number."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.asarray(values, dtype=object)
    if array.dtype.kind not in "OSU" or not array.ndim:
        return
    for index, value in np.ndenumerate(array.astype(object)):
        if fault := _conversion_error(value):
            where = " and column ".join(map(str, index))
            reason = f" ({fault})" if isinstance(fault, TypeError) else ""
            raise type(fault)(
                f"{name} must hold numbers, got {value!r} in row {where}{reason}: {advice}."
            )


def check_size(name: str, values: np.ndarray) -> None:
    """Raise a ``ValueError`` if a number is so large that squares would overflow."""
    wrong = np.argwhere(np.abs(values) > _MAX_NUMBER)
    if len(wrong):
        where = " and column ".join(map(str, wrong[0]))
        raise ValueError(
            f"{name} must lie within +-{_MAX_NUMBER:g}, got {values[tuple(wrong[0])]:g} in row "
            f"{where}: divide it by a constant, or drop wrong values."
        )


def is_constant(y: np.ndarray) -> bool:
    """Return whether targets ``N`` or ``N x K`` are constant up to rounding errors."""
    return not varies(y).any()


def check_varies(y: np.ndarray) -> None:
    """Raise a ``ValueError`` if targets ``N`` or ``N x K`` are constant."""
    if is_constant(y):
        raise ValueError(
            f"The targets are constant ({y.flat[0]}): nothing can be learned. Predict this value, "
            "as forecast_many and scikit-learn's DummyRegressor do."
        )


def offset_and_scale(y: np.ndarray) -> tuple[Any, Any]:
    """Return mean and standard deviation of targets ``N`` (or ``K`` each of ``N x K``).

    Constant targets have a scale of 1.
    """
    offset, scale = moments(y)
    scale = np.where(varies(y), scale, 1.0)[()]
    if np.any((scale < 1 / _MAX_NUMBER) | (scale > _MAX_NUMBER)):
        raise ValueError(
            f"The targets, from {y.min():g} to {y.max():g}, are too large or too small to be "
            "standardised: multiply them by a constant."
        )
    return offset, scale


def per_row(name: str, values: Any, count: int, *, positive: bool) -> np.ndarray:
    """Return numbers ``N``, at least 0 (``positive``: above), from one, ``N`` or ``N x 1``."""
    if isinstance(values, str) or np.asarray(values).dtype == bool:
        raise TypeError(f"{name} must be one number, or one for each row, got {values!r:.40}.")
    given = np.full(count, values) if np.ndim(values) == 0 else values
    array = np.asarray(as_numbers(name, given), dtype=float)
    array = array[:, 0] if array.shape == (count, 1) else array  # a column, as in BoTorch
    if array.shape != (count,):
        raise ValueError(
            f"{name} must be one number, or one for each of {count} rows, got shape {array.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0 if positive else array >= 0)))
    if wrong.size:
        limit = "positive" if positive else "at least 0"
        raise ValueError(
            f"{name} must be {limit} and finite, got {array[wrong[0]]:g} in row {wrong[0]}."
        )
    check_size(name, array)
    return array


def scaled_variance(transform: Transform, y: np.ndarray, variance: Any, scale: float) -> np.ndarray:
    """Convert noise variances ``N`` of targets ``N`` for the transformed and scaled targets.

    By the delta method, the factor is the squared derivative at the target.
    """
    slopes = np.exp(transform.log_slope(y)) / scale
    return np.minimum(variance * slopes**2, _MAX_NOISE)


def warn_of_copies(X: np.ndarray, y: np.ndarray) -> None:
    """Warn if over 10 % of the rows ``N x D`` and their targets are duplicates."""
    rows = np.column_stack([X, y])
    copies = len(rows) - len(np.unique(rows, axis=0))
    if copies > _MAX_COPIES * len(rows):
        warnings.warn(
            f"{copies} of {len(rows)} rows are exact copies of others, targets included. Copies "
            "bias the noise towards zero, and make held-out densities better than the densities of "
            "new rows; drop_duplicates() removes repeated records.",
            UserWarning,
            stacklevel=3,
        )
