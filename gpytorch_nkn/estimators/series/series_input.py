"""Conversion of the times and targets of a series from all accepted types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

from gpytorch_nkn.fit import check_number, warn_user

__all__ = [
    "as_time",
    "as_times",
    "as_vector",
    "at_times",
    "forecast_columns",
    "local",
    "matched",
    "starts",
    "times_and_targets",
]

_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"  # from UTC, at the end of a date
_CLOCK_CHANGE = pd.Timedelta(hours=1)  # largest change of the UTC offset within a time zone


def times_and_targets(x: Any, y: ArrayLike | None) -> tuple[pd.Index, np.ndarray]:
    """Return times and targets ``N``, from the arguments of :meth:`NKNForecaster.fit`."""
    if y is None:
        if isinstance(x, pd.DataFrame) and x.shape[1] != 1:
            raise ValueError(
                f"Without y, x must be one column indexed by time, got the {x.shape[1]} columns "
                f"{', '.join(map(str, x.columns[:6]))}: select one, as by "
                "frame.set_index(...)[...]."
            )
        if not isinstance(x, pd.Series | pd.DataFrame):
            raise ValueError(
                "NKNForecaster requires y to be passed, but the target y is None; only a pandas "
                f"series x has its own targets, got {type(x).__name__}."
            )
        series = x.iloc[:, 0] if isinstance(x, pd.DataFrame) else x
        values = series.to_numpy(na_value=np.nan) if series.hasnans else series
        return as_times(series.index), as_vector(values, "y", gaps=True)
    remedy = "drop those rows, or pass a pandas series, whose NaN are gaps"
    times = as_times(x)
    if isinstance(y, pd.Series | pd.DataFrame) and y.index.nlevels == 1:
        y = at_times(y, times, "y")
    target = as_vector(y, "y", remedy=remedy)
    if len(times) != target.size:
        raise ValueError(f"x and y must have the same length, got {len(times)} and {target.size}.")
    return times, target


def at_times(frame: Any, times: pd.Index, name: str) -> Any:
    """Return the rows of a pandas object at these times if both are dates, otherwise all rows."""
    dates, index = pd.DatetimeIndex | pd.PeriodIndex, as_times(frame.index)
    if len(index) and all(isinstance(label, str) for label in index):
        has_offset = all(re.search(_OFFSET, label) for label in index)  # may change in summer
        parsed = pd.to_datetime(index, format="ISO8601", errors="coerce", utc=has_offset)
        index = index if parsed.isna().any() else parsed
    if not (isinstance(index, dates) and isinstance(times, dates)):
        return frame
    has_zone = [getattr(dates, "tz", None) is not None for dates in (index, times)]
    if has_zone[0] != has_zone[1] and not isinstance(times, pd.PeriodIndex):
        kinds = ("without a time zone", "with one")
        raise TypeError(
            f"{name} has dates {kinds[has_zone[0]]}, and x has dates {kinds[has_zone[1]]}: use "
            "tz_localize or tz_convert of pandas to make them alike."
        )
    given, wanted = as_time(matched(index, times)), as_time(times)
    if np.array_equal(given, wanted):
        return frame
    if len(np.unique(given)) < len(given):
        raise ValueError(f"{name} with repeated dates must have exactly the dates of x.")
    rows = pd.Index(given).get_indexer(pd.Index(wanted))
    lacking = rows < 0
    if lacking.any():
        raise ValueError(
            f"{name} must have a row for every date, but {int(lacking.sum())} of {len(times)} "
            f"dates have none, the first {times[int(lacking.argmax())]}; the rows are from "
            f"{frame.index.min()} to {frame.index.max()}."
        )
    return frame.iloc[rows]


def as_times(x: Any) -> pd.Index:
    """Convert times to an index of numbers, durations, dates (with their zone) or periods."""
    if isinstance(x, pd.MultiIndex):
        raise ValueError(
            f"A series must have one column of times, got the {x.nlevels} levels {list(x.names)}; "
            "forecast_many takes several series."
        )
    if isinstance(x, pd.DataFrame) and x.shape[1] == 1:
        x = x.iloc[:, 0]
    if isinstance(x, pd.Index | pd.Series):
        index = pd.Index(x, dtype=x.dtype)  # without inference, which warns
        if isinstance(index.dtype, pd.ArrowDtype):
            index = pd.Index(index.array.__arrow_array__().to_pandas(), name=index.name)
        return index if index.dtype != object else _of_objects(index.to_numpy(), index.name)
    x = _to_cpu(x)
    if isinstance(x, np.ma.MaskedArray):
        plain = x if x.dtype.kind in "mM" else x.astype(float)
        x = np.ma.filled(plain, "NaT" if x.dtype.kind in "mM" else np.nan)
    values = np.asarray(x)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        steps = "" if values.ndim else "; forecast takes a number of steps"
        raise ValueError(f"x must be one column of times, got shape {values.shape}{steps}.")
    if values.dtype == object:
        return _of_objects(values, None)
    return pd.Index(values)


def starts(periods: pd.PeriodIndex) -> pd.DatetimeIndex:
    """Return the starts of periods, in any year."""
    try:
        return periods.to_timestamp()
    except pd.errors.OutOfBoundsDatetime:  # beyond the range of nanoseconds
        return pd.DatetimeIndex(periods.asfreq("D", how="start").asi8.astype("datetime64[D]"))


def matched(times: pd.Index, known: pd.Index) -> pd.Index:
    """Convert dates to the periods that contain them if the known times are periods.

    If the known times are the first or last days of periods, periods are converted to such dates.
    """
    if isinstance(known, pd.PeriodIndex) and isinstance(times, pd.DatetimeIndex):
        return local(times).to_period(known.freq)
    if not (isinstance(known, pd.DatetimeIndex) and isinstance(times, pd.PeriodIndex)):
        return times
    known = local(known.dropna())
    past = known.to_period(times.freq)
    for dates in (starts, lambda periods: periods.to_timestamp(how="end").normalize()):
        if (dates(past) == known).all():
            return dates(times)
    raise TypeError(
        f"Times are periods ({times.freqstr}), but the known times are dates within such periods: "
        "pass dates."
    )


def local(times: pd.Index) -> pd.Index:
    """Convert periods to their starts, and drop the time zone of dates."""
    times = starts(times) if isinstance(times, pd.PeriodIndex) else times
    return times if getattr(times, "tz", None) is None else times.tz_localize(None)


def _of_objects(values: np.ndarray, name: Any) -> pd.Index:
    if pd.api.types.infer_dtype(values, skipna=True) == "date":  # of any year
        return pd.Index(pd.Series(values).to_numpy("datetime64[s]"), name=name)
    index = pd.Index(values, dtype=object, name=name).infer_objects()
    if pd.api.types.infer_dtype(index, skipna=True) != "datetime":
        return index
    moments = pd.DatetimeIndex(pd.to_datetime(values, utc=True), name=name)
    offsets = pd.to_timedelta([None if pd.isna(time) else time.utcoffset() for time in values])
    is_naive = offsets.isna() & moments.notna()
    if is_naive.any() or not offsets.max() - offsets.min() <= _CLOCK_CHANGE:  # or all are NaT
        return moments
    warn_user(
        "The clock changes within the times: they are used as local times, and offsets from UTC "
        "are dropped. If the zone is known, set it: pandas.to_datetime(times, utc=True)"
        ".tz_convert('Europe/Berlin')."
    )
    return (moments + offsets).tz_localize(None)


def _to_cpu(x: Any) -> Any:
    return x.detach().cpu() if isinstance(x, Tensor) else x


def as_time(x: ArrayLike) -> np.ndarray:
    """Convert times to numbers: days since 1970 in UTC for dates, days for durations."""
    index = as_times(x)
    if isinstance(index, pd.PeriodIndex):
        index = starts(index)
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        index = index.tz_convert("UTC").tz_localize(None)
    values = index.to_numpy()
    for kind, label in ((np.datetime64, "dates"), (np.timedelta64, "durations")):
        if np.issubdtype(values.dtype, kind):
            if np.isnat(values).any():
                raise ValueError(f"x has missing {label} (NaT): {np.isnat(values).sum()}.")
            start = np.datetime64(0, "s") if kind is np.datetime64 else np.timedelta64(0, "s")
            return (values - start) / np.timedelta64(1, "D")
    return as_vector(values, "x")


def as_vector(
    values: ArrayLike, name: str, *, gaps: bool = False, remedy: str = "drop those rows"
) -> np.ndarray:
    """Convert values to a vector of finite floats; with ``gaps``, values may be NaN."""
    values = _to_cpu(values)
    try:
        masked = np.ma.isMaskedArray(values)
        vector = np.ma.asanyarray(values) if masked else np.asarray(values)
        if vector.dtype.kind in "cmM":  # complex numbers, durations, dates
            raise TypeError
        vector = vector.astype(float)
        vector = np.ma.filled(vector, np.nan) if masked else vector
    except (TypeError, ValueError):
        expected = "numbers or dates (see pandas.to_datetime)" if name == "x" else "numbers"
        raise TypeError(
            f"{name} must hold {expected}, got {_describe_first_invalid(values)}."
        ) from None
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one column, got shape {vector.shape}.")
    bad = np.isinf(vector) if gaps else ~np.isfinite(vector)
    if bad.any():
        raise ValueError(
            f"{name} contains {int(bad.sum())} NaN or infinite values, the first at position "
            f"{int(bad.argmax())}; {remedy}."
        )
    return vector


def _describe_first_invalid(values: ArrayLike) -> str:
    """Describe the first value that is not a number, or else the type of the values."""
    array = np.asarray(values)
    for index, value in enumerate(array.ravel() if array.dtype.kind in "OUST" else ()):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{str(value)[:40]!r} at position {index}"
    return str(array.dtype)


def forecast_columns(level: float | Sequence[float] | None) -> dict[str, float]:
    """Return the column names of a forecast, with their probabilities."""
    columns = {"median": 0.5}
    for percent in np.ravel([] if level is None else level).tolist():
        check_number("level", percent, positive=True)
        if not 1 <= percent < 100:
            raise ValueError(f"level must be in per cent, from 1 to below 100, got {percent}.")
        columns[f"lo-{percent:g}"] = (1 - percent / 100) / 2
        columns[f"hi-{percent:g}"] = (1 + percent / 100) / 2
    return columns
