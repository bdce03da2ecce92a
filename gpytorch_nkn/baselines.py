"""Seasonal naive forecast, a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from gpytorch_nkn._optional import needs
from gpytorch_nkn.linalg import check_number

with needs("gpytorch_nkn.baselines"):
    import pandas as pd

__all__ = ["seasonal_naive_forecast"]


def seasonal_naive_forecast(
    x: np.ndarray, y: np.ndarray, x_new: np.ndarray, *, seasons: Sequence[float] = ()
) -> Any:
    r"""Forecast by the seasonal naive method: a frozen :data:`scipy.stats.norm` of ``M`` values.

    .. math:: \hat y(x) = y(x - k P), \qquad \sigma(x) = \hat\sigma \sqrt{k}

    where :math:`k` counts the seasons from :math:`x` back to the last observed season, and
    :math:`\hat\sigma` is the root mean square of :math:`y_i - y(x_i - P)`. Targets between inputs
    are interpolated linearly. If the inputs span no season twice, the forecast repeats the last
    target. Its variance is then proportional to the number of steps (of median length) ahead.

    Args:
        x: Inputs ``N``; targets at equal inputs are averaged.
        y: Targets ``N``.
        x_new: Inputs ``M`` of the forecast.
        seasons: Candidate seasons :math:`P`. The season with the smallest :math:`\hat\sigma` is
            used.

    Raises:
        ValueError: An argument is not a finite vector, a season is not positive, or ``x`` and ``y``
            differ in length.

    Reference: Hyndman and Athanasopoulos (2021), Forecasting: Principles and Practice, 5.5.
    """
    x, y, new = (np.asarray(values, dtype=float) for values in (x, y, x_new))
    if x.ndim != 1 or x.shape != y.shape or not x.size or new.ndim != 1:
        shapes = [values.shape for values in (x, y, new)]
        raise ValueError(f"x, y and x_new must be vectors, x and y of one length, got {shapes}.")
    if not all(np.isfinite(values).all() for values in (x, y, new)):
        raise ValueError("x, y and x_new must be finite, got NaN or infinite values.")
    seasons = list(seasons)
    for season in seasons:
        check_number("Each of seasons", season, positive=True)
    means = pd.Series(y).groupby(x).mean()
    x, y = means.index.to_numpy(), means.to_numpy()

    def seasonal_rms(lag: float) -> float:
        later = x >= x[0] + lag * (1 - 1e-9)
        return float(np.sqrt(np.mean((y[later] - np.interp(x[later] - lag, x, y)) ** 2)))

    step = float(np.median(np.diff(x))) if x.size > 1 else 1.0
    seasons = [season for season in seasons if 2 * season <= x[-1] - x[0] + step * (1 + 1e-9)]
    if seasons:
        season = min(seasons, key=seasonal_rms)
        count = np.maximum(np.ceil((new - x[-1]) / season - 1e-9), 1.0)
        mean, sigma = np.interp(new - count * season, x, y), seasonal_rms(season)
    else:
        count = np.maximum((new - x[-1]) / step, 1.0)
        mean = np.full(new.shape, y[-1])
        sigma = np.sqrt(np.mean(np.diff(y) ** 2 * step / np.diff(x))) if x.size > 1 else 0.0
    return norm(mean, np.maximum(sigma, 1e-6 * (y.std() or 1.0)) * np.sqrt(count))
