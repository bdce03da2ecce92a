"""Plots of a search: progress, prediction errors and acquisition function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.linalg import check_flags
from gpytorch_nkn.plotting.checks import draw_observed
from gpytorch_nkn.plotting.style import (
    BLUE,
    GRAY,
    ORANGE,
    as_array,
    as_list_of_axes,
    as_vectors,
    draw_curve,
    draw_interval,
    draw_points,
    finish,
    put_legend_above,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_progress", "plot_acquisition", "plot_one_step_ahead", "plot_progress"]

Given = TypeVar("Given")

_Z95 = 1.959964
_MAX_MARKERS = 8  # largest number of positions in a slice drawn as markers and bars
_MAX_ERROR = 5.0  # largest drawn error in standard deviations


def check_progress(
    values: ArrayLike, maximize: bool, num_initial: int, feasible: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask ``N`` of feasible values, and the best value so far ``N`` (NaN if none)."""
    (y,) = as_vectors(values=values)
    check_flags(maximize=maximize)
    mask = np.ones(y.size, dtype=bool) if feasible is None else np.asarray(feasible)
    if mask.shape != y.shape or mask.dtype != bool:
        raise ValueError(
            f"feasible must be {y.size} booleans, got {mask.dtype} of shape {mask.shape}."
        )
    if not 0 <= num_initial <= y.size:
        raise ValueError(f"num_initial must be from 0 to {y.size}, got {num_initial}.")
    return mask, (np.fmax if maximize else np.fmin).accumulate(np.where(mask, y, np.nan))


def plot_progress(
    ax: Axes,
    values: ArrayLike,
    *,
    maximize: bool = True,
    num_initial: int = 0,
    feasible: ArrayLike | None = None,
    y_label: str = "value",
) -> Axes:
    """Draw values in order of evaluation and the best so far.

    Args:
        ax: Axes to draw on.
        values: Evaluations ``N``, in order.
        maximize: Whether larger values are better.
        num_initial: Number of initial evaluations, which are shaded.
        feasible: Booleans ``N``, whether an evaluation satisfies the constraints; by default all.
        y_label: Label of the values.

    Raises:
        ValueError: ``values`` is empty or not finite, ``num_initial`` exceeds the number of values,
            or ``feasible`` has another length.
    """
    mask, best = check_progress(values, maximize, num_initial, feasible)
    (y,) = as_vectors(values=values)
    numbers = np.arange(1, y.size + 1)
    has_best = ~np.isnan(best)
    draw_points(ax, numbers[mask], y[mask], color=GRAY, label="evaluations")
    if not mask.all():
        ax.plot(numbers[~mask], y[~mask], "x", ms=4, color=GRAY, alpha=0.8, label="infeasible")
    look: Any = {"where": "post", "color": BLUE, "linewidth": 1.8, "label": "best so far"}
    ax.step(numbers[has_best], best[has_best], **look)
    _shade_initial(ax, y.size, num_initial)
    finish(ax, "evaluation", y_label)
    put_legend_above(ax)
    return ax


def _shade_initial(ax: Axes, size: int, num_initial: int) -> None:
    """Shade the initial ones among ``size`` evaluations."""
    if num_initial:
        ax.axvspan(0.5, num_initial + 0.5, color=GRAY, alpha=0.08, linewidth=0, label="initial")
    ax.locator_params(axis="x", integer=True)
    ax.set_xlim(0.5, size + 0.5)


def plot_one_step_ahead(ax: Axes, z_scores: ArrayLike, *, num_initial: int = 0) -> Axes:
    """Draw the errors of one-step-ahead predictions.

    Args:
        ax: Axes to draw on.
        z_scores: Errors ``N`` in predictive standard deviations, in order of evaluation. Errors
            beyond five standard deviations are drawn at the edge.
        num_initial: As in :func:`plot_progress`.

    Raises:
        ValueError: ``z_scores`` is empty or NaN, or ``num_initial`` exceeds its length.
    """
    z = as_array("z_scores", z_scores, finite=False)  # some are infinite
    (z,) = as_vectors(z_scores=np.clip(z, -_MAX_ERROR, _MAX_ERROR))
    check_progress(z, True, num_initial, None)
    numbers = np.arange(1, z.size + 1)
    ends = np.array([0.5, z.size + 0.5])
    draw_interval(ax, ends, np.full(2, -_Z95), np.full(2, _Z95), 0.95, color=GRAY)
    ax.axhline(0, color=GRAY, linewidth=0.6)
    _shade_initial(ax, z.size, num_initial)
    ax.set_ylim(-_MAX_ERROR - 0.3, _MAX_ERROR + 0.3)
    labels = "observation", "error, in standard deviations"
    return draw_observed(ax, numbers, z, -_Z95, _Z95, labels, "inside")


