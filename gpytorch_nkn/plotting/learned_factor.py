"""A learned Hadamard factor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import GRAY, add_bar, as_array, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_hadamard_factor"]

_COLORS = "RdBu_r"  # diverging, white in the middle
_FEW_GROUPS = 12  # largest number of groups with labels
_NARROWEST = 1e-6  # smallest limit


def plot_hadamard_factor(
    ax: Axes,
    factor: ArrayLike,
    *,
    sort_by: ArrayLike | None = None,
    limit: float | None = None,
    label: str = "row",
) -> Axes:
    """Draw the entries of a factor that multiplies a Gram matrix; white is 1, no change.

    Args:
        ax: Axes to draw on; a colour bar is added beside them.
        factor: ``N x N``, such as ``G @ G.T`` with a classifier's ``factor_``, or the quotient of
            two Gram matrices.
        sort_by: Values ``N`` to sort the rows by, classes or numbers. Up to twelve different ones
            are marked as groups.
        limit: Colours range from ``1 - limit`` to ``1 + limit``; default: the largest distance of
            an entry from 1. Use one value to compare figures.
        label: Name of the rows.

    Raises:
        TypeError: ``factor`` does not hold numbers.
        ValueError: ``factor`` is not square or not finite, ``sort_by`` has another length, or
            ``limit`` is not positive.
    """
    from matplotlib.ticker import ScalarFormatter

    values = as_array("factor", factor, ndim=2)
    if values.shape[0] != values.shape[1]:
        raise ValueError(f"factor must be square, got shape {values.shape}.")
    if limit is None:
        limit = max(float(np.abs(values - 1.0).max()) * (1.0 + 1e-9), _NARROWEST)
    if not 0.0 < limit < np.inf:
        raise ValueError(f"limit must be positive and finite, got {limit}.")
    count = len(values)
    ticks: tuple[list[float], list[str]] | None = None
    if sort_by is not None:
        keys = np.asarray(sort_by)
        if keys.shape != (count,):
            raise ValueError(f"sort_by must have the shape {(count,)}, got {keys.shape}.")
        order = np.argsort(keys, kind="stable")
        values = values[np.ix_(order, order)]
        groups, sizes = np.unique(keys, return_counts=True)
        if len(groups) <= _FEW_GROUPS:
            ends = sizes.cumsum()
            ticks = list(ends - 0.5 * sizes - 0.5), [str(group) for group in groups]
            for end in ends[:-1]:
                ax.axhline(end - 0.5, color=GRAY, linewidth=0.7)
                ax.axvline(end - 0.5, color=GRAY, linewidth=0.7)
    image = ax.imshow(
        values, cmap=_COLORS, vmin=1.0 - limit, vmax=1.0 + limit, interpolation="nearest"
    )
    extend = "both" if np.abs(values - 1.0).max() > limit else "neither"
    add_bar(ax, image, extend=extend, format=ScalarFormatter(useOffset=False), label="entry of F")
    finish(ax, label, label)
    ax.grid(False)
    if ticks is not None:
        ax.set_xticks(*ticks)
        ax.set_yticks(*ticks)
    return ax
