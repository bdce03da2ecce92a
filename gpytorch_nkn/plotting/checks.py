"""Checks of a model: observed curves with the interval that the model expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from gpytorch_nkn.plotting.style import (
    BLUE,
    DASHES,
    GRAY,
    ORANGE,
    as_array,
    as_vectors,
    draw_band,
    finish,
    put_legend_above,
    tick_percents,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_autocorrelation", "plot_calibration"]

_LEVEL, _Z95 = 0.95, 1.959964  # of all intervals, and their ends in standard deviations


def plot_autocorrelation(ax: Axes, values: ArrayLike, num_points: int) -> Axes:
    """Draw autocorrelations at the lags 1, 2, ... as stems, with their 95 % interval for noise.

    Args:
        ax: Axes to draw on.
        values: Autocorrelations ``L``.
        num_points: Number ``N`` of observations, which determines the interval.

    Returns:
        The same axes. Values outside the interval are orange diamonds.

    Raises:
        ValueError: There is no value, one is not finite, or there are no more points than lags.
    """
    observed = as_array("values", values)
    lags = np.arange(1.0, observed.size + 1)
    if num_points <= observed.size:
        raise ValueError(f"num_points must exceed the {observed.size} lags, got {num_points}.")
    half = _Z95 * np.sqrt((num_points - lags) / (num_points * (num_points + 2)))
    draw_band(ax, lags, -half, half, _LEVEL, color=GRAY)
    ax.vlines(lags, 0, observed, color=BLUE, linewidth=1, zorder=1.5)
    ax.axhline(0, color=GRAY, linewidth=0.8)
    return _draw_observed(ax, lags, observed, -half, half, ("lag", "autocorrelation"))


def plot_calibration(ax: Axes, levels: ArrayLike, coverage: ArrayLike, *, num_points: int) -> Axes:
    """Draw the fraction of observations inside central intervals against their probability.

    Args:
        ax: Axes to draw on.
        levels: Probabilities ``L`` of the intervals.
        coverage: Fractions ``L`` of the observations inside.
        num_points: Number of observations. It determines the range that contains all fractions of
            a calibrated model with a probability of 95 % (binomial quantiles, Bonferroni's bound)
            if its errors are independent; dependent errors, as of a forecast, scatter more.

    Returns:
        The same axes. Fractions outside the range are orange diamonds.

    Raises:
        ValueError: The lengths differ, there is no level, a value is not between 0 and 1, or
            ``num_points`` is below 1.
    """
    x, observed = as_vectors(levels=levels, coverage=coverage)
    for name, values in (("levels", x), ("coverage", observed)):
        if values.min() < 0 or values.max() > 1:
            raise ValueError(
                f"{name} must lie between 0 and 1, got {values.min():g} to {values.max():g}."
            )
    if num_points < 1:
        raise ValueError(f"num_points must be at least 1, got {num_points}.")
    tail = (1 - _LEVEL) / (2 * x.size)

    def ends(levels: np.ndarray) -> list[np.ndarray]:
        quantiles = (binom.ppf(q, num_points, levels) for q in (tail, 1 - tail))
        return [np.asarray(quantile) / num_points for quantile in quantiles]

    grid = np.linspace(0, 1, 201)
    low, high = ends(grid)
    draw_band(ax, grid, low, high, _LEVEL, color=GRAY)
    ax.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle=DASHES, label="calibrated")
    ax.plot(x, observed, color=BLUE, linewidth=1, alpha=0.6)
    labels = "probability of the interval", "fraction of the data inside"
    low, high = ends(x)
    _draw_observed(ax, x, observed, low, high, labels)
    for axis in (ax.xaxis, ax.yaxis):
        tick_percents(axis)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return ax


def _draw_observed(
    ax: Axes,
    x: np.ndarray,
    observed: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    labels: tuple[str, str],
) -> Axes:
    """Draw blue dots inside the interval and orange diamonds outside, with labels and legend."""
    outside = (observed < lower) | (observed > upper)
    looks: tuple[tuple[np.ndarray, dict[str, Any]], ...] = (
        (~outside, {"color": BLUE, "marker": "o", "markersize": 3.5, "label": "observed"}),
        (outside, {"color": ORANGE, "marker": "D", "markersize": 4.5, "label": "outside"}),
    )
    for chosen, look in looks:
        if chosen.any():
            ax.plot(x[chosen], observed[chosen], linestyle="none", markeredgewidth=0, **look)
    finish(ax, *labels)
    put_legend_above(ax)
    return ax
