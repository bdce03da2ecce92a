"""Sequential minimal optimization: two dual variables at a time, in closed form or nearly so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["solve_pairs", "solve_quartic"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_CURVATURE = 1e-12  # least curvature along a pair: equal rows have none
_LOOK = 16  # steps between tests of the largest violation, a pass over all variables


def solve_pairs(
    kernel: Array,
    residual: Array,
    signed: Array,
    low: Array,
    high: Array,
    tol: float,
    *,
    max_steps: int = 10_000_000,
) -> int:
    r"""Maximize :math:`t^\top s - \tfrac12 s^\top K s` with the sum of ``s`` as it is.

    Args:
        kernel: :math:`K`, ``m x m``.
        residual: :math:`t - K s` at ``signed``, ``m``; updated in place.
        signed: :math:`s` between ``low`` and ``high``, ``m``; updated in place.
        low: Lower bounds, ``m``.
        high: Upper bounds, ``m``.
        tol: Stop when no residual that can still rise exceeds one that can fall by more.
        max_steps: Most pairs to update.

    Returns:
        Pairs updated.

    Reference: Fan, Chen and Lin (2005), Working set selection using second order information.
    """
    diagonal = kernel.diagonal().copy()
    no_rise = np.where(signed < high, 0.0, -np.inf)
    no_fall = np.where(signed > low, 0.0, np.inf)
    first, violation, curvature = np.empty((3, len(signed)))
    for step in range(max_steps):
        i = int(np.add(residual, no_rise, out=first).argmax())
        np.subtract(first[i], residual, out=violation)
        violation -= no_fall
        if step % _LOOK == 0 and not violation.max() > tol:
            return step
        j = _partner(kernel[i], diagonal, violation, i, first, curvature)
        if not violation[j] > 0:
            return step
        rise, fall = high[i] - signed[i], signed[j] - low[j]
        length = min(violation[j] / curvature[j], rise, fall)
        _move(signed, i, j, length, low, high, no_rise, no_fall)
        np.subtract(kernel[i], kernel[j], out=curvature)
        curvature *= length
        residual -= curvature
    return max_steps


def solve_quartic(
    kernel: Array,
    signs: Array,
    upper: Array,
    eta: float,
    *,
    linear: Array | None = None,
    rows: Rows | None = None,
    start: Array | None = None,
    bias: bool = True,
    tol: float = 1e-3,
    max_steps: int = 10_000_000,
) -> Array:
    r"""Maximize the dual with a learned Hadamard factor whose rank is free (``tau = 0``).

    .. math::
        h(u) = c^\top u - \tfrac12 s^\top K s
            - \tfrac{1}{16 \eta} (s^2)^\top (K \circ K)\, s^2,
        \quad s_r = \sum_{v: r(v) = r} l_v u_v, \quad 0 \le u \le C

    and, with a bias, :math:`l^\top u = 0`. The factor at the solution is
    :math:`11^\top + s s^\top \circ K / (4 \eta)`. Each step picks the pair (the variable,
    without a bias) that promises most and goes to the maximum along it, the root of a
    falling cubic.

    Args:
        kernel: :math:`K`, ``n x n``.
        signs: ``m`` signs :math:`l`, 1 or -1.
        upper: ``m`` upper bounds :math:`C`.
        eta: Positive weight of the factor's distance to ones.
        linear: ``m`` coefficients :math:`c`; ``None`` means ones.
        rows: ``m`` row numbers of the variables; ``None`` means one variable per row.
        start: ``m`` feasible signed variables; ``None`` means zeros.
        bias: Whether the signed variables sum to zero.
        tol: Stop at a violation of the optimality conditions of at most this.
        max_steps: Most steps.

    Returns:
        Signed variables :math:`l \circ u`, ``m``.

    Raises:
        ValueError: If ``eta`` is not positive.

    Reference: Liu et al. (2020), Learning Data-adaptive Nonparametric Kernels, equation (18).
    """
    if not eta > 0:
        raise ValueError(f"eta must be positive, got {eta}.")
    low, high = np.where(signs > 0, 0.0, -upper), np.where(signs > 0, upper, 0.0)
    where = np.arange(len(signs)) if rows is None else rows
    signed = np.zeros(len(signs)) if start is None else start.astype(np.float64)
    rows_signed = np.bincount(where, signed, len(kernel)).astype(np.float64)
    state = _Quartic(kernel, rows_signed, eta)
    target = signs * (np.ones(len(signs)) if linear is None else linear)
    diagonal = state.kernel.diagonal()[where]
    no_rise = np.where(signed < high, 0.0, -np.inf)
    no_fall = np.where(signed > low, 0.0, np.inf)
    first, violation, curvature = np.empty((3, len(signs)))
    for step in range(max_steps):
        slope = state.slope()
        residual = target - (slope if rows is None else slope[rows])
        np.add(residual, no_rise, out=first)
        np.subtract(residual, -no_fall, out=violation)  # of the falling: to be small
        i = int(first.argmax())
        if bias:
            np.subtract(first[i], violation, out=violation)
            if step % _LOOK == 0 and not violation.max() > tol:
                break
            row = kernel[i] if rows is None else kernel[where[i]][where]
            j = _partner(row, diagonal, violation, i, first, curvature)
            if not violation[j] > 0:
                break
        else:
            j = int(violation.argmin())
            if max(first[i], -violation[j]) <= tol:
                break
            i, j = (i, -1) if first[i] >= -violation[j] else (-1, j)
        rise = high[i] - signed[i] if i >= 0 else np.inf
        fall = signed[j] - low[j] if j >= 0 else np.inf
        gain = (residual[i] if i >= 0 else 0.0) - (residual[j] if j >= 0 else 0.0)
        a, b = (int(where[k]) if k >= 0 else -1 for k in (i, j))
        length = state.length(a, b, gain, min(rise, fall), tol)
        _move(signed, i, j, length, low, high, no_rise, no_fall)
        state.move(a, b, length)
    return signed


class _Quartic:
    """``K s`` and ``(K o K) s^2`` for ``s`` that changes in two entries at a time."""

    def __init__(self, kernel: Array, signed: Array, eta: float):
        self.kernel, self.squared, self.scale = kernel, kernel * kernel, 4.0 * eta
        self.signed = signed
        self.linear = kernel @ signed
        self.spread = self.squared @ signed**2
        self._work = np.empty_like(signed)

    def slope(self) -> Array:
        """Gradient of the quadratic and quartic terms, ``n``."""
        np.multiply(self.signed, self.spread, out=self._work)
        self._work /= self.scale
        self._work += self.linear
        return self._work

    def length(self, a: int, b: int, gain: float, limit: float, tol: float) -> float:
        """Where the derivative along ``s_a`` up, ``s_b`` down is zero; -1 stands for none.

        The derivative falls, for ``h`` is concave: Newton's method between bounds of the root.
        """
        moved = [(k, sign) for k, sign in ((a, 1.0), (b, -1.0)) if k >= 0]
        if a == b:  # up and down variables of one row of a regression
            return limit
        curvature = sum(p * q * float(self.kernel[k, m]) for k, p in moved for m, q in moved)
        start = [(float(self.signed[k]), float(self.spread[k])) for k, _ in moved]
        cross = [[float(self.squared[k, m]) for m, _ in moved] for k, _ in moved]

        def derivatives(t: float) -> tuple[float, float]:
            value, second = gain - curvature * t, -curvature
            now = [s + sign * t for (s, _), (_, sign) in zip(start, moved, strict=True)]
            for p, (_, sign) in enumerate(moved):
                spread, turn = start[p][1], 0.0
                for q, (_, other) in enumerate(moved):
                    spread += cross[p][q] * (now[q] ** 2 - start[q][0] ** 2)
                    turn += cross[p][q] * 2.0 * now[q] * other
                value -= sign * (now[p] * spread - start[p][0] * start[p][1]) / self.scale
                second -= (spread + sign * now[p] * turn) / self.scale
            return value, second

        if derivatives(limit)[0] >= 0.0:
            return limit
        left, right, t = 0.0, limit, 0.0
        for _ in range(60):
            value, second = derivatives(t)
            left, right = (t, right) if value > 0 else (left, t)
            if abs(value) <= 1e-3 * tol:
                break
            t = t - value / second if second < 0 else right
            if not left < t < right:
                t = (left + right) / 2
        return t

    def move(self, a: int, b: int, length: float) -> None:
        if a == b:
            return
        for k, change in ((a, length), (b, -length)):
            if k >= 0:
                before = self.signed[k]
                self.signed[k] += change
                np.multiply(self.kernel[k], change, out=self._work)
                self.linear += self._work
                np.multiply(self.squared[k], self.signed[k] ** 2 - before**2, out=self._work)
                self.spread += self._work


def _partner(
    row: Array, diagonal: Array, violation: Array, i: int, gain: Array, curvature: Array
) -> int:
    """Partner of ``i`` with the largest gain of the quadratic; fills gains and curvatures."""
    np.multiply(row, -2.0, out=curvature)
    curvature += diagonal
    curvature += diagonal[i]
    np.maximum(curvature, _CURVATURE, out=curvature)
    np.maximum(violation, 0.0, out=gain)
    gain *= gain
    gain /= curvature
    return int(gain.argmax())


def _move(
    signed: Array,
    i: int,
    j: int,
    length: float,
    low: Array,
    high: Array,
    no_rise: Array,
    no_fall: Array,
) -> None:
    """Raise variable ``i`` and lower ``j`` (-1 for none); at a bound the value is the bound."""
    if i >= 0:
        at_bound = length >= high[i] - signed[i]
        signed[i] = high[i] if at_bound else signed[i] + length
        no_rise[i], no_fall[i] = (-np.inf if at_bound else 0.0), 0.0
    if j >= 0:
        at_bound = length >= signed[j] - low[j]
        signed[j] = low[j] if at_bound else signed[j] - length
        no_fall[j], no_rise[j] = (np.inf if at_bound else 0.0), 0.0
