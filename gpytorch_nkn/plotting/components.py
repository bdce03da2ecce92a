"""Plots of the components of a series."""

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
    """Draw mean, 95 % interval and partial residuals of each component.

    Args:
        axes: One Axes per component, a sequence or an array of any shape, read row by row.
        components: At least one curve, such as ``decompose(...).curves()`` returns.
        x_label: Label of the lowest time axis, with its unit.
        y_label: Label of the value axes, with their unit.
        data_label: Name of the points in the legend above the first axes.
        mean_label: Name of the line in the legend, such as ``"median"`` with a target transform.

    Raises:
        TypeError: An entry of ``axes`` is not an Axes, or a vector has neither numbers nor dates.
        ValueError: ``components`` is empty, the number of axes differs, or the vectors of a
            component differ in length or are not finite.
    """
    flat = as_list_of_axes(axes, len(components), "component")
    for number, (ax, c) in enumerate(zip(flat, components, strict=True)):
        draw_curve(
            ax, c.x, c.mean, c.lower, c.upper,
            data=c.data, interval="95 % interval", label=mean_label, data_label=data_label,
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
