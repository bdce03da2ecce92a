"""Colours, argument checks, markers and labels that plots share."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLUE",
    "DASHES",
    "GRAY",
    "ORANGE",
    "PALETTE",
    "STYLE",
    "add_bar",
    "as_array",
    "as_list_of_axes",
    "as_numpy",
    "as_vectors",
    "draw_curve",
    "draw_interval",
    "draw_points",
    "finish",
    "label_dates",
    "label_levels",
    "put_legend_above",
    "put_title",
    "size_in_points",
]

STYLE = "gpytorch_nkn.plotting.gpytorch_nkn"  # name of the style sheet
PALETTE = ("#1f5fa8", "#d1580b", "#2a9d78", "#b3649b", "#e0a100", "#5ab4e0")  # its colours
BLUE, ORANGE, GRAY = *PALETTE[:2], "#404040"
DASHES = (0, (4, 3))
_LEGEND_SIZE, _TITLE_SIZE = 9.5, 10.5
_LEVEL = 14  # largest number of characters in the name of a category
_NAMES, _LETTER = 12, 8.0  # largest number of category names, and width of a letter in points
_FEW_POINTS = 250  # largest number of distinguishable markers


def as_array(
    name: str, values: Any, *, ndim: int = 1, shape: tuple[int, ...] = (), finite: bool = True
) -> np.ndarray:
    """Convert an array, a tensor or a list to a NumPy array of numbers or dates, and check it.

    An empty ``shape`` permits any shape with ``ndim`` dimensions.
    """
    array = as_numpy(values)
    if array.dtype.kind not in "biufM":
        raise TypeError(f"{name} must hold real numbers or dates, got dtype {array.dtype}.")
    if shape and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
    if array.ndim != ndim or array.size == 0:
        kind = "a vector" if ndim == 1 else f"an array of {ndim} dimensions"
        raise ValueError(f"{name} must be {kind} with at least one entry, got shape {array.shape}.")
    bad = np.isnat(array) if array.dtype.kind == "M" else ~np.isfinite(array)
    if finite and bad.any():
        raise ValueError(f"{name} must be finite, got NaN or infinite values: {bad.sum()}.")
    return array if array.dtype.kind in "fM" else array.astype(float)


def as_numpy(values: Any) -> np.ndarray:
    """Convert an array, a tensor or a list to a NumPy array, and its dates to ``datetime64``.

    Dates with a time zone become local times, and periods become their starts.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype == object and array.size:
        import pandas as pd

        kind, flat = pd.api.types.infer_dtype(array.ravel()), array.ravel()
        if kind == "period":
            array = pd.PeriodIndex(flat).to_timestamp().to_numpy().reshape(array.shape)
        elif kind in ("date", "datetime", "datetime64"):
            array = pd.DatetimeIndex(flat).tz_localize(None).to_numpy().reshape(array.shape)
    return array


def as_vectors(**named: Any) -> list[np.ndarray]:
    """Convert arguments to vectors of equal length by :func:`as_array`."""
    vectors = [as_array(name, values) for name, values in named.items()]
    if len({vector.shape for vector in vectors}) > 1:
        shapes = ", ".join(f"{n} {v.shape}" for n, v in zip(named, vectors, strict=True))
        raise ValueError(f"Vectors must have equal lengths, got shapes {shapes}.")
    return vectors


def as_list_of_axes(axes: Any, count: int, item: str) -> list[Axes]:
    """Return a flat list of ``count`` Axes, given one Axes, a sequence or an array."""
    from matplotlib.axes import Axes

    if count == 0:
        raise ValueError(f"At least one {item} is needed, got none.")
    flat = list(np.ravel(np.asarray(axes, dtype=object)))
    others = [type(ax).__name__ for ax in flat if not isinstance(ax, Axes)]
    if others:
        raise TypeError(f"axes must be matplotlib Axes, got {', '.join(others)}.")
    if len(flat) != count:
        raise ValueError(f"axes must hold one Axes per {item}, {count} in all, got {len(flat)}.")
    return flat


def draw_interval(
    ax: Axes,
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    level: float,
    *,
    color: str = BLUE,
    depth: int = 0,
) -> None:
    """Fill an interval between two curves; nested intervals (larger ``depth``) are darker."""
    alpha = (0.22 if color == BLUE else 0.16) * (1 + 0.6 * depth)
    label = f"{100 * level:g} % interval"
    ax.fill_between(x, lower, upper, color=color, alpha=alpha, linewidth=0, label=label)


