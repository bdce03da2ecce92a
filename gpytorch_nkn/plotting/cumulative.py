"""Plot of the cumulative fraction of variance that components explain."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import BLUE, GRAY, ORANGE, as_array, finish, tick_percents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_cumulative"]

_PALE = "#c3d3e6"
_MAX_FRACTION = 1.05  # largest fraction of variance; larger values must be percentages
_CHARACTERS = 38  # largest number of characters per line of a label
_SIZE = 8.5  # font size in points


def plot_cumulative(
    ax: Axes,
    labels: Sequence[str],
    explained: ArrayLike,
    *,
    errors: ArrayLike | None = None,
    error_label: str = "mean absolute error,\ncross-validated",
) -> Axes:
    """Draw the cumulative fraction of variance that the first parts explain.

    In each bar, pale blue is the fraction that the previous parts explain, blue the gain from this
    part, and an orange outline its loss.

    Args:
        ax: Axes to draw on, with about 0.4 inches of height per part.
        labels: Names ``J`` of the parts, in order.
        explained: Fractions ``J`` of the variance explained after each part.
        errors: Errors ``J`` after each part, for a column at the right.
        error_label: Heading of the error column, with the unit.

    Raises:
        ValueError: The lengths differ, ``labels`` is empty, a number is not finite, or a fraction
            exceeds 1.
    """
    explained = as_array("explained", explained)
    if len(labels) != explained.size:
        raise ValueError(
            f"labels and explained must have equal lengths, got {len(labels)} and {explained.size}."
        )
    if explained.max() > _MAX_FRACTION:
        raise ValueError(f"explained must hold fractions up to 1, got {explained.max():g}.")
    rows = np.arange(explained.size)
    before = np.concatenate([[0.0], explained[:-1]])
    gains, losses = np.maximum(explained - before, 0), np.maximum(before - explained, 0)
    ax.barh(rows, np.minimum(explained, before), height=0.62, color=_PALE, linewidth=0)
    ax.barh(rows, gains, left=before, height=0.62, color=BLUE, linewidth=0)
    lost = losses > 0
    look: Any = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////"}
    ax.barh(rows[lost], losses[lost], left=explained[lost], height=0.62, **look)
    finish(ax, "variance explained by this part and those above", "")
    for row, share in enumerate(explained.tolist()):
        text = "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"
        end = max(share, before[row], 0), row
        options: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(text, end, fontsize=_SIZE, color=GRAY, **options)
    names = [textwrap.shorten(str(label), _CHARACTERS, placeholder=" ...") for label in labels]
    ax.grid(False, axis="y")
    ax.set_yticks(rows, names, fontsize=_SIZE)
    ax.tick_params(axis="y", length=0)
    space = 0.13 if errors is None else 0.24  # for the percentage beside a full bar
    ax.set(ylim=(rows[-1] + 0.6, -0.6), xlim=(min(0.0, 1.1 * explained.min()), 1 + space))
    tick_percents(ax.xaxis)
    if errors is not None:
        across = ax.get_yaxis_transform()  # x in fractions of the axes, y in data coordinates
        for row, error in enumerate(as_array("errors", errors, shape=explained.shape).tolist()):
            text = f"{error:.0f}" if 1000 <= abs(error) < 1e6 else f"{error:#.3g}".rstrip(".")
            ax.text(1.2, row, text, transform=across, ha="right", va="center", fontsize=_SIZE)
        head: Any = {"transform": ax.transAxes, "ha": "right", "fontsize": 8, "color": GRAY}
        ax.text(1.2, 1.01, error_label, **head)
    return ax
