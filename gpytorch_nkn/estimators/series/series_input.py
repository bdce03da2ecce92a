"""Times and targets of a series as finite vectors of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = ["as_time", "as_vector", "is_date"]


def is_date(x: Any) -> bool:
    """Whether times are dates of any kind."""
    return np.issubdtype(_as_array(x).dtype, np.datetime64)


def _as_array(x: Any) -> np.ndarray:
    """An array; dates of every kind (pandas, with time zones, ``datetime``) as ``datetime64``."""
    x = _off_the_graph(x)
    if isinstance(getattr(x, "dtype", None), pd.PeriodDtype):
        x = pd.PeriodIndex(x).to_timestamp()
    values = np.ma.asanyarray(x) if np.ma.isMaskedArray(x) else np.asarray(x)
    kind = pd.api.types.infer_dtype(values.ravel(), skipna=True) if values.dtype == object else ""
    if kind == "period":
        return pd.PeriodIndex(values.ravel()).to_timestamp().to_numpy().reshape(values.shape)
    if kind == "timedelta":
        return pd.to_timedelta(values.ravel()).to_numpy().reshape(values.shape)
    if kind == "date":  # of any year, unlike pandas' nanoseconds
        return pd.Series(values.ravel()).to_numpy("datetime64[s]").reshape(values.shape)
    if kind == "datetime":
        index = pd.DatetimeIndex(pd.to_datetime(values.ravel(), utc=True)).tz_localize(None)
        return index.to_numpy().reshape(values.shape)
    return values


def _off_the_graph(x: Any) -> Any:
    return x.detach().cpu() if isinstance(x, Tensor) else x


def as_time(x: ArrayLike) -> np.ndarray:
    """Time as numbers, days for dates and durations."""
    values = _as_array(x)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if np.issubdtype(values.dtype, np.datetime64):
        if np.isnat(values).any():
            raise ValueError(f"x contains {int(np.isnat(values).sum())} missing dates (NaT).")
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "D")
    elif np.issubdtype(values.dtype, np.timedelta64):
        if np.isnat(values).any():
            raise ValueError(f"x contains {int(np.isnat(values).sum())} missing durations (NaT).")
        values = values / np.timedelta64(1, "D")
    return as_vector(values, "x")


def as_vector(values: ArrayLike, name: str) -> np.ndarray:
    """One column of finite floats.

    Raises:
        TypeError: The values are not real numbers.
        ValueError: There are several columns, or NaN, infinite or masked values.
    """
    values = _off_the_graph(values)
    try:
        masked = np.ma.isMaskedArray(values)
        vector = np.ma.asanyarray(values) if masked else np.asarray(values)
        if np.iscomplexobj(vector):
            raise TypeError
        vector = vector.astype(float)
        vector = np.ma.filled(vector, np.nan) if masked else vector
    except (TypeError, ValueError):
        expected = "numbers or dates (see pandas.to_datetime)" if name == "x" else "numbers"
        raise TypeError(f"{name} must hold {expected}, got {np.asarray(values).dtype}.") from None
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one column, got shape {vector.shape}.")
    bad = ~np.isfinite(vector)
    if bad.any():
        raise ValueError(
            f"{name} contains {int(bad.sum())} NaN or infinite values, the first at position "
            f"{int(bad.argmax())}; drop those rows."
        )
    return vector
