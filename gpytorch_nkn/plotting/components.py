"""The parts that a series is the sum of, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpytorch_nkn.plotting.style import (
    BLUE,
    DASHES,
    GRAY,
    as_array,
    as_list_of_axes,
    as_vectors,
    draw_band,
    draw_points,
    finish,
    label_dates,
    put_legend_above,
    put_title,
    sorted_vectors,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_components"]

Given = TypeVar("Given")


def plot_components(
    axes: Given,
    components: Sequence[Any],
    *,
    x_label: str = "time",
    y_label: str = "value",
    data_label: str = "data less the other parts",
) -> Given:
    """Draw the mean, the 95 % band and the partial residuals of every component.

    Args:
        axes: One Axes per component, a sequence or an array of any shape, read row by row.
        components: At least one, such as ``decompose(...).curves()``, with these attributes.
        x_label: Label of the lowest time axes, with its unit.
        y_label: Label of the value axes, with its unit.
        data_label: Name of the points in the legend, which stands above the first axes.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or a vector holds no numbers or dates.
        ValueError: There is no component, the number of axes is not that of the components, or
            the vectors of a component differ in length or are not finite.
    """
    flat = as_list_of_axes(axes, len(components), "component")
    for number, (ax, component) in enumerate(zip(flat, components, strict=True)):
        _draw(ax, component, data_label)
        place = ax.get_subplotspec()
        finish(ax, x_label if place is None or place.is_last_row() else "", y_label)
        ax.margins(x=0.01)
        height = 6.0 if number else put_legend_above(ax, [data_label, "mean"])
        if component.label:
            put_title(ax, component.label, height=height)
    return axes


def _draw(ax: Axes, component: Any, data_label: str) -> None:
    x, mean, lower, upper = sorted_vectors(
        x=component.x, mean=component.mean, lower=component.lower, upper=component.upper
    )
    draw_band(ax, x, lower, upper, 0.95)
    ax.plot(x, mean, color=BLUE, linewidth=1.4, label="mean", zorder=3)
    times, residuals = ([], []) if component.data is None else component.data
    if len(times):
        times, residuals = as_vectors(times=times, residuals=residuals)
    draw_points(ax, np.asarray(times), np.asarray(residuals), color=GRAY, label=data_label)
    if component.boundary is not None:
        boundary: Any = as_array("boundary", component.boundary, ndim=0)
        ax.axvline(boundary[()], color="black", linewidth=0.8, linestyle=DASHES)
    label_dates(ax, x)
