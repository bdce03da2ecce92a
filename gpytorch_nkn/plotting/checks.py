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
    draw_band,
    finish,
    put_legend_above,
    sorted_vectors,
    tick_percents,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_autocorrelation", "plot_calibration", "plot_periodogram", "plot_qq"]

_LEVEL = 0.95  # of all intervals


def plot_qq(
    ax: Axes, theoretical: ArrayLike, observed: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> Axes:
    """Draw observed quantiles against model quantiles, with the model's 95 % interval.

    Args:
        ax: Axes to draw on.
        theoretical: Quantiles ``N`` under the model.
        observed: Sorted observations ``N``.
        lower: Lower ends ``N`` of the interval.
        upper: Upper ends ``N`` of the interval.

    Returns:
        The same axes. Points outside the interval are orange diamonds.

    Raises:
        ValueError: The lengths differ, there is no point, or a value is not finite.
    """
    x, observed, lower, upper = sorted_vectors(
        theoretical=theoretical, observed=observed, lower=lower, upper=upper
    )
    ax.plot(x, x, color=GRAY, linewidth=1, linestyle=DASHES, label="equal")
    labels = "quantile under the model", "observed quantile"
    return _draw_observed(ax, x, observed, lower, upper, labels)


def plot_autocorrelation(
    ax: Axes, lags: ArrayLike, observed: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> Axes:
    """Draw autocorrelations ``N`` as stems, with the model's 95 % interval.

    Arguments, result and errors are as in :func:`plot_qq`.
    """
    x, observed, lower, upper = sorted_vectors(
        lags=lags, observed=observed, lower=lower, upper=upper
    )
    _draw_observed(ax, x, observed, lower, upper, ("lag", "autocorrelation"))
    ax.vlines(x, 0, observed, color=BLUE, linewidth=1, zorder=1.5)
    ax.axhline(0, color=GRAY, linewidth=0.8)
    return ax


def plot_periodogram(
    ax: Axes,
    frequencies: ArrayLike,
    observed: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    x_label: str = "unit of time",
) -> Axes:
    """Draw a periodogram on a logarithmic scale, with the model's 95 % interval.

    Args:
        ax: Axes to draw on.
        frequencies: Positive frequencies ``N``, in cycles per unit.
        observed: Ordinates ``N``, not negative.
        lower: Lower ends ``N`` of the interval, not negative.
        upper: Upper ends ``N`` of the interval, positive.
        x_label: The unit of time in the singular, such as ``year``.

    Returns:
        The same axes. Ordinates outside the interval are orange diamonds.

    Raises:
        ValueError: The lengths differ, there is no frequency, or a value is out of range.
    """
    x, observed, lower, upper = sorted_vectors(
        frequencies=frequencies, observed=observed, lower=lower, upper=upper
    )
    for name, least in (("frequencies", x.min()), ("upper", upper.min())):
        if not least > 0:
            raise ValueError(f"{name} must be positive, got {least:g}.")
    for name, least in (("observed", observed.min()), ("lower", lower.min())):
        if least < 0:
            raise ValueError(f"{name} must not be negative, got {least:g}.")
    # zero has no logarithm: it goes to the lower edge
    floor = min(values[values > 0].min() for values in (observed, lower, upper) if values.any())
    lower, observed = lower.clip(floor), observed.clip(floor)
    ax.plot(x, observed, color=BLUE, linewidth=0.8, alpha=0.6)
    ax.set_yscale("log")
    labels = f"frequency (cycles per {x_label})", "power"
    _draw_observed(ax, x, observed, lower, upper, labels)
    ax.set_xlim(0, 1.02 * x.max())
    return ax


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
    x, observed = sorted_vectors(levels=levels, coverage=coverage)
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
    _draw_observed(ax, x, observed, low, high, labels, has_band=True)
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
    has_band: bool = False,
) -> Axes:
    """Draw blue dots inside the interval and orange diamonds outside, with labels and legend."""
    if not has_band:
        draw_band(ax, x, lower, upper, _LEVEL, color=GRAY)
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
