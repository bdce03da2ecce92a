"""Covariates of a series: columns with known past and future values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from gpytorch_nkn.estimators.series.series_input import at_times
from gpytorch_nkn.estimators.table_input import as_numbers
from gpytorch_nkn.fit import warn_user

__all__ = ["Covariates", "covariate_frame"]

_CONSTANT = 1e-12  # largest range of a constant column, relative to its largest value


@dataclass(frozen=True, eq=False)
class Covariates:
    """Covariates of a fit, and their scales.

    Columns with two values become 0 and 1; others are standardised. Constant columns are not used.
    """

    columns: pd.Index  # labels of the C columns, by default "covariate 1", ...
    by_name: bool  # whether covariates were a data frame
    offset: np.ndarray  # C
    scale: np.ndarray  # C
    used: np.ndarray  # mask C of columns that vary
    is_binary: np.ndarray  # mask C of columns with two values

    @classmethod
    def of(cls, frame: pd.DataFrame, *, by_name: bool) -> Covariates:
        """Learn the scales of covariates ``N x C``, with a warning about constant columns."""
        repeated = frame.columns[frame.columns.duplicated()].unique()
        if len(repeated):
            raise ValueError(
                f"Names of covariates must be unique, got repeated {_listed(repeated)}."
            )
        _check_finite(frame)
        table = frame.to_numpy()
        low, high = table.min(0), table.max(0)
        with np.errstate(over="ignore", invalid="ignore"):
            ranges, mean, stds = high - low, table.mean(0), table.std(0)
        large = ~np.isfinite(ranges + stds)
        if large.any():
            raise ValueError(
                "covariates must have finite ranges and variances, got too large values in "
                f"{_listed(frame.columns[large])}."
            )
        used = ranges > _CONSTANT * np.abs(table).max(0)
        is_binary = used & ((table == low) | (table == high)).all(0)
        if not used.all():
            warn_user(f"Constant covariates are not used: {_listed(frame.columns[~used])}.")
        return cls(
            columns=frame.columns,
            by_name=by_name,
            offset=np.where(used & ~is_binary, mean, low),
            scale=np.where(is_binary, ranges, np.where(used, stds, 1.0)),
            used=used,
            is_binary=is_binary,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in use."""
        return tuple(map(str, self.columns[self.used]))

    def frame(
        self, values: Any, times: pd.Index, rows: slice | np.ndarray = slice(None)
    ) -> pd.DataFrame:
        """Return all columns at some rows of the times ``M``, in the order of the fit."""
        count = len(self.columns)
        if values is None and count:
            raise ValueError(
                f"The fit had {count} covariate{'s' if count > 1 else ''} "
                f"({_listed(self.columns)}): pass their values at these times, too "
                "(covariates=...). If the values are unknown, forecast them, or fit without them."
            )
        if values is not None and not count:
            raise ValueError("The fit had no covariates: pass them to fit, too.")
        is_named = self.by_name and isinstance(values, pd.DataFrame)
        if is_named and self.columns.isin(values.columns).all():
            values = values[list(self.columns)]
        frame = covariate_frame(values, times)
        if frame.shape[1] != count or (is_named and not frame.columns.equals(self.columns)):
            raise ValueError(
                f"covariates must have the {count} columns {_listed(self.columns)} as in the fit, "
                f"got {_listed(frame.columns)}."
            )
        frame.columns = self.columns
        frame = frame[rows]
        _check_finite(frame)
        return frame

    def scaled(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the columns in use, scaled, from all columns ``M x C``."""
        table = frame.to_numpy()
        changed = (table != self.offset).any(0) & ~self.used
        if changed.any():
            warn_user(
                "Covariates that were constant in the fit have no effect on the forecast: "
                f"{_listed(self.columns[changed])}."
            )
        return ((table - self.offset) / self.scale)[:, self.used]


def covariate_frame(values: Any, times: pd.Index, name: str = "covariates") -> pd.DataFrame:
    """Convert covariates to columns of floats ``N x C`` at times ``N``; values may be missing.

    Rows of a pandas object with dates, also as strings in ISO 8601, are selected by date. Other
    rows must be in order of time.
    """
    if values is None:
        return pd.DataFrame(index=times)
    if isinstance(values, pd.Series):
        values = values.to_frame("covariate 1" if values.name is None else values.name)
    if not isinstance(values, pd.DataFrame):
        values = values.detach().cpu() if isinstance(values, Tensor) else values
        table = np.asarray(as_numbers(name, values))
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim == 2:
            values = pd.DataFrame(table)
            values.columns = [f"covariate {number}" for number in range(1, table.shape[1] + 1)]
    if isinstance(values, pd.DataFrame):
        values = at_times(as_numbers(name, values), times, name)
    if np.ndim(values) != 2 or len(values) != len(times):
        raise ValueError(
            f"{name} must have a row for each of the {len(times)} times, got shape "
            f"{np.shape(values)}."
        )
    return values.set_axis(times)


def _check_finite(frame: pd.DataFrame) -> None:
    bad = ~np.isfinite(frame.to_numpy())
    if bad.any():
        column = int(bad.any(0).argmax())
        first = int(bad[:, column].argmax())
        raise ValueError(
            f"covariates must be finite, but {frame.columns[column]} has "
            f"{int(bad[:, column].sum())} NaN or infinite values, the first at position {first} "
            f"(time {frame.index[first]}): fill them in, or drop those rows."
        )


def _listed(labels: Iterable[Any]) -> str:
    return ", ".join(map(str, labels))
