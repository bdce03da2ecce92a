"""SVMs whose Gram matrix is never formed: sequential minimal optimization in working sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

__all__ = ["DualSolution", "apply_kernel", "solve_dual", "solve_pairs"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
KernelBlock = Callable[[Rows, Rows], Array]

_TILE = 2**22  # entries of a kernel block made at a time, 32 MB
_STEPS = 1000  # in a working set, times its size: rounding may keep a violation above ``tol``
_ROOM = 1.5  # rows of a working set for each free one, as long as that is not above _WHOLE_SIZE
_LEAST_ROOM = 1.2  # beyond
_FIRST_SIZE = 2048  # of a working set as long as few entries are free
_WHOLE_SIZE = 8192  # rows up to which a working set is all of them
_CURVATURE = 1e-12  # least curvature along a pair: equal rows have none
_LOOK = 16  # steps between tests of the largest violation, a pass over all variables


@dataclass(frozen=True)
class DualSolution:
    r"""Solution of :func:`solve_dual`.

    Attributes:
        signed: Signed dual coefficients :math:`s`, ``n``.
        residual: :math:`t - K s`, ``n``; the intercept is not in it.
        intercept: Of the decision function :math:`f(x) = k(x, X) s + b`.
        violation: Largest violation of the optimality conditions, in units of ``f``.
        num_rounds: Working sets solved.
    """

    signed: Array
    residual: Array
    intercept: float
    violation: float
    num_rounds: int


def solve_dual(
    kernel_block: KernelBlock,
    targets: Array,
    upper: Array,
    *,
    epsilon: float | None = None,
    tol: float = 1e-3,
    working_size: int = 11_000,
    max_rounds: int = 1000,
    n_jobs: int | None = None,
) -> DualSolution:
    r"""Maximize an SVM's dual with memory for ``working_size`` squared kernel values.

    .. math::
        \max_s\; t^\top s - \epsilon \|s\|_1 - \tfrac12 s^\top K s, \quad 1^\top s = 0,
        \quad |s| \le C

    and, with labels, :math:`\epsilon = 0`, :math:`t \circ s \ge 0`. A row of a regression has one
    entry, whose sign tells the side of the tube, so that a working set holds as many rows as
    that of a classification.

    Decomposition as in SVMlight with large working sets: all other entries are fixed and enter
    a set's problem through the residual, so bounded support vectors need no place in it. A set
    holds those that violate the optimality conditions most and free entries of the set before;
    sequential minimal optimization solves it from where it stands. The most violating pair is in
    every set, so that the violation falls below any positive ``tol`` after finitely many sets.
    Few are needed if ``working_size`` exceeds the number of free support vectors.

    Args:
        kernel_block: ``kernel_block(i, j)`` returns ``len(i) x len(j)`` kernel values for two
            arrays of row numbers; positive semi-definite as a whole.
        targets: ``n`` labels :math:`t`, 1 or -1, or a regression's targets.
        upper: ``n`` bounds :math:`C`, not below zero.
        epsilon: Half the width of a regression's tube; ``None`` for labels.
        tol: Stop at a violation of at most this, as LIBSVM does.
        working_size: Most rows in a working set; its kernel takes 8 bytes times the square, less
            than 1 GB by default, and only if so many are free.
        max_rounds: Most working sets; too few leave ``violation`` above ``tol``.
        n_jobs: Threads for kernel blocks, as joblib's; ``None`` leaves it to its context.

    Reference: Joachims (1999), Making large-scale SVM learning practical; Fan, Chen and Lin
    (2005), Working set selection using second order information.
    """
    low, high = -upper, upper
    if epsilon is None:
        low, high = np.where(targets > 0, 0.0, low), np.where(targets > 0, high, 0.0)
    width, count = epsilon or 0.0, len(targets)
    everything = np.arange(count)
    signed, residual = np.zeros(count), np.array(targets, dtype=np.float64)
    order = np.random.default_rng(0).permutation(count)  # ties must not follow the rows
    num_rounds = 0
    chosen = np.array([], dtype=np.intp)
    while True:
        rise, fall = _one_sided_terms(signed, low, high, width)
        rise += residual
        fall += residual
        violation = max(0.0, float(rise.max() - fall.min()))
        if violation <= tol or num_rounds == max_rounds:
            break
        free = (signed > low) & (signed < high) & (signed != 0.0)
        if count <= min(working_size, _WHOLE_SIZE):
            chosen = everything
        else:
            room = float(_ROOM * free.sum())
            room = min(room, max(float(_WHOLE_SIZE), _LEAST_ROOM * free.sum()))
            size = min(working_size, max(_FIRST_SIZE, int(room)))
            chosen = _working_set(rise, fall, chosen[free[chosen]], order, size)
        whole = len(chosen) == count
        part, part_residual = signed[chosen], residual[chosen]
        limit = _STEPS * len(chosen)
        steps = solve_pairs(
            _gram(kernel_block, chosen, n_jobs),
            part_residual,
            part,
            low[chosen],
            high[chosen],
            tol if whole else max(tol / 2, violation / 10),
            epsilon=width,
            max_steps=limit,
        )
        change = part - signed[chosen]
        moved = np.flatnonzero(change)
        signed[chosen] = part
        if whole:
            residual = part_residual
        else:
            residual -= apply_kernel(
                kernel_block, everything, chosen[moved], change[moved], n_jobs=n_jobs
            )
        num_rounds += 1
        if whole and steps == limit:
            max_rounds = num_rounds
    intercept = _intercept(residual, signed, low, high, width)
    return DualSolution(signed, residual, intercept, violation, num_rounds)


def solve_pairs(
    kernel: Array,
    residual: Array,
    signed: Array,
    low: Array,
    high: Array,
    tol: float,
    *,
    epsilon: float = 0.0,
    max_steps: int = 10_000_000,
) -> int:
    r"""Maximize a quadratic with the sum of ``s`` as it is, two entries at a time.

    .. math:: t^\top s - \epsilon \|s\|_1 - \tfrac12 s^\top K s

    Args:
        kernel: :math:`K`, ``m x m``.
        residual: :math:`t - K s` at ``signed``, ``m``; updated in place.
        signed: :math:`s` between ``low`` and ``high``, ``m``; updated in place.
        low: Lower bounds, ``m``, not above zero.
        high: Upper bounds, ``m``, not below zero.
        tol: Stop when no derivative upwards exceeds one downwards by more.
        epsilon: Half the width of a regression's tube; an entry stops at zero, where the
            derivative jumps.
        max_steps: Most pairs to update.

    Returns:
        Pairs updated.
    """
    diagonal = kernel.diagonal().copy()
    rise, fall = _one_sided_terms(signed, low, high, epsilon)
    first, violation, curvature = np.empty((3, len(signed)))
    for step in range(max_steps):
        i = int(np.add(residual, rise, out=first).argmax())
        np.subtract(first[i], residual, out=violation)
        violation -= fall
        if step % _LOOK == 0 and not violation.max() > tol:
            return step
        np.multiply(kernel[i], -2.0, out=curvature)
        curvature += diagonal
        curvature += diagonal[i]
        np.maximum(curvature, _CURVATURE, out=curvature)
        gain = np.maximum(violation, 0.0, out=first)  # of the partners of i
        gain *= gain
        gain /= curvature
        j = int(gain.argmax())
        if not violation[j] > 0:
            return step
        top = 0.0 if epsilon and signed[i] < 0.0 else high[i]
        bottom = 0.0 if epsilon and signed[j] > 0.0 else low[j]
        length = min(violation[j] / curvature[j], top - signed[i], signed[j] - bottom)
        signed[i] = top if length >= top - signed[i] else signed[i] + length
        signed[j] = bottom if length >= signed[j] - bottom else signed[j] - length
        for k in (i, j):
            value = signed[k]
            rise[k] = -np.inf if value >= high[k] else epsilon if value < 0.0 else -epsilon
            fall[k] = np.inf if value <= low[k] else -epsilon if value > 0.0 else epsilon
        np.subtract(kernel[i], kernel[j], out=curvature)
        curvature *= length
        residual -= curvature
    return max_steps


def apply_kernel(
    kernel_block: KernelBlock,
    left: Rows,
    right: Rows,
    weights: Array,
    *,
    n_jobs: int | None = None,
) -> Array:
    """``K[left, right] @ weights`` (``len(right)`` or ``len(right) x p``) in tiles of 32 MB."""
    size = max(1, _TILE // max(1, len(right)))
    pieces = [left[i : i + size] for i in range(0, len(left), size)]
    if not pieces or not len(right):
        return np.zeros((len(left), *weights.shape[1:]))
    work = (delayed(_tile)(kernel_block, piece, right, weights) for piece in pieces)
    return np.concatenate(Parallel(n_jobs=n_jobs, require="sharedmem")(work))


def _tile(kernel_block: KernelBlock, left: Rows, right: Rows, weights: Array) -> Array:
    return np.asarray(kernel_block(left, right) @ weights)


def _gram(kernel_block: KernelBlock, rows: Rows, n_jobs: int | None) -> Array:
    """Kernel of a working set, one triangle of it, tile by tile: nothing else of its size."""
    gram = np.empty((len(rows), len(rows)))
    size = max(1, _TILE // len(rows))

    def fill(first: int) -> None:
        last = first + size
        part = kernel_block(rows[first:last], rows[first:])
        gram[first:last, first:] = part
        gram[last:, first:last] = part[:, size:].T

    work = (delayed(fill)(first) for first in range(0, len(rows), size))
    Parallel(n_jobs=n_jobs, require="sharedmem")(work)
    return gram


def _one_sided_terms(signed: Array, low: Array, high: Array, epsilon: float) -> tuple[Array, Array]:
    """What residuals lack of derivatives upwards and downwards: infinite at a bound, ``m``."""
    rise = np.where(signed < high, np.where(signed < 0.0, epsilon, -epsilon), -np.inf)
    fall = np.where(signed > low, np.where(signed > 0.0, -epsilon, epsilon), np.inf)
    return rise, fall


def _working_set(rise: Array, fall: Array, kept: Rows, order: Rows, size: int) -> Rows:
    """Half new and most violating, half from the previous set: free entries stay together.

    Sets of the worst violators alone zigzag as soon as the free entries outnumber a set. Of
    equals those come first that do so in ``order``; ``kept`` are free rows of the previous set.
    """
    if len(rise) <= size:
        return np.arange(len(rise))
    up = order[np.argsort(-rise[order], kind="stable")]
    down = order[np.argsort(fall[order], kind="stable")]
    both = np.stack([up, down], 1).ravel()  # alternating; a free entry is in it twice
    if len(kept):
        both = np.concatenate([both[: max(2, size // 2)], kept, both])
    _, first = np.unique(both, return_index=True)
    return np.sort(both[np.sort(first)[:size]])


def _intercept(residual: Array, signed: Array, low: Array, high: Array, epsilon: float) -> float:
    """Mean residual of the free entries; without any, the middle of what is allowed."""
    free = (signed > low) & (signed < high) & (signed != 0.0)
    if free.any():
        return float(np.mean(residual[free] - epsilon * np.sign(signed[free])))
    rise, fall = _one_sided_terms(signed, low, high, epsilon)
    top, bottom = float((residual + rise).max()), float((residual + fall).min())
    if np.isinf(top) or np.isinf(bottom):
        return bottom if np.isinf(top) else top
    return (top + bottom) / 2
