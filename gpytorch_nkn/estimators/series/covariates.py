"""Covariates of a series: columns beside time whose values are known, in the future, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from gpytorch_nkn.estimators.series.series_input import as_time
from gpytorch_nkn.estimators.table_input import refuse_other_values
from gpytorch_nkn.fit import warn_user

__all__ = ["Covariates", "covariate_frame"]

_SPREAD = 1e-12  # of a column to its largest value, below which it is constant


@dataclass(frozen=True, eq=False)
class Covariates:
    """Which columns there are beside time, and how a model counts them.

    Columns of two values count as 0 and 1, others are standardised, and constant ones are left
    out.

    Attributes:
        columns: Labels of all columns ``C``: those of the data frame, else ``covariate 1``, ...
        by_name: Whether they came by names.
        offset, scale: ``C`` each.
        used: Mask ``C`` of columns that vary.
        is_switch: Mask ``C`` of columns of two values.
    """

    columns: pd.Index
    by_name: bool
    offset: np.ndarray
    scale: np.ndarray
    used: np.ndarray
    is_switch: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame, *, by_name: bool) -> Covariates:
        """Those of the data of a fit, ``N x C``, with a notice about constant columns.

        Raises:
            ValueError: Names are repeated, or values are missing, infinite or too large.
        """
        repeated = frame.columns[frame.columns.duplicated()].unique()
        if len(repeated):
            raise ValueError(f"covariates has several columns of the name {_listed(repeated)}.")
        _refuse_missing(frame)
        table = frame.to_numpy()
        low, high = table.min(0), table.max(0)
        with np.errstate(over="ignore", invalid="ignore"):
            spread, mean, deviation = high - low, table.mean(0), table.std(0)
        large = ~np.isfinite(spread + deviation)
        if large.any():
            raise ValueError(f"covariates: {_listed(frame.columns[large])} has too large values.")
        used = spread > _SPREAD * np.abs(table).max(0)
        is_switch = used & ((table == low) | (table == high)).all(0)
        if not used.all():
            warn_user(
                "Covariates that are constant tell nothing and are left out: "
                f"{_listed(frame.columns[~used])}."
            )
        return cls(
            columns=frame.columns,
            by_name=by_name,
            offset=np.where(used & ~is_switch, mean, low),
            scale=np.where(is_switch, spread, np.where(used, deviation, 1.0)),
            used=used,
            is_switch=is_switch,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns in use."""
        return tuple(map(str, self.columns[self.used]))

    def frame(self, values: Any, times: pd.Index) -> pd.DataFrame:
        """All columns ``M x C`` at times ``M``, in the order of the fit.

        Raises:
            ValueError: There are none where the fit had some, or the reverse; columns are missing
                or too many; values are missing or infinite.
        """
        count = len(self.columns)
        if values is None and count:
            raise ValueError(
                f"The fit had {count} covariate{'s' if count > 1 else ''} "
                f"({_listed(self.columns)}): their values at these times are needed, too "
                "(covariates=...). If they are not known, forecast them, or fit without them."
            )
        if values is not None and not count:
            raise ValueError("The fit had no covariates: give them to fit, too.")
        if self.by_name and isinstance(values, pd.DataFrame):
            missing = [label for label in self.columns if label not in values.columns]
            if missing:
                raise ValueError(
                    f"covariates must have the columns {_listed(self.columns)} as in the fit, got "
                    f"{_listed(values.columns)}."
                )
            values = values[list(self.columns)]
        frame = covariate_frame(values, times)
        if frame.shape[1] != count:
            raise ValueError(
                f"covariates must have {count} columns as in the fit ({_listed(self.columns)}), "
                f"got {frame.shape[1]}."
            )
        frame.columns = self.columns
        _refuse_missing(frame)
        return frame

    def scaled(self, frame: pd.DataFrame) -> np.ndarray:
        """The columns in use, of all columns ``M x C``, as a model has them."""
        table = frame.to_numpy()
        changed = (table != self.offset).any(0) & ~self.used
        if changed.any():
            warn_user(
                "Covariates that were constant in the fit have no known effect, and none in the "
                f"forecast: {_listed(self.columns[changed])}."
            )
        return ((table - self.offset) / self.scale)[:, self.used]


def covariate_frame(values: Any, times: pd.Index) -> pd.DataFrame:
    """Columns of floats ``N x C`` over times ``N``, in which values may be missing.

    Rows of a pandas object over dates are found by their dates, others by their order.

    Raises:
        TypeError: They are not numbers.
        ValueError: Shapes are wrong, or a data frame has no rows for some dates.
    """
    if values is None:
        return pd.DataFrame(index=times)
    labels: Any = None
    if isinstance(values, pd.Series):
        values = values.to_frame("covariate 1" if values.name is None else values.name)
    if isinstance(values, pd.DataFrame):
        refuse_other_values("covariates", values)
        labels = values.columns
        values = _at_times(values, times).to_numpy(dtype=float, na_value=np.nan)
    values = values.detach().cpu() if isinstance(values, Tensor) else values
    refuse_other_values("covariates", values)
    try:
        table = np.asarray(values)
        if np.iscomplexobj(table):
            raise TypeError
        table = table.astype(float)
    except (TypeError, ValueError):
        raise TypeError(
            "covariates must be columns of numbers, as an array or a data frame (categories are "
            f"encoded first, e.g. by pandas.get_dummies), got {type(values).__name__}."
        ) from None
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != len(times):
        raise ValueError(
            f"covariates must have a row for each of the {len(times)} times, got shape "
            f"{table.shape}."
        )
    if labels is None:
        labels = [f"covariate {number}" for number in range(1, table.shape[1] + 1)]
    return pd.DataFrame(table, times, labels)


def _at_times(frame: pd.DataFrame, times: pd.Index) -> pd.DataFrame:
    """The rows at these times, if both are dates; else the frame itself."""
    dates = pd.DatetimeIndex | pd.PeriodIndex
    if not (isinstance(frame.index, dates) and isinstance(times, dates)):
        return frame
    own, wanted = as_time(frame.index), as_time(times)
    if np.array_equal(own, wanted):
        return frame
    if len(np.unique(own)) < len(own):
        raise ValueError("covariates have some dates twice, and must have the dates of x then.")
    rows = pd.Index(own).get_indexer(pd.Index(wanted))
    lacking = rows < 0
    if lacking.any():
        raise ValueError(
            f"covariates have no row for {int(lacking.sum())} of {len(times)} dates, the first is "
            f"{times[int(lacking.argmax())]}; they reach from {frame.index.min()} to "
            f"{frame.index.max()}."
        )
    return frame.iloc[rows]


def _refuse_missing(frame: pd.DataFrame) -> None:
    bad = ~np.isfinite(frame.to_numpy())
    if bad.any():
        column = int(bad.any(0).argmax())
        first = int(bad[:, column].argmax())
        raise ValueError(
            f"covariates: {frame.columns[column]} has {int(bad[:, column].sum())} NaN or infinite "
            f"values, the first at position {first} (time {frame.index[first]}); fill them in, or "
            "drop those rows."
        )


def _listed(labels: Iterable[Any]) -> str:
    return ", ".join(map(str, labels))