def plot_acquisition(axes: Given, slices: Sequence[Any], *, y_label: str = "value") -> Given:
    """Draw the posterior and an acquisition function along lines through a point.

    Args:
        axes: One Axes per slice, a sequence or an array of any shape, read row by row.
        slices: At least one object with the attributes of ``report_search(...).slices``. The
            acquisition function is drawn in the lower part, on the same scale for all slices.
        y_label: Label of the values.

    Returns:
        The same axes, with equal vertical limits.

    Raises:
        TypeError: An entry of ``axes`` is not an Axes.
        ValueError: ``slices`` is empty, the number of axes differs, a shape is wrong, or a value
            other than the acquisition is not finite.
    """
    flat = as_list_of_axes(axes, len(slices), "slice")
    # with a common scale, columns without possible improvement look flat
    values = [np.asarray(s.acquisition, dtype=float) for s in slices if s.acquisition is not None]
    finite = np.concatenate([v[np.isfinite(v)] for v in values]) if values else np.zeros(0)
    bounds = (np.quantile(finite, 0.05), finite.max()) if finite.size else (0.0, 1.0)
    for curve in slices:
        as_array("best_mean", curve.best_mean, ndim=0)
    ends = np.concatenate(
        [np.ravel(v) for s in slices for v in (s.lower, s.upper, s.best_mean, s.candidate_means)]
    )
    lowest, span = float(ends.min()), float(np.ptp(ends)) or 1.0
    space = 0.35 * span if finite.size else 0.0
    bottom = lowest - 0.04 * span - space
    for number, (ax, curve) in enumerate(zip(flat, slices, strict=True)):
        grid, levels = _draw_slice(ax, curve), getattr(curve, "levels", None)
        ax.set_ylim(bottom, lowest + 1.04 * span)
        if curve.acquisition is not None and finite.size:
            value = np.asarray(curve.acquisition, dtype=float)
            gain = np.nan_to_num(value, nan=bounds[0]) - bounds[0]
            height = 0.9 * space * np.clip(gain / (bounds[1] - bounds[0] or 1.0), 0, 1)
            look: Any = {"color": ORANGE, "alpha": 0.35, "lw": 0, "label": "acquisition"}
            at = grid if levels is None else np.arange(grid.size)
            width = np.diff(at).min(initial=np.ptp(at) or 1.0)
            ax.bar(at, height, (0.6 if grid.size <= _MAX_MARKERS else 1.0) * width, bottom, **look)
        finish(ax, curve.name, "" if number else y_label)
    put_legend_above(flat[0])
    return axes


def _draw_slice(ax: Axes, curve: Any) -> np.ndarray:
    """Draw the curve and the points of a slice; return its grid."""
    best, ahead = as_array("best", curve.best, ndim=0), np.atleast_1d(curve.candidates)
    levels, few = getattr(curve, "levels", None), np.size(curve.grid) <= _MAX_MARKERS
    grid = draw_curve(
        ax, curve.grid, curve.mean, curve.lower, curve.upper, levels, interval="95 % interval",
        label="mean", marker="o" if few else "",
    )  # fmt: skip
    if levels is not None:
        best, ahead = np.searchsorted(grid, best), np.searchsorted(grid, ahead)
    dots: Any = {"markeredgecolor": "white", "zorder": 5, "clip_on": False}
    ax.plot(float(best), curve.best_mean, "o", color=GRAY, label="best so far", ms=6, **dots)
    if ahead.size:
        means = as_array("candidate_means", curve.candidate_means, shape=ahead.shape)
        ax.plot(ahead, means, "D", color=ORANGE, label="next", ms=5.5, **dots)
    return grid
