"""A learned Hadamard factor: its entries, and the boundaries that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.plotting.style import (
    BLUE,
    GRAY,
    ORANGE,
    PALETTE,
    add_bar,
    as_array,
    finish,
    put_legend_above,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_decision_boundary", "plot_hadamard_factor"]

_COLORS = "RdBu_r"  # diverging, white in the middle
_FEW_GROUPS = 12  # as many have labels of their own
_MARKERS = "o^sDv<>p"
_POINTS = (GRAY, PALETTE[4], *PALETTE[2:4], PALETTE[5])  # of classes
_BOUNDARIES = (BLUE, ORANGE, *PALETTE[2:4], PALETTE[5])
_MARGIN = 0.05  # of the range of the data, on either side
_NARROWEST = 1e-6  # half width of the scale of colours


def plot_decision_boundary(
    ax: Axes,
    classifiers: Mapping[str, Any],
    X: ArrayLike,
    y: ArrayLike,
    *,
    resolution: int = 200,
    x_label: str = "first column",
    y_label: str = "second column",
) -> Axes:
    """Draw where fitted classifiers of two columns change their minds, over the data.

    The first is what the others are compared with: its boundary is dashed, theirs are solid.

    Args:
        ax: Axes to draw on.
        classifiers: Fitted classifiers by name, in scikit-learn's manner. The boundary is smooth
            where there is a ``decision_function`` of two classes, positive for the second.
        X: Inputs ``N x 2``.
        y: Classes ``N``, numbers or texts.
        resolution: Number of places on each side of the grid on which boundaries are found.
        x_label: Label of the first column.
        y_label: Label of the second column.

    Returns:
        The same axes.

    Raises:
        TypeError: ``X`` does not hold numbers.
        ValueError: There is no classifier, ``X`` has not two columns or ``y`` another length, there
            are classes that a classifier does not know, or ``resolution`` is below 2.
    """
    inputs = as_array("X", X, ndim=2)
    if inputs.shape[1] != 2:
        raise ValueError(f"X must have two columns, got shape {inputs.shape}.")
    classes = np.asarray(y)
    if classes.shape != (len(inputs),):
        raise ValueError(f"y must have the shape {(len(inputs),)}, got {classes.shape}.")
    if not classifiers:
        raise ValueError("At least one classifier is needed, got none.")
    if resolution < 2:
        raise ValueError(f"resolution must be at least 2, got {resolution}.")
    names = np.unique(classes)
    for label, classifier in classifiers.items():
        unknown = np.setdiff1d(names, np.asarray(classifier.classes_))
        if len(unknown):
            raise ValueError(f"Classifier {label!r} does not know the classes {unknown.tolist()}.")
    for number, name in enumerate(names):
        own = inputs[classes == name]
        ax.scatter(
            own[:, 0],
            own[:, 1],
            s=16,
            marker=_MARKERS[number % len(_MARKERS)],
            color=_POINTS[number % len(_POINTS)],
            alpha=0.6,
            linewidths=0,
            label=str(name),
        )
    lines = _lines(inputs, resolution)
    grid = np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, 2)
    for number, (label, classifier) in enumerate(classifiers.items()):
        color = _BOUNDARIES[number % len(_BOUNDARIES)]
        dashes = "solid" if number else "dashed"
        for sides in _sides(classifier, grid):
            if sides.min() < 0 < sides.max():
                picture = sides.reshape(resolution, resolution)
                drawn = ax.contour(
                    *lines, picture, levels=[0.0], colors=color, linestyles=dashes, linewidths=1.6
                )
                drawn.set_zorder(2.4 if number else 2.6)  # dashes are seen on others, too
        ax.plot([], [], color=color, linestyle=dashes, linewidth=1.6, label=label)
    finish(ax, x_label, y_label)
    ax.set_xlim(float(lines[0][0]), float(lines[0][-1]))
    ax.set_ylim(float(lines[1][0]), float(lines[1][-1]))
    put_legend_above(ax)
    return ax


def plot_hadamard_factor(
    ax: Axes,
    factor: ArrayLike,
    *,
    sort_by: ArrayLike | None = None,
    limit: float | None = None,
    label: str = "row",
) -> Axes:
    """Draw the entries of a factor that multiplies a Gram matrix: white is 1, no change.

    Args:
        ax: Axes to draw on; a colour bar is added beside them.
        factor: ``N x N``, such as ``G @ G.T`` with a classifier's ``factor_``, or the quotient of
            two Gram matrices.
        sort_by: Values ``N`` to sort the rows by, classes or numbers. Up to twelve different ones
            are marked as groups.
        limit: The scale of colours goes from ``1 - limit`` to ``1 + limit``; by default it just
            holds the entry that is farthest from 1. Give the same to compare figures.
        label: What the rows are.

    Returns:
        The same axes.

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
    below, above = bool((values < 1.0 - limit).any()), bool((values > 1.0 + limit).any())
    image = ax.imshow(
        values, cmap=_COLORS, vmin=1.0 - limit, vmax=1.0 + limit, interpolation="nearest"
    )
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    add_bar(ax, image, extend=extend, format=ScalarFormatter(useOffset=False), label="entry of F")
    finish(ax, label, label)
    ax.grid(False)
    if ticks is not None:
        ax.set_xticks(*ticks)
        ax.set_yticks(*ticks)
    return ax


def _lines(inputs: np.ndarray, resolution: int) -> list[np.ndarray]:
    """Values of both columns, a little beyond the data."""
    low, high = inputs.min(axis=0), inputs.max(axis=0)
    margin = np.where(high > low, _MARGIN * (high - low), 1.0)
    return [np.linspace(a, b, resolution) for a, b in zip(low - margin, high + margin, strict=True)]


def _sides(classifier: Any, grid: np.ndarray) -> list[np.ndarray]:
    """Functions of the places whose zeros are the boundaries."""
    classes = np.asarray(classifier.classes_)
    decide = getattr(classifier, "decision_function", None)
    if len(classes) == 2 and decide is not None:
        return [np.asarray(decide(grid), dtype=float)]
    predicted = np.asarray(classifier.predict(grid))
    sides = classes[1:] if len(classes) == 2 else classes
    return [np.where(predicted == name, 1.0, -1.0) for name in sides]