def draw_curve(
    ax: Axes,
    x: Any,
    mean: Any,
    lower: Any,
    upper: Any,
    levels: Sequence[str] | None = None,
    *,
    data: Any = None,
    interval: str = "_interval",
    label: str = "_mean",
    data_label: str = "_data",
    marker: str = "",
) -> np.ndarray:
    """Draw a mean ``A`` with its interval, or for categories points with intervals, and data.

    ``levels`` has the names of the sorted category codes ``x``, and ``data`` has positions and
    values ``N``. Return ``x``.
    """
    x, mean, lower, upper = as_vectors(x=x, mean=mean, lower=lower, upper=upper)
    if levels is None:
        ax.fill_between(x, lower, upper, color=BLUE, alpha=0.22, linewidth=0, label=interval)
        style: Any = {"linewidth": 1.5, "marker": marker, "markersize": 3.2, "zorder": 3}
        ax.plot(x, mean, color=BLUE, label=label, **style)
        ax.margins(x=0.01)
        label_dates(ax, x)
    else:
        at = np.arange(len(levels))
        size = min(4.0, 100 / len(levels))
        ax.vlines(at, lower, upper, label=interval, color=BLUE, alpha=0.3, linewidth=size)
        ax.plot(at, mean, "o", color=BLUE, markersize=size, zorder=3, label=label)
        ax.set_xlim(-0.5, len(levels) - 0.5)
        label_levels(ax.xaxis, levels)
    if data is not None and len(data[0]):
        positions, values = as_vectors(positions=data[0], values=data[1])
        if levels is not None:
            positions = np.searchsorted(x, positions) + 0.35  # draw data beside the intervals
        draw_points(ax, positions, values, color=GRAY, label=data_label)
    return x


def label_levels(axis: Any, levels: Sequence[str]) -> None:
    """Label ticks with shortened names of at most a dozen categories, vertically if too long."""
    shown = range(0, len(levels), -(-len(levels) // _NAMES))
    texts = [levels[i] for i in shown]
    heads = {t: t if len(t) <= _LEVEL else f"{t[: _LEVEL - 3].rstrip()}..." for t in texts}
    if len(set(heads.values())) < len(heads):  # some names differ only in their ends
        heads = {t: t if len(t) <= _LEVEL else f"{t[: _LEVEL - 7]}...{t[-4:]}" for t in texts}
    texts = [heads[t] for t in texts]
    axis.set_ticks(list(shown), [text.replace("$", r"\$") for text in texts])
    width, _ = size_in_points(axis.axes)
    if axis.axis_name == "x" and _LETTER * (max(map(len, texts)) + 1) * len(texts) > width:
        axis.set_tick_params(labelrotation=90)


def draw_points(
    ax: Axes, x: np.ndarray, y: np.ndarray, *, color: str, label: str = "_data", front: bool = False
) -> None:
    """Draw data as dots, smaller if there are many, and paler if in the background."""
    many = x.size > _FEW_POINTS
    alpha, zorder = (1.0, 4.0) if front else (0.55 if many else 0.8, 2.5)
    size = 2.0 if many else 3.2
    ax.plot(x, y, "o", color=color, ms=size, mew=0, alpha=alpha, label=label, zorder=zorder)


def add_bar(ax: Axes, colored: Any, **options: Any) -> None:
    """Add a colour bar without a frame."""
    ax.figure.colorbar(colored, **{"ax": ax} | options).outline.set_visible(False)


def label_dates(ax: Axes, x: np.ndarray) -> None:
    """Give the horizontal axis short dates if ``x`` holds dates."""
    if x.dtype.kind != "M":
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=7)  # works for any range of dates
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes in points, before a layout engine moves them."""
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale, ax.bbox.height * scale


def finish(ax: Axes, x_label: str, y_label: str) -> None:
    """Set axis labels, and write ticks without an offset, which would overlap the legend."""
    from matplotlib.ticker import ScalarFormatter

    ax.set(xlabel=x_label, ylabel=y_label)
    if ax.get_yscale() == "linear" and isinstance(ax.yaxis.get_major_formatter(), ScalarFormatter):
        ax.ticklabel_format(axis="y", useOffset=False, style="plain")


def put_legend_above(ax: Axes, order: Sequence[str] = ()) -> float:
    """Put the legend above the axes, where it hides no data, with labels in ``order`` first.

    Return the height of a title above the legend in points.
    """
    pairs = list(zip(*ax.get_legend_handles_labels(), strict=True))
    pairs.sort(key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order))
    widest = 0.56 * _LEGEND_SIZE * max(len(label) for _, label in pairs) + 36
    columns = max(1, min(len(pairs), int(1.1 * size_in_points(ax)[0] / widest)))
    ax.legend(
        *zip(*pairs, strict=True),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=_LEGEND_SIZE,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.4,
    )
    return 10 + 15.5 * -(-len(pairs) // columns)


def put_title(ax: Axes, text: str, *, height: float = 6.0) -> None:
    """Put a title at the left, ``height`` points above the axes, wrapped to their width."""
    characters = max(12, int(size_in_points(ax)[0] / (0.54 * _TITLE_SIZE)))
    text = text.replace(" %", "\0%")  # no break before the unit
    text = textwrap.fill(text, characters, max_lines=3, placeholder=" ...").replace("\0", " ")
    ax.set_title(text, loc="left", fontsize=_TITLE_SIZE, pad=height)
