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
    level: float = 0.95,
    x_label: str = "time",
    y_label: str = "value",
    data_label: str = "data less the other parts",
) -> Given:
    """Draw the mean, the band and the partial residuals of every component.

    The legend stands above the first axes, and times are named below the lowest ones only.

    Args:
        axes: One Axes per component, a sequence or an array of any shape, read row by row.
        components: At least one, such as ``decompose(...).curves()``. Each has a ``label`` (its
            title), times ``x`` (``M``, numbers or ``datetime64``, in any order), posterior
            ``mean``, ``lower`` and ``upper`` ends of the band (``M``), ``data`` (times ``N`` and
            partial residuals ``N``, the points that it explains; None for none) and ``boundary``
            (the time where the training data end; None for no line).
        level: Probability of the bands, for the legend.
        x_label: Label of the time axes, with its unit.
        y_label: Label of the value axes, with its unit.
        data_label: What the points are, for the legend.

    Returns:
        The same axes.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or a vector holds no numbers or dates.
        ValueError: There is no component, the number of axes is not that of the components, or
            the vectors of a component differ in length or are not finite.
    """
    if len(components) == 0:
        raise ValueError("At least one component is needed, got none.")
    flat = as_list_of_axes(axes, len(components), "component")
    for number, (ax, component) in enumerate(zip(flat, components, strict=True)):
        _draw(ax, component, number, level, data_label)
        finish(ax, x_label if _is_lowest(ax, flat) else "", y_label)
        ax.margins(x=0.01)
        if number:
            put_title(ax, component.label)
    has_data = [component.data is not None for component in components]
    if any(has_data) and not has_data[0]:  # the legend tells what the other axes show, too
        draw_points(flat[0], np.empty(0), np.empty(0), color=GRAY, label=data_label)
    height = put_legend_above(flat[0], [data_label, "mean"])
    put_title(flat[0], components[0].label, height=height)
    return axes


def _draw(ax: Axes, component: Any, number: int, level: float, data_label: str) -> None:
    prefix = f"components[{number}]."
    x, mean, lower, upper = sorted_vectors(
        **{f"{prefix}{name}": getattr(component, name) for name in ("x", "mean", "lower", "upper")}
    )
    draw_band(ax, x, lower, upper, level)
    ax.plot(x, mean, color=BLUE, linewidth=1.4, label="mean", zorder=3)
    if component.data is not None:
        times, residuals = component.data
        points = as_vectors(**{f"{prefix}data[0]": times, f"{prefix}data[1]": residuals})
        draw_points(ax, *points, color=GRAY, label=data_label)
    if component.boundary is not None:
        boundary: Any = as_array(f"{prefix}boundary", component.boundary, ndim=0)
        ax.axvline(boundary[()], color="black", linewidth=0.8, linestyle=DASHES)
    label_dates(ax, x)


def _is_lowest(ax: Axes, axes: list[Axes]) -> bool:
    """Whether none of the axes stands below this one in the same grid."""
    spec = ax.get_subplotspec()
    if spec is None:
        return True
    for other in axes:
        below = other.get_subplotspec()
        if below is None or below.get_gridspec() is not spec.get_gridspec():
            continue
        shares_columns = set(below.colspan) & set(spec.colspan)
        if shares_columns and below.rowspan.start >= spec.rowspan.stop:
            return False
    return True
