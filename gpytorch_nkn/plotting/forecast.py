"""Plot of a forecast with the training data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import (
    BLUE,
    DASHES,
    GRAY,
    ORANGE,
    as_array,
    as_numpy,
    as_vectors,
    draw_interval,
    draw_points,
    finish,
    label_dates,
    put_legend_above,
    put_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_forecast"]


def plot_forecast(
    ax: Axes,
    x: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike] | None = None,
    level: float | Sequence[float] = 0.95,
    x_label: str = "time",
    y_label: str = "value",
    title: str = "",
) -> Axes:
    """Draw training data, held-out data, and a forecast with its intervals.

    Args:
        ax: Axes to draw on.
        x: Times ``M`` of the forecast, numbers or dates, sorted. Dates with a time zone are drawn
            as local times.
        mean: Means or medians ``M``.
        lower: Lower ends ``M`` of the prediction interval, or ``L x M`` of several intervals.
        upper: Upper ends, of the same shape.
        train: Training times and values ``N``.
        test: Held-out times and values ``T``.
        level: Probability of the interval, or ``L`` probabilities, for the legend.
        x_label: Label of the time axis, with its unit.
        y_label: Label of the value axis, with its unit.
        title: Title, above the legend.

    Raises:
        TypeError: An argument holds neither numbers nor dates.
        ValueError: Lengths differ, ``x`` or the training data are empty or not finite, or a level
            is not between 0 and 1.
    """
    x, mean = as_array("x", x), as_array("mean", mean, finite=False)
    lower, upper = (
        np.atleast_2d(as_array(name, ends, ndim=np.ndim(ends), finite=False))
        for name, ends in (("lower", lower), ("upper", upper))
    )
    levels = np.ravel(level).tolist()
    if not all(0 < probability < 1 for probability in levels):
        raise ValueError(f"level must hold probabilities between 0 and 1, got {level}.")
    train_x, train_y = as_vectors(train_times=train[0], train_values=train[1])
    if x.shape != mean.shape or not (len(levels), *x.shape) == lower.shape == upper.shape:
        raise ValueError(
            "x, mean, lower and upper must be vectors of equal length, lower and upper with a row "
            f"per level, got shapes {x.shape}, {mean.shape}, {lower.shape} and {upper.shape} for "
            f"{len(levels)} levels."
        )
    if x.size == 1:  # draw a single point as a line of half a step
        moments = x.astype("datetime64[ms]") if x.dtype.kind == "M" else x
        steps = np.diff(np.unique(train_x.astype(moments.dtype)))
        side = steps[-1:] / 4 if steps.size else np.zeros(1)
        x = np.concatenate([moments - side, moments + side])
        mean, lower, upper = mean.repeat(2), lower.repeat(2, axis=1), upper.repeat(2, axis=1)
    for depth, k in enumerate(np.argsort(levels)[::-1]):  # widest interval first
        draw_interval(ax, x, lower[k], upper[k], levels[k], depth=depth)
    ax.plot(x, mean, color=BLUE, linewidth=1.4, label="forecast", zorder=3)
    draw_points(ax, train_x, train_y, color=GRAY, label="training data", front=True)
    boundary = train_x.max()
    if test is not None:
        test_x, test_y = (as_numpy(values) for values in test)
        draw_points(ax, test_x, test_y, color=ORANGE, label="held-out data", front=True)
        if test_x.size and test_x.min() > boundary:
            boundary = boundary + (test_x.min() - boundary) / 2
    ax.axvline(boundary, color="black", linewidth=0.8, linestyle=DASHES)
    label_dates(ax, train_x)
    finish(ax, x_label, y_label)
    ax.margins(x=0.01)
    height = put_legend_above(ax, ["training data", "held-out data", "forecast"])
    if title:
        put_title(ax, title, height=height)
    return ax
