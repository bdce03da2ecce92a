"""Components of a series, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gpytorch_nkn.plotting.style import (
    DASHES,
    as_array,
    as_list_of_axes,
    draw_curve,
    finish,
    put_legend_above,
    put_title,
)

__all__ = ["plot_components"]

Given = TypeVar("Given")


def plot_components(
    axes: Given,
    components: Sequence[Any],
    *,
    x_label: str = "time",
    y_label: str = "value",
    data_label: str = "partial residuals",
    mean_label: str = "mean",
) -> Given:
    """Draw the mean, the 95 % interval and the partial residuals of every component.

    Args:
        axes: One Axes per component, a sequence or an array of any shape, read row by row.
        components: At least one, with the attributes of ``decompose(...).curves()``.
        x_label: Label of the lowest time axes, with its unit.
        y_label: Label of the value axes, with its unit.
        data_label: Name of the points in the legend, which stands above the first axes.
        mean_label: Name of the line there, such as ``"median"`` of transformed data.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or a vector holds no numbers or dates.
        ValueError: There is no component, the number of axes is another, or the vectors of a
            component differ in length or are not finite.
    """
    flat = as_list_of_axes(axes, len(components), "component")
    for number, (ax, component) in enumerate(zip(flat, components, strict=True)):
        c = component
        draw_curve(
            ax, c.x, c.mean, c.lower, c.upper,
            data=c.data, band="95 % interval", label=mean_label, data_label=data_label,
        )  # fmt: skip
        if c.boundary is not None:
            boundary: Any = as_array("boundary", c.boundary, ndim=0)
            ax.axvline(boundary[()], color="black", linewidth=0.8, linestyle=DASHES)
        place = ax.get_subplotspec()
        finish(ax, x_label if place is None or place.is_last_row() else "", y_label)
        height = 6.0 if number else put_legend_above(ax, [data_label, mean_label])
        if c.label:
            put_title(ax, c.label, height=height)
    return axes
