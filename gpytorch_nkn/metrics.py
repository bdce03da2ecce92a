"""Scores of forecasts that GPyTorch and scikit-learn lack."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import mean_absolute_error, root_mean_squared_error

__all__ = ["forecast_scores", "interval_coverage"]


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of the observations inside their interval, ends included.

    Unlike :func:`gpytorch.metrics.quantile_coverage_error`, it takes any intervals, also those
    of distributions that are not normal.

    Args:
        y: Observations, of any shape.
        lower: Lower ends, of the same shape.
        upper: Upper ends, of the same shape.

    Raises:
        ValueError: The shapes differ, there are no observations, a value is not a number, or a
            lower end lies above its upper end.
    """
    y, lower, upper = (np.asarray(values, dtype=float) for values in (y, lower, upper))
    if not y.shape == lower.shape == upper.shape or y.size == 0:
        raise ValueError(
            "y, lower and upper must be of one shape and not empty, got shapes "
            f"{y.shape}, {lower.shape} and {upper.shape}."
        )
    if np.isnan([y, lower, upper]).any():
        raise ValueError("y, lower and upper must be numbers, got NaN.")
    if (lower > upper).any():
        raise ValueError(
            f"lower must not exceed upper, which it does at {(lower > upper).sum()} of "
            f"{y.size} observations."
        )
    return float(np.mean((lower <= y) & (y <= upper)))


def forecast_scores(
    y: ArrayLike,
    *,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    log_density: ArrayLike,
) -> dict[str, float]:
    """The scores by which forecasts are compared here, in units of the observations.

    Args:
        y: Observations ``N``.
        mean: Their forecast ``N``.
        lower: Lower ends ``N`` of the band.
        upper: Upper ends ``N`` of the band.
        log_density: Natural logarithms ``N`` of the predictive density of each observation.

    Returns:
        ``rmse``, ``mae``, ``mean_log_density`` and ``coverage``.

    Raises:
        ValueError: The shapes differ or a value is missing or infinite.
    """
    log_density = np.asarray(log_density, dtype=float)
    if log_density.shape != np.shape(y):
        raise ValueError(
            f"log_density must have the shape of y, {np.shape(y)}, got {log_density.shape}."
        )
    for name, values in (("y", y), ("mean", mean), ("log_density", log_density)):
        wrong = np.size(values) - np.isfinite(np.asarray(values, dtype=float)).sum()
        if wrong:
            raise ValueError(f"{name} must be finite, got {wrong} values that are not.")
    return {
        "rmse": float(root_mean_squared_error(y, mean)),
        "mae": float(mean_absolute_error(y, mean)),
        "mean_log_density": float(log_density.mean()),
        "coverage": interval_coverage(y, lower, upper),
    }
