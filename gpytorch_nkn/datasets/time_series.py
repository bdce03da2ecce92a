"""Container of a time series, and the bundled CO2 series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpytorch_nkn._optional import needs

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TimeSeries", "load_co2"]

_MONTH = np.timedelta64(1, "M")
_YEARS_HELD_OUT = 10


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """Observations of one quantity over time, sorted by time.

    Args:
        name: Name of the series.
        x: Times ``N``, as numbers or as ``datetime64``; they may repeat and be irregular.
        y: Finite values ``N``.
        test: Mask ``N`` of the held-out values.
        x_label: Name of the time axis, with its unit where known.
        y_label: Name of the values, with their unit where known.
        zone: Time zone of dates, such as ``"UTC+02:00"``; empty for none.
        notices: What was inferred or changed while reading, one sentence each.
        covariates: Covariates ``N x C`` at the times ``x``; None without covariates.
        future_x: Times ``M`` after ``x`` at which covariates are known.
        future_covariates: Covariates ``M x C`` at the times ``future_x``.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    test: np.ndarray
    x_label: str = "time"
    y_label: str = "value"
    zone: str = ""
    notices: tuple[str, ...] = ()
    covariates: pd.DataFrame | None = None
    future_x: np.ndarray | None = None
    future_covariates: pd.DataFrame | None = None

    @property
    def has_dates(self) -> bool:
        """True if the times are dates."""
        return bool(self.x.dtype.kind == "M")

    @property
    def index(self) -> pd.Index:
        """Times ``N`` as a pandas index, with the time zone."""
        return self._indexed(self.x)

    @property
    def future_index(self) -> pd.Index:
        """Times ``M`` of the future as a pandas index, with the time zone."""
        return self._indexed(self.x[:0] if self.future_x is None else self.future_x)

    def _indexed(self, times: np.ndarray) -> pd.Index:
        with needs("TimeSeries.index"):
            import pandas as pd
        return pd.DatetimeIndex(times, tz=self.zone) if self.zone else pd.Index(times)

    def texts(self, times: pd.Index) -> list[str]:
        """Format times ``M`` as in the series: dates by ISO 8601, with its precision."""
        if not self.has_dates:
            return [f"{time:.15g}" for time in times]
        if np.datetime_data(self.x.dtype)[0] == "M":
            return [time.isoformat()[:7] for time in times]
        index = self.index
        if index.tz is None and (index == index.normalize()).all():
            return [time.isoformat()[:10] for time in times]
        precise = bool((index.microsecond != 0).any())
        spec = "microseconds" if precise else "seconds" if (index.second != 0).any() else "minutes"
        return [time.isoformat(timespec=spec) for time in times]


def load_co2() -> TimeSeries:
    """Return monthly CO2 at Mauna Loa, March 1958 to December 2001, the last ten years held out.

    Values are monthly means of weekly data that are bundled with statsmodels (no download). Five
    months without data are missing. Each month is dated to its first day.

    Raises:
        ImportError: statsmodels is not installed.
    """
    with needs("The CO2 series"):
        from statsmodels.datasets import co2
    monthly = co2.load().data["co2"].resample("MS").mean().dropna()
    x = monthly.index.to_numpy().astype("datetime64[D]")
    first_held_out = x[-1].astype("datetime64[M]") - 12 * _YEARS_HELD_OUT * _MONTH
    return TimeSeries(
        name="Monthly CO2 at Mauna Loa",
        x=x,
        y=monthly.to_numpy(dtype=float),
        test=x.astype("datetime64[M]") > first_held_out,
        x_label="year",
        y_label="CO2 (ppm)",
    )
