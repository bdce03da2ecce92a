"""Effects of one or two input columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpytorch_nkn.plotting.style import (
    BLUE,
    GRAY,
    add_bar,
    as_array,
    as_list_of_axes,
    as_vectors,
    draw_band,
    draw_levels,
    draw_points,
    finish,
    keep_ticks_whole,
    label_dates,
    label_levels,
    level_places,
    put_title,
    sorted_levels,
    sorted_vectors,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_effects"]

Given = TypeVar("Given")

_COLORS = "PuOr_r"  # diverging, and told apart by eyes of any kind
_ABOUT_ZERO = 0.005  # shares are estimates, which may even be negative
_LEVELS = 18  # contours; an even number, so that zero lies in the middle of a colour


def plot_effects(axes: Given, effects: Sequence[Any], *, y_label: str = "value") -> Given:
    """Draw effects of one column as a curve with its band, those of two as filled contours.

    Curves have the same vertical limits. Categories have a point with its interval each, and cells
    in place of contours. The title has the share of the variance.

    Args:
        axes: One Axes per effect, a sequence or an array of any shape, read row by row.
        effects: At least one, such as ``effects(...).main``. Each has a ``label`` (its title), one
            or two ``names`` of input columns, a ``grid`` of one vector of positions per name (``A``
            and ``B``), posterior ``mean`` (``A``, or ``A x B``), for one column ``lower`` and
            ``upper`` ends of the band and ``data`` (positions ``N`` and values ``N``, or None),
            and the ``share`` of the variance that it explains, a fraction of 1. Where a grid holds
            codes of categories, ``levels`` has their names: of each column a sequence, or None for
            one of numbers. It may be missing.
        y_label: Label of the effects, with their unit.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or an array holds no numbers.
        ValueError: There is no effect, the number of axes is not that of the effects, an effect
            has not one or two columns, a shape is wrong, or a value is not finite.
    """
    flat = as_list_of_axes(axes, len(effects), "effect")
    curves = []
    for ax, effect in zip(flat, effects, strict=True):
        if len(effect.names) not in (1, 2) or len(effect.grid) != len(effect.names):
            raise ValueError(
                "An effect has one or two columns and a grid for each, got names = "
                f"{effect.names!r} and {len(effect.grid)} grids."
            )
        share = float(as_array("share", effect.share, ndim=0))
        given = getattr(effect, "levels", None) or (None,) * len(effect.names)
        levels = [sorted_levels(*pair) for pair in zip(given, effect.grid, strict=True)]
        if len(effect.names) == 1:
            _draw_curve(ax, effect, levels[0], y_label)
            curves.append(ax)
        else:
            _draw_contours(ax, effect, levels, y_label)
        text = "about 0 %" if abs(share) < _ABOUT_ZERO else f"{100 * share:.1f} %"
        put_title(ax, f"{effect.label} ({text})")
    limits = np.array([ax.get_ylim() for ax in curves])
    for ax in curves:
        ax.set_ylim(limits.min(), limits.max())
    return axes


def _draw_curve(ax: Axes, effect: Any, levels: Sequence[str] | None, y_label: str) -> None:
    grid, mean, lower, upper = sorted_vectors(
        grid=effect.grid[0], mean=effect.mean, lower=effect.lower, upper=effect.upper
    )
    if levels is None:
        draw_band(ax, grid, lower, upper)
        ax.plot(grid, mean, color=BLUE, linewidth=1.5, zorder=3)
    else:
        draw_levels(ax, levels, mean, lower, upper)
    ax.axhline(0, color=GRAY, linewidth=0.6)
    if effect.data is not None:
        x, y = as_vectors(positions=effect.data[0], values=effect.data[1])
        if levels is not None:
            x = level_places("positions", x, grid) + 0.35  # beside the intervals
        draw_points(ax, x, y, color=GRAY)
    finish(ax, effect.names[0], y_label)
    if levels is None:
        keep_ticks_whole(ax, "x", grid)
        label_dates(ax, grid)
        ax.margins(x=0.01)


def _draw_contours(ax: Axes, effect: Any, levels: list[list[str] | None], y_label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    first, second = (as_array("grid", grid) for grid in effect.grid)
    if min(first.size, second.size) < 2:
        raise ValueError(
            "Contours need at least two positions in each column, got a grid of "
            f"{first.size} and {second.size}."
        )
    mean = as_array("mean", effect.mean, ndim=2, shape=(first.size, second.size))
    columns, rows = np.argsort(first, kind="stable"), np.argsort(second, kind="stable")
    largest = np.abs(mean).max() or 1.0
    grids = first[columns], second[rows]
    x, y = (g if n is None else np.arange(g.size) for g, n in zip(grids, levels, strict=True))
    table = mean[columns][:, rows].T
    drawn: Any
    ax.grid(False)
    if levels == [None, None]:
        steps = np.linspace(-largest, largest, _LEVELS)
        drawn = ax.contourf(x, y, table, levels=steps, cmap=_COLORS)
        drawn.set_edgecolor("face")  # or white lines show between the levels of a PDF
    else:
        limits: Any = {"vmin": -largest, "vmax": largest, "cmap": _COLORS, "rasterized": True}
        drawn = ax.pcolormesh(x, y, table, shading="nearest", **limits)
    for axis, names, places in zip("xy", levels, grids, strict=True):
        if names is None:
            keep_ticks_whole(ax, axis, places)
        else:
            label_levels(getattr(ax, f"{axis}axis"), names)
    add_bar(ax, drawn, label=y_label, ticks=MaxNLocator(5))
    ax.set(xlabel=effect.names[0], ylabel=effect.names[1])
