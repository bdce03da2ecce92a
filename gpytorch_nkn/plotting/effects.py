"""Plots of effects of one or two input columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpytorch_nkn.plotting.style import (
    GRAY,
    add_bar,
    as_array,
    as_list_of_axes,
    draw_curve,
    finish,
    label_dates,
    label_levels,
    put_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effects"]

Given = TypeVar("Given")

_COLORS = "PuOr_r"  # diverging colour map, suitable for colour-blind readers
_ABOUT_ZERO = 0.005  # fraction of variance below which the estimation error dominates


def plot_effects(axes: Given, effects: Sequence[Any], *, y_label: str = "value") -> Given:
    """Draw main effects as curves with intervals, and interactions as coloured surfaces.

    Curves have the same vertical limits. Categories are drawn as points with intervals, or as
    uniform cells of a surface. The title states the fraction of variance.

    Args:
        axes: One Axes per effect, a sequence or an array of any shape, read row by row.
        effects: At least one effect, such as ``effects(...).main``, with the attributes of an
            :class:`~gpytorch_nkn.interpretation.Effect`; ``levels`` may be missing. Grids must
            increase.
        y_label: Label of the effects, with their unit.

    Raises:
        TypeError: An entry of ``axes`` is not an Axes, or an array is not numerical.
        ValueError: ``effects`` is empty, or the number of axes differs. An effect does not have one
            or two columns, a shape is wrong, or a value is not finite.
    """
    flat = as_list_of_axes(axes, len(effects), "effect")
    curves = []
    for ax, effect in zip(flat, effects, strict=True):
        if len(effect.names) not in (1, 2) or len(effect.grid) != len(effect.names):
            raise ValueError(
                "An effect must have one or two columns and a grid for each, got names = "
                f"{effect.names!r} and {len(effect.grid)} grids."
            )
        share = float(as_array("share", effect.share, ndim=0))
        levels = getattr(effect, "levels", None) or (None,) * len(effect.names)
        if len(effect.names) == 1:
            _draw_curve(ax, effect, levels[0], y_label)
            curves.append(ax)
        else:
            _draw_surface(ax, effect, levels, y_label)
        text = "about 0 %" if abs(share) < _ABOUT_ZERO else f"{100 * share:.1f} %"
        put_title(ax, f"{effect.label} ({text})")
    limits = np.array([ax.get_ylim() for ax in curves])
    for ax in curves:
        ax.set_ylim(limits.min(), limits.max())
    return axes


def _draw_curve(ax: Axes, effect: Any, levels: Sequence[str] | None, y_label: str) -> None:
    curve = effect.grid[0], effect.mean, effect.lower, effect.upper
    draw_curve(ax, *curve, levels, data=effect.data)
    ax.axhline(0, color=GRAY, linewidth=0.6)
    finish(ax, effect.names[0], y_label)


def _draw_surface(ax: Axes, effect: Any, levels: Sequence[Any], y_label: str) -> None:
    from matplotlib.ticker import MaxNLocator
    from mpl_toolkits.axes_grid1 import make_axes_locatable

    first, second = (as_array("grid", grid) for grid in effect.grid)
    if min(first.size, second.size) < 2:
        raise ValueError(
            "Surfaces need at least two positions per column, got a grid of "
            f"{first.size} and {second.size}."
        )
    mean = as_array("mean", effect.mean, ndim=2, shape=(first.size, second.size))
    largest = np.abs(mean).max() or 1.0
    x, y = (
        grid if names is None else np.arange(grid.size)
        for grid, names in zip((first, second), levels, strict=True)
    )  # fmt: skip
    ax.grid(False)
    shading: Any = "gouraud" if tuple(levels) == (None, None) else "nearest"
    limits: Any = {"vmin": -largest, "vmax": largest, "cmap": _COLORS, "rasterized": True}
    drawn = ax.pcolormesh(x, y, mean.T, shading=shading, **limits)
    ax.xaxis.set_major_locator(MaxNLocator(3))  # the bar leaves little width
    label_dates(ax, x)
    for axis, names in zip((ax.xaxis, ax.yaxis), levels, strict=True):
        if names is not None:
            label_levels(axis, names)
    divider = make_axes_locatable(ax)  # within the panel, so that other panels keep their width
    bar = divider.append_axes("right", 0.1, pad=0.08)
    divider.new_horizontal(0.6)  # for the labels of the bar
    add_bar(ax, drawn, cax=bar, label=y_label, ticks=MaxNLocator(5))
    ax.set(xlabel=effect.names[0], ylabel=effect.names[1])
