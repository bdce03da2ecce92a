"""Colours, checks of arguments, and the marks and labels that the figures share."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
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
    "as_vectors",
    "draw_band",
    "draw_levels",
    "draw_points",
    "finish",
    "keep_ticks_whole",
    "label_dates",
    "label_levels",
    "level_places",
    "put_legend_above",
    "put_title",
    "size_in_points",
    "sorted_levels",
    "sorted_vectors",
    "tick_percents",
]

STYLE = "gpytorch_nkn.plotting.gpytorch_nkn"  # name of the style sheet
PALETTE = ("#1f5fa8", "#d1580b", "#2a9d78", "#b3649b", "#e0a100", "#5ab4e0")  # its colours
BLUE, ORANGE, GRAY = *PALETTE[:2], "#404040"
DASHES = (0, (4, 3))
_LEGEND_SIZE, _TITLE_SIZE = 9.5, 10.5
_LEVEL = 14  # characters of the name of a category
_LINE, _LETTER = 12.0, 5.8  # points that a line of a tick's text takes, and a letter
_LAYOUT = 0.7  # fraction of their size that axes keep under a layout engine
_FEW_POINTS = 250  # markers that can be told apart


def as_array(name: str, values: Any, *, ndim: int = 1, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Return an array of finite numbers, or of dates, from an array, a tensor or a list.

    An empty shape stands for any of ``ndim``.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biufM":
        raise TypeError(f"{name} must hold real numbers or dates, got dtype {array.dtype}.")
    if shape and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
    if array.ndim != ndim or array.size == 0:
        what = "a vector" if ndim == 1 else f"an array of {ndim} dimensions"
        raise ValueError(f"{name} must be {what} with at least one entry, got shape {array.shape}.")
    bad = np.isnat(array) if array.dtype.kind == "M" else ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{name} must be finite, got {int(bad.sum())} values that are not.")
    return array if array.dtype.kind in "fM" else array.astype(float)


def as_vectors(**named: Any) -> list[np.ndarray]:
    """Return vectors of one length; the errors are those of :func:`as_array`."""
    vectors = [as_array(name, values) for name, values in named.items()]
    if len({vector.shape for vector in vectors}) > 1:
        shapes = ", ".join(f"{n} {v.shape}" for n, v in zip(named, vectors, strict=True))
        raise ValueError(f"Vectors of one length are needed, got shapes {shapes}.")
    return vectors


def sorted_vectors(**named: Any) -> list[np.ndarray]:
    """As :func:`as_vectors`, all in the order of the first one."""
    vectors = as_vectors(**named)
    order = np.argsort(vectors[0], kind="stable")
    return [vector[order] for vector in vectors]


def sorted_levels(levels: Sequence[str] | None, codes: Any) -> list[str] | None:
    """Names of categories in the order of their codes; None if there are none."""
    if levels is None:
        return None
    if len(levels) != len(codes):
        raise ValueError(f"levels must name all {len(codes)} positions, got {len(levels)}.")
    return [str(levels[place]) for place in np.argsort(codes, kind="stable")]


def level_places(name: str, values: Any, codes: np.ndarray) -> np.ndarray:
    """Places ``...`` of values among the sorted codes of categories, where these are drawn."""
    values = np.asarray(values, dtype=float)
    unknown = values[~np.isin(values, codes)]
    if unknown.size:
        raise ValueError(f"{name} must hold codes of the grid {codes.tolist()}, got {unknown[0]}.")
    return np.searchsorted(codes, values)


def as_list_of_axes(axes: Any, count: int, what: str) -> list[Axes]:
    """Return a flat list of ``count`` Axes from one of them, a sequence or an array."""
    from matplotlib.axes import Axes

    if count == 0:
        raise ValueError(f"At least one {what} is needed, got none.")
    flat = list(np.ravel(np.asarray(axes, dtype=object)))
    others = [type(ax).__name__ for ax in flat if not isinstance(ax, Axes)]
    if others:
        raise TypeError(f"axes must be matplotlib Axes, got {', '.join(others)}.")
    if len(flat) != count:
        raise ValueError(f"One Axes per {what} is needed, {count} in all, got {len(flat)}.")
    return flat


def draw_band(
    ax: Axes,
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    level: float | None = None,
    *,
    color: str = BLUE,
    depth: int = 0,
) -> None:
    """Fill the space between two curves; with a level it is named in the legend.

    A band within another has a depth of one more.
    """
    label = "_band" if level is None else f"{100 * level:g} % band"
    alpha = (0.22 if color == BLUE else 0.16) * (1 + 0.6 * depth)
    ax.fill_between(x, lower, upper, color=color, alpha=alpha, linewidth=0, label=label)


def draw_levels(
    ax: Axes,
    levels: Sequence[str],
    mean: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    level: float | None = None,
    *,
    label: str = "_mean",
) -> None:
    """Draw a value with its interval for each category, side by side at 0, 1, ...

    With a level the intervals are named in the legend.
    """
    x = np.arange(len(levels))
    band = "_band" if level is None else f"{100 * level:g} % band"
    room = _level_room(ax, len(levels))
    ax.vlines(x, lower, upper, color=BLUE, alpha=0.3, linewidth=min(5, 0.3 * room), label=band)
    ax.plot(x, mean, "o", color=BLUE, markersize=min(4.0, 0.4 * room), zorder=3, label=label)
    ax.set_xlim(-0.5, len(levels) - 0.5)
    label_levels(ax.xaxis, levels)


def label_levels(axis: Any, levels: Sequence[str]) -> None:
    """Ticks at 0, 1, ... with the names of categories, as many as there is room for.

    Names along a horizontal axis stand upright where they are too long to stand side by side.
    """
    room = _level_room(axis.axes, len(levels), axis.axis_name)
    step = int(np.ceil(_LINE / room))
    shown = range(0, len(levels), step)
    texts = [levels[place] for place in shown]
    texts = [t if len(t) <= _LEVEL else f"{t[: _LEVEL - 7]}...{t[-4:]}" for t in texts]
    axis.set_ticks(list(shown), [text.replace("$", r"\$") for text in texts])
    widest = max((len(one) + len(other) for one, other in pairwise(texts)), default=0) / 2
    if axis.axis_name == "x" and _LETTER * (widest + 1) > step * room:
        axis.set_tick_params(labelrotation=90)


def _level_room(ax: Axes, count: int, axis_name: str = "x") -> float:
    """Points that each category has along an axis, which a layout engine makes narrower."""
    return _LAYOUT * size_in_points(ax)["xy".index(axis_name)] / count


def draw_points(
    ax: Axes, x: np.ndarray, y: np.ndarray, *, color: str, label: str = "_data", front: bool = False
) -> None:
    """Draw data as dots, smaller where there are many of them, and paler unless in front."""
    many = x.size > _FEW_POINTS
    alpha, zorder = (1.0, 4.0) if front else (0.55 if many else 0.8, 2.5)
    size = 2.0 if many else 3.2
    ax.plot(x, y, "o", color=color, ms=size, mew=0, alpha=alpha, label=label, zorder=zorder)


def add_bar(ax: Axes, colored: Any, **options: Any) -> None:
    """Add a colour bar without a frame."""
    ax.figure.colorbar(colored, ax=ax, **options).outline.set_visible(False)


def tick_percents(axis: Any) -> None:
    """Ticks from 0 to 100 % along an axis of fractions."""
    ticks = np.linspace(0, 1, 6)
    axis.set_ticks(ticks, [f"{100 * tick:.0f} %" for tick in ticks])


def label_dates(ax: Axes, x: np.ndarray) -> None:
    """Give the horizontal axis short dates if ``x`` holds dates."""
    if x.dtype.kind != "M":
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # Three to seven ticks exist for every range of dates, which narrower limits do not promise.
    narrow = size_in_points(ax)[0] < 400
    locator = AutoDateLocator(minticks=3, maxticks=7) if narrow else AutoDateLocator()
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, before a layout engine moves them."""
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale, ax.bbox.height * scale


