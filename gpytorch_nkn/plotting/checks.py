"""Plots of model checks: observations, and intervals expected under the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from gpytorch_nkn.linalg import check_counts
from gpytorch_nkn.plotting.style import (
    BLUE,
    DASHES,
    GRAY,
    ORANGE,
    as_vectors,
    draw_interval,
    finish,
    put_legend_above,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_observed", "plot_calibration"]

_LEVEL = 0.95  # probability of intervals


def plot_calibration(
    ax: Axes,
    levels: ArrayLike,
    coverage: ArrayLike,
    *,
    num_points: int,
    labels: tuple[str, str] = ("probability of the interval", "fraction of the data inside"),
) -> Axes:
    """Draw the coverage of central intervals against their probability.

    Args:
        ax: Axes to draw on.
        levels: Probabilities ``L`` of the intervals.
        coverage: Fractions ``L`` of observations inside the intervals.
        num_points: Number of observations, which determines the expected range. This range contains
            all fractions of a calibrated model with independent errors with 95 % probability
            (binomial quantiles, Bonferroni's bound). Fractions vary more if errors are dependent.
        labels: Labels of the horizontal and of the vertical axis.

    Returns:
        The same axes, with fractions outside the range as orange diamonds.

    Raises:
        ValueError: The lengths differ, ``levels`` is empty, a value is not between 0 and 1, or
            ``num_points`` is below 1.
    """
    x, observed = as_vectors(levels=levels, coverage=coverage)
    for name, values in (("levels", x), ("coverage", observed)):
        if values.min() < 0 or values.max() > 1:
            raise ValueError(
                f"{name} must lie between 0 and 1, got {values.min():g} to {values.max():g}."
            )
    check_counts(1, num_points=num_points)
    tail = (1 - _LEVEL) / (2 * x.size)

    def ends(levels: np.ndarray) -> list[np.ndarray]:
        quantiles = (binom.ppf(q, num_points, levels) for q in (tail, 1 - tail))
        return [np.asarray(quantile) / num_points for quantile in quantiles]

    grid = np.linspace(0, 1, 201)
    low, high = ends(grid)
    draw_interval(ax, grid, low, high, _LEVEL, color=GRAY)
    ax.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle=DASHES, label="calibrated")
    ax.plot(x, observed, color=BLUE, linewidth=1, alpha=0.6)
    low, high = ends(x)
    draw_observed(ax, x, observed, low, high, labels)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:.0%}")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return ax


def draw_observed(
    ax: Axes,
    x: np.ndarray,
    observed: np.ndarray,
    lower: np.ndarray | float,
    upper: np.ndarray | float,
    labels: tuple[str, str],
    inside: str = "observed",
) -> Axes:
    """Draw values, blue dots inside the interval and orange diamonds outside, and a legend."""
    outside = (observed < lower) | (observed > upper)
    looks: tuple[tuple[np.ndarray, dict[str, Any]], ...] = (
        (~outside, {"color": BLUE, "marker": "o", "markersize": 3.5, "label": inside}),
        (outside, {"color": ORANGE, "marker": "D", "markersize": 4.5, "label": "outside"}),
    )
    for chosen, look in looks:
        if chosen.any():
            ax.plot(x[chosen], observed[chosen], linestyle="none", markeredgewidth=0, **look)
    finish(ax, *labels)
    put_legend_above(ax)
    return ax
