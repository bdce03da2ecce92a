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


def plot_effects(
    axes: Given, effects: Sequence[Any], *, y_label: str = "value", share_y: bool = True
) -> Given:
    """Draw effects of one column as a curve with its band, those of two as filled contours.

    Categories have a point with its interval each, and cells in place of contours.
    Contours have a colour bar of their own, symmetric around zero. The title tells the share of
    the variance; below half a percent it is estimated no better than "about 0 %".

    Args:
        axes: One Axes per effect, a sequence or an array of any shape, read row by row.
        effects: At least one, such as ``effects(...).main``. Each has a ``label`` (its title), one
            or two ``names`` of input columns, a ``grid`` of one vector of positions per name (``A``
            and ``B``), posterior ``mean``, ``lower`` and ``upper`` ends of the band (``A``, or
            ``A x B``; the band is drawn for one column only), ``data`` (positions ``N``, of two
            columns ``N x 2``, and values ``N``; None for none; of two columns the positions only
            are drawn) and the ``share`` of the variance that it explains, a fraction of 1. Where a
            grid holds codes of categories, ``levels`` has their names: of each column a sequence,
            or None for one of numbers. It may be missing.
        y_label: Label of the effects, with their unit.
        share_y: Give the curves the same vertical limits, so that no effect looks like none.

    Returns:
        The same axes.

    Raises:
        TypeError: Something in ``axes`` is not an Axes, or an array holds no numbers.
        ValueError: There is no effect, the number of axes is not that of the effects, an effect
            has not one or two columns, a shape is wrong, or a value is not finite.
    """
    if len(effects) == 0:
        raise ValueError("At least one effect is needed, got none.")
    flat = as_list_of_axes(axes, len(effects), "effect")
    curves = []
    for number, (ax, effect) in enumerate(zip(flat, effects, strict=True)):
        prefix = f"effects[{number}]."
        if len(effect.names) not in (1, 2) or len(effect.grid) != len(effect.names):
            raise ValueError(
                f"An effect has one or two columns and a grid for each, got {prefix}names = "
                f"{effect.names!r} and {len(effect.grid)} grids."
            )
        share = as_array(f"{prefix}share", effect.share, ndim=0)
        if len(effect.names) == 1:
            _draw_curve(ax, effect, prefix, y_label)
            curves.append(ax)
        else:
            _draw_contours(ax, effect, prefix, y_label)
        put_title(ax, f"{effect.label} ({_percent(float(share))})")
    if share_y and len(curves) > 1:
        limits = np.array([ax.get_ylim() for ax in curves])
        for ax in curves:
            ax.set_ylim(limits.min(), limits.max())
    return axes


def _percent(share: float) -> str:
    return "about 0 %" if abs(share) < _ABOUT_ZERO else f"{100 * share:.1f} %"


def _draw_curve(ax: Axes, effect: Any, prefix: str, y_label: str) -> None:
    grid, mean, lower, upper = sorted_vectors(
        **{
            f"{prefix}grid[0]": effect.grid[0],
            f"{prefix}mean": effect.mean,
            f"{prefix}lower": effect.lower,
            f"{prefix}upper": effect.upper,
        }
    )
    (levels,) = _levels(effect, prefix)
    if levels is None:
        draw_band(ax, grid, lower, upper)
        ax.plot(grid, mean, color=BLUE, linewidth=1.5, zorder=3)
    else:
        draw_levels(ax, levels, mean, lower, upper)
    ax.axhline(0, color=GRAY, linewidth=0.6)
    if effect.data is not None:
        x, y = effect.data
        x, y = as_vectors(**{f"{prefix}data[0]": x, f"{prefix}data[1]": y})
        if levels is not None:
            x = level_places(f"{prefix}data[0]", x, grid) + 0.35  # beside the intervals
        draw_points(ax, x, y, color=GRAY)
    finish(ax, effect.names[0], y_label)
    if levels is None:
        keep_ticks_whole(ax, "x", grid)
        label_dates(ax, grid)
        ax.margins(x=0.01)


def _levels(effect: Any, prefix: str) -> tuple[Sequence[str] | None, ...]:
    """Names of the positions of each column, in the order of their codes; None for numbers."""
    given = getattr(effect, "levels", None) or (None,) * len(effect.names)
    if len(given) != len(effect.names):
        raise ValueError(
            f"{prefix}levels must have an entry for each of {len(effect.names)} columns, got "
            f"{len(given)}."
        )
    pairs = zip(given, effect.grid, strict=True)
    return tuple(sorted_levels(f"{prefix}levels", *pair) for pair in pairs)


def _draw_contours(ax: Axes, effect: Any, prefix: str, y_label: str) -> None:
    first, second = (as_array(f"{prefix}grid[{i}]", g) for i, g in enumerate(effect.grid))
    if min(first.size, second.size) < 2:
        raise ValueError(
            f"Contours need at least two positions in each column, got {prefix}grid of "
            f"{first.size} and {second.size}."
        )
    shape = (first.size, second.size)
    mean = as_array(f"{prefix}mean", effect.mean, ndim=2, shape=shape)
    for name, values in (("lower", effect.lower), ("upper", effect.upper)):
        as_array(f"{prefix}{name}", values, ndim=2, shape=shape)
    columns, rows = np.argsort(first, kind="stable"), np.argsort(second, kind="stable")
    largest = np.abs(mean).max() or 1.0
    levels = _levels(effect, prefix)
    grids = first[columns], second[rows]
    x, y = (g if n is None else np.arange(g.size) for g, n in zip(grids, levels, strict=True))
    table = mean[columns][:, rows].T
    drawn: Any
    if levels == (None, None):
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
    add_bar(ax, drawn, label=y_label, ticks=_bar_ticks(largest))
    if effect.data is not None:
        positions = as_array(f"{prefix}data[0]", effect.data[0], ndim=2)
        if positions.shape[1] != 2:
            raise ValueError(f"{prefix}data[0] must be N x 2, got shape {positions.shape}.")
        as_array(f"{prefix}data[1]", effect.data[1], shape=positions.shape[:1])
        x, y = (
            own if names is None else level_places(f"{prefix}data[0]", own, grid)
            for own, names, grid in zip(positions.T, levels, grids, strict=True)
        )
        draw_points(ax, x, y, color=GRAY)
    ax.set_xlabel(effect.names[0])
    ax.set_ylabel(effect.names[1])


def _bar_ticks(largest: float) -> np.ndarray:
    from matplotlib.ticker import MaxNLocator

    ticks = np.asarray(MaxNLocator(5, symmetric=True).tick_values(-largest, largest))
    return ticks[np.abs(ticks) <= largest * (1 + 1e-9)]