def finish(ax: Axes, x_label: str, y_label: str) -> None:
    """Labels, and numbers written out: a common offset above the axis would hit the legend."""
    from matplotlib.ticker import FormatStrFormatter, ScalarFormatter

    ax.set(xlabel=x_label, ylabel=y_label)
    largest = np.abs([ax.dataLim.y0, ax.dataLim.y1]).max()
    if ax.get_yscale() != "linear" or not 0 < largest < np.inf:
        return
    plain = ScalarFormatter(useOffset=False)
    plain.set_scientific(False)
    readable = 1e-4 <= largest < 1e7
    ax.yaxis.set_major_formatter(plain if readable else FormatStrFormatter("%.6g"))


def keep_ticks_whole(ax: Axes, axis: str, places: np.ndarray) -> None:
    """Put ticks of ``"x"`` or ``"y"`` at whole numbers only, if all places are whole."""
    if places.dtype.kind in "fiu" and not (places % 1).any():
        ax.locator_params(axis=axis, integer=True, min_n_ticks=1)  # type: ignore[arg-type]


def put_legend_above(ax: Axes, order: Sequence[str] = ()) -> float:
    """Put the legend above the axes, where it covers no data, in as few rows as fit.

    Labels in ``order`` come first. Returns the points above the axes at which a title clears the
    legend.
    """
    pairs = list(zip(*ax.get_legend_handles_labels(), strict=True))
    pairs.sort(key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order))
    widths = [0.56 * _LEGEND_SIZE * len(label) + 36 for _, label in pairs]
    room = 1.1 * size_in_points(ax)[0]  # a layout engine gives somewhat more than there is now
    columns = len(pairs) if sum(widths) <= room else max(1, int(room / max(widths)))
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
    """Put a title so many points above the axes, at the left, in lines as wide as the axes."""
    characters = max(12, int(size_in_points(ax)[0] / (0.54 * _TITLE_SIZE)))
    text = textwrap.fill(text, characters, max_lines=3, placeholder=" ...")
    ax.set_title(text, loc="left", fontsize=_TITLE_SIZE, pad=height)
