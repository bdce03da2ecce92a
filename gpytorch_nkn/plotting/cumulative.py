"""How much of the variance is explained as parts are added."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import (
    BLUE,
    GRAY,
    ORANGE,
    as_array,
    finish,
    size_in_points,
    tick_percents,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_cumulative"]

_PALE = "#c3d3e6"
_MOST = 1.05  # shares above it were given in percent, or are no shares
_CHARACTERS = 38  # per line of a label
_READABLE = 6.5  # points


def plot_cumulative(
    ax: Axes,
    labels: Sequence[str],
    explained: ArrayLike,
    *,
    errors: ArrayLike | None = None,
    error_label: str = "mean absolute error,\ncross-validated",
) -> Axes:
    """Draw the share of the variance explained by the first part, the first two, and so on.

    One bar per part, from top to bottom: pale is what the parts before explain, blue what this
    one adds, and an orange outline what is lost where the share falls.

    Args:
        ax: Axes to draw on.
        labels: Names ``J`` of the parts in the order in which they are added.
        explained: Shares ``J`` of the variance after each part, fractions of 1.
        errors: Errors ``J`` after each part, shown in a column at the right.
        error_label: Head of that column, with the unit.

    Returns:
        The same axes.

    Raises:
        ValueError: The lengths differ, there is no part, a number is not finite, or a share is
            above 1 (in percent, perhaps).
    """
    explained = as_array("explained", explained)
    if len(labels) != explained.size:
        raise ValueError(
            f"One label per share is needed, got {len(labels)} labels and {explained.size} shares."
        )
    if explained.max() > _MOST:
        raise ValueError(f"explained must hold fractions of 1, got {explained.max():g}.")
    if errors is not None:
        errors = as_array("errors", errors, shape=explained.shape)
    rows = np.arange(explained.size)
    before = np.concatenate([[0.0], explained[:-1]])
    gains, losses = np.maximum(explained - before, 0), np.maximum(before - explained, 0)
    ax.barh(rows, np.minimum(explained, before), height=0.62, color=_PALE, linewidth=0)
    ax.barh(rows, gains, left=before, height=0.62, color=BLUE, linewidth=0)
    lost = losses > 0
    ax.barh(
        rows[lost],
        losses[lost],
        left=explained[lost],
        height=0.62,
        facecolor="none",
        edgecolor=ORANGE,
        linewidth=1.0,
        hatch="////",
    )
    wrapped, size = _fit_labels(ax, labels)
    ends = np.maximum(explained, before).clip(0)
    for row, (share, end) in enumerate(zip(explained.tolist(), ends.tolist(), strict=True)):
        text = "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"
        ax.annotate(
            text, (end, row), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=size, color=GRAY,
        )  # fmt: skip
    finish(ax, "variance explained by this part and those above", "")
    ax.grid(False, axis="y")
    ax.set_yticks(rows, wrapped, fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(rows[-1] + 0.6, -0.6)
    room = 0.13 if errors is None else 0.24  # for the text of a full bar
    ax.set_xlim(min(0.0, 1.1 * explained.min()), 1 + room)
    tick_percents(ax.xaxis)
    if errors is not None:
        _add_column(ax, rows, [_digits(error) for error in errors.tolist()], error_label, size)
    return ax


def _digits(error: float) -> str:
    """Three digits, and no powers of ten up to a million."""
    return f"{error:.0f}" if 1000 <= abs(error) < 1e6 else f"{error:.3g}"


def _fit_labels(ax: Axes, labels: Sequence[str]) -> tuple[list[str], float]:
    """Break labels into lines, fewer where rows are narrow, and give the size in points."""
    for lines in (3, 2, 1):
        wrapped = [
            textwrap.fill(str(label), _CHARACTERS, max_lines=lines, placeholder=" ...")
            for label in labels
        ]
        used = max(text.count("\n") + 1 for text in wrapped)
        size = 0.75 * size_in_points(ax)[1] / (len(labels) * used)
        if size >= _READABLE:
            break
    return wrapped, float(np.clip(size, 5.0, 9.5))


def _add_column(ax: Axes, rows: np.ndarray, texts: list[str], head: str, size: float) -> None:
    """Write a column of numbers to the right of the axes, with a head above."""
    across = ax.get_yaxis_transform()  # horizontally in widths of the axes
    for row, text in zip(rows, texts, strict=True):
        ax.text(1.2, row, text, transform=across, ha="right", va="center", fontsize=size)
    ax.text(
        1.2, 1.01, head, transform=ax.transAxes, ha="right", va="bottom", fontsize=8, color=GRAY
    )
