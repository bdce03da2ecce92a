"""Scores of forecasts that GPyTorch and scikit-learn lack."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

__all__ = ["forecast_scores", "interval_coverage"]


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the fraction of observations inside their intervals, ends included.

    Unlike :func:`gpytorch.metrics.quantile_coverage_error`, this function accepts intervals of any
    distribution.

    Args:
        y, lower, upper: Observations and the ends of their intervals, of the same shape.

    Raises:
        ValueError: The shapes differ, there are no observations, a value is NaN, or a lower end
            exceeds its upper end.
    """
    y, lower, upper = (np.asarray(values, dtype=float) for values in (y, lower, upper))
    if not y.shape == lower.shape == upper.shape or y.size == 0:
        raise ValueError(
            "y, lower and upper must share a shape and not be empty, got shapes "
            f"{y.shape}, {lower.shape} and {upper.shape}."
        )
    if np.isnan([y, lower, upper]).any():
        raise ValueError("y, lower and upper must be numbers, got NaN.")
    if (lower > upper).any():
        raise ValueError(
            f"lower must not exceed upper, got larger values for {(lower > upper).sum()} of "
            f"{y.size} observations."
        )
    return float(np.mean((lower <= y) & (y <= upper)))


def forecast_scores(
    y: ArrayLike, *, mean: ArrayLike, lower: ArrayLike, upper: ArrayLike, log_density: ArrayLike
) -> dict[str, float]:
    """Return the scores of a forecast.

    Args:
        y: Observations ``N``.
        mean: Forecasts ``N``.
        lower, upper: Ends ``N`` of the prediction intervals.
        log_density: Natural logarithms ``N`` of the predictive densities.

    Returns:
        ``rmse``, ``mae``, ``mean_log_density`` and ``coverage`` (:func:`interval_coverage`).

    Raises:
        ValueError: The shapes differ, or a value is not finite.
    """
    log_density = np.asarray(log_density, dtype=float)
    if log_density.shape != np.shape(y):
        raise ValueError(
            f"log_density must have the shape of y, {np.shape(y)}, got {log_density.shape}."
        )
    if not np.isfinite(log_density).all():
        raise ValueError("log_density must be finite, got NaN or infinite values.")
    return {
        "rmse": float(root_mean_squared_error(y, mean)),
        "mae": float(mean_absolute_error(y, mean)),
        "mean_log_density": float(log_density.mean()),
        "coverage": interval_coverage(y, lower, upper),
    }
