"""Support vector machines whose Gram matrix is never formed: working sets and kernel blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from gpytorch_nkn.support_vectors.sequential import solve_pairs

__all__ = ["DualSolution", "apply_kernel", "solve_dual"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
KernelBlock = Callable[[Rows, Rows], Array]

_TILE = 2**22  # entries of a kernel block made at a time, 32 MB
_STEPS = 1000  # in a working set, times its size: rounding may keep a violation above ``tol``
_FIRST_SIZE = 2048  # of a working set as long as few variables are free


@dataclass(frozen=True)
class DualSolution:
    r"""Solution of :func:`solve_dual`.

    Attributes:
        signed: The variables times their signs, ``m``.
        residual: :math:`l \circ c - K s` at each variable, ``m``; the intercept is not in it.
        intercept: Of the decision function :math:`f(x) = k(x, X) s + b`.
        violation: Largest violation of the optimality conditions, in units of ``f``.
        gap: Primal minus dual value, relative to ``1 + |dual|``.
        dual: Value of the dual.
        num_rounds: Working sets solved.
        num_steps: Pairs of variables updated in all.
    """

    signed: Array
    residual: Array
    intercept: float
    violation: float
    gap: float
    dual: float
    num_rounds: int
    num_steps: int


def solve_dual(
    kernel_block: KernelBlock,
    signs: Array,
    upper: Array,
    *,
    linear: Array | None = None,
    rows: Rows | None = None,
    start: Array | None = None,
    tol: float = 1e-3,
    working_size: int = 8192,
    max_rounds: int = 1000,
    n_jobs: int | None = None,
) -> DualSolution:
    r"""Maximize an SVM's dual with memory for ``working_size`` squared kernel values.

    .. math::
        \max_u\; c^\top u - \tfrac12 s^\top K s, \quad s_r = \sum_{v: r(v) = r} l_v u_v,
        \quad 0 \le u \le C, \quad l^\top u = 0

    Decomposition as in SVMlight with large working sets: all other variables are fixed and enter
    a set's problem through the residual, so bounded support vectors need no place in it. A set
    holds those that violate the optimality conditions most and free variables of the set before;
    sequential minimal optimization solves it from where it stands. The most violating pair is in
    every set, so that the violation falls below any positive ``tol`` after finitely many sets.
    Few are needed if ``working_size`` exceeds the number of free support vectors.

    Args:
        kernel_block: ``kernel_block(i, j)`` returns ``len(i) x len(j)`` kernel values for two
            arrays of row numbers; positive semi-definite as a whole.
        signs: ``m`` signs :math:`l`, 1 or -1: the labels of an SVM.
        upper: ``m`` upper bounds :math:`C`, not below zero.
        linear: ``m`` coefficients :math:`c`; ``None`` means ones.
        rows: ``m`` row numbers of the variables, say two variables per row in a regression;
            ``None`` means one variable per row.
        start: ``m`` signed variables to start from, say those of a similar kernel; brought to
            the feasible set by clipping and by shrinking the heavier sign.
        tol: Stop at a violation of at most this, as LIBSVM does.
        working_size: Most variables in a working set; its kernel takes 8 bytes times the square.
        max_rounds: Most working sets; too few leave ``violation`` above ``tol``.
        n_jobs: Threads for kernel blocks, as joblib's; ``None`` leaves it to its context.

    Raises:
        ValueError: For shapes that differ, signs other than 1 and -1, or bounds below zero.

    Reference: Joachims (1999), Making large-scale SVM learning practical; Fan, Chen and Lin
    (2005), Working set selection using second order information.
    """
    signs, upper, linear, rows = _check(signs, upper, linear, rows, working_size)
    low, high = np.where(signs > 0, 0.0, -upper), np.where(signs > 0, upper, 0.0)
    num_rows = int(rows.max()) + 1
    signed, target = np.zeros(len(signs)), signs * linear
    residual = target.copy()
    if start is not None:
        signed = _feasible(np.asarray(start, dtype=np.float64), low, high)
        residual -= _product(kernel_block, num_rows, rows, signed, n_jobs)[rows]
    order = np.random.default_rng(0).permutation(len(signs))  # ties must not follow the rows
    num_rounds = num_steps = 0
    chosen = np.array([], dtype=np.intp)
    while True:
        can_rise, can_fall = signed < high, signed > low
        top = residual[can_rise].max(initial=-np.inf)
        bottom = residual[can_fall].min(initial=np.inf)
        violation = max(0.0, top - bottom)
        if violation <= tol or num_rounds == max_rounds:
            break
        free = can_rise & can_fall
        size = working_size
        if len(signs) > working_size:
            size = int(np.clip(1.5 * free.sum(), min(_FIRST_SIZE, size), size))
        chosen = _working_set(residual, can_rise, can_fall, chosen, order, size)
        block = kernel_block(rows[chosen], rows[chosen])
        part, part_residual = signed[chosen], residual[chosen]
        whole = len(chosen) == len(signs)
        target_violation = tol if whole else max(tol / 2, violation / 10)
        limit = _STEPS * len(chosen)
        steps = solve_pairs(
            block,
            part_residual,
            part,
            low[chosen],
            high[chosen],
            target_violation,
            max_steps=limit,
        )
        num_steps += steps
        del block
        change = part - signed[chosen]
        moved = np.flatnonzero(change)
        signed[chosen] = part
        if whole:
            residual = part_residual
        else:
            step = _product(kernel_block, num_rows, rows[chosen[moved]], change[moved], n_jobs)
            residual -= step[rows]
        num_rounds += 1
        if whole and steps == limit:
            max_rounds = num_rounds
    intercept = _intercept(residual, signed, low, high)
    quadratic = signed @ (target - residual)
    dual = float(target @ signed - quadratic / 2)
    slack = np.maximum(signs * (residual - intercept), 0)
    gap = float(quadratic / 2 + upper @ slack - dual) / (1 + abs(dual))
    return DualSolution(signed, residual, intercept, violation, gap, dual, num_rounds, num_steps)


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


def _product(
    kernel_block: KernelBlock, num_rows: int, rows: Rows, values: Array, n_jobs: int | None
) -> Array:
    """Kernel of all rows times values at some, equal rows joined and zeros left out."""
    weights = np.bincount(rows, weights=values, minlength=num_rows).astype(np.float64)
    used = np.flatnonzero(weights)
    return apply_kernel(kernel_block, np.arange(num_rows), used, weights[used], n_jobs=n_jobs)


def _check(
    signs: Array, upper: Array, linear: Array | None, rows: Rows | None, working_size: int
) -> tuple[Array, Array, Array, Rows]:
    signs = np.asarray(signs, dtype=np.float64)
    upper = np.asarray(upper, dtype=np.float64)
    linear = np.ones(len(signs)) if linear is None else np.asarray(linear, dtype=np.float64)
    rows = np.arange(len(signs)) if rows is None else np.asarray(rows, dtype=np.intp)
    shapes = [a.shape for a in (signs, upper, linear, rows)]
    if len(set(shapes)) > 1 or signs.ndim != 1 or not len(signs):
        raise ValueError(
            "signs, upper, linear and rows must be vectors of one positive length, got shapes "
            f"{shapes}."
        )
    if not np.isin(signs, (-1, 1)).all():
        raise ValueError(f"signs must be 1 or -1, got {np.unique(signs)[:5]}.")
    if not (upper >= 0).all():
        raise ValueError(f"upper must not be below zero, got {upper.min()}.")
    if working_size < 2:
        raise ValueError(f"working_size must be at least 2, got {working_size}.")
    return signs, upper, linear, rows


def _feasible(start: Array, low: Array, high: Array) -> Array:
    """Clipped to the box; the heavier sign shrunk till the sum is zero."""
    if start.shape != low.shape:
        raise ValueError(f"start must have shape {low.shape}, got {start.shape}.")
    signed = np.clip(start, low, high)
    rise, fall = signed[signed > 0].sum(), -signed[signed < 0].sum()
    if rise > fall:
        signed[signed > 0] *= fall / rise
    elif fall > rise:
        signed[signed < 0] *= rise / fall
    return signed


def _working_set(
    residual: Array, can_rise: Mask, can_fall: Mask, previous: Rows, order: Rows, size: int
) -> Rows:
    """Half new and most violating, half from the previous set: free variables stay together.

    Sets of the worst violators alone zigzag as soon as the free variables outnumber a set.
    """
    if len(residual) <= size:
        return np.arange(len(residual))
    mixed = residual[order]
    rise = order[np.argsort(np.where(can_rise[order], -mixed, np.inf), kind="stable")]
    fall = order[np.argsort(np.where(can_fall[order], mixed, np.inf), kind="stable")]
    both = np.stack([rise, fall], 1).ravel()  # alternating; a free variable is in it twice
    kept = previous[(can_rise & can_fall)[previous]]
    if len(kept):
        both = np.concatenate([both[: max(2, size // 2)], kept, both])
    _, first = np.unique(both, return_index=True)
    return np.sort(both[np.sort(first)[:size]])


def _intercept(residual: Array, signed: Array, low: Array, high: Array) -> float:
    """Mean residual of the free variables; without any, the middle of what is allowed."""
    free = (signed > low) & (signed < high)
    if free.any():
        return float(residual[free].mean())
    top = residual[signed < high].max(initial=-np.inf)
    bottom = residual[signed > low].min(initial=np.inf)
    if np.isinf(top) or np.isinf(bottom):
        return float(bottom if np.isinf(top) else top)
    return float((top + bottom) / 2)
