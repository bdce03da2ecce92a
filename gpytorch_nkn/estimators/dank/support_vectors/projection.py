"""Euclidean projection onto what the dual variables of a support vector machine may be."""

from __future__ import annotations

import numpy as np

__all__ = ["project_box_hyperplane"]


def project_box_hyperplane(point: np.ndarray, signs: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Nearest point of ``{u : 0 <= u <= upper, signs' u = 0}``, exactly.

    It is ``clip(point - t signs, 0, upper)`` for a root ``t`` of ``signs' u(t)``, which falls
    piecewise linearly in ``t``: sorted breakpoints give the piece, the piece gives the root. (To
    clip and to project onto the hyperplane in turn, as in the paper, ends in the set, but not in
    its nearest point.)

    Args:
        point: Any point, ``m``.
        signs: 1 or -1, ``m``.
        upper: Positive bounds, ``m``.

    Returns:
        The nearest point, ``m``. The set holds 0, so there is one.

    Reference: Held, Wolfe and Crowder (1974), Validation of subgradient optimization.
    """
    first = np.where(signs > 0, point - upper, -point)  # entry i moves for t in [first, first + c]
    ends = np.concatenate([first, first + upper])
    order = np.argsort(ends, kind="stable")
    slopes = np.concatenate([np.full(len(point), -1.0), np.ones(len(point))])[order].cumsum()
    ends = ends[order]
    total = upper[signs > 0].sum()  # of signs' u for t at minus infinity
    sums = total + np.concatenate([[0.0], (slopes[:-1] * np.diff(ends)).cumsum()])
    piece = min(int(np.searchsorted(-sums, 0.0, side="right")) - 1, len(ends) - 2)
    piece = max(piece, 0)
    root = ends[piece]
    if slopes[piece] < 0:
        root += sums[piece] / -slopes[piece]
    projected = np.clip(point - root * signs, 0.0, upper)
    free = (projected > 0) & (projected < upper)
    if free.any():  # once more without the rounding of the sums
        root += (signs @ projected) / free.sum()
        projected = np.clip(point - root * signs, 0.0, upper)
    return projected
