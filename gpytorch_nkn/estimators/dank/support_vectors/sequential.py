"""Sequential minimal optimization: two dual variables at a time, in closed form or nearly so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["one_sided_terms", "solve_pairs", "solve_quartic"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_CURVATURE = 1e-12  # least curvature along a pair: equal rows have none
_LOOK = 16  # steps between tests of the largest violation, a pass over all variables
_NOTHING = (0.0, 0.0, 0.0, 0.0)


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
    r"""Maximize a quadratic with the sum of ``s`` as it is.

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

    Reference: Fan, Chen and Lin (2005), Working set selection using second order information.
    """
    diagonal = kernel.diagonal().copy()
    rise, fall = one_sided_terms(signed, low, high, epsilon)
    first, violation, curvature = np.empty((3, len(signed)))
    for step in range(max_steps):
        i = int(np.add(residual, rise, out=first).argmax())
        np.subtract(first[i], residual, out=violation)
        violation -= fall
        if step % _LOOK == 0 and not violation.max() > tol:
            return step
        j = _partner(kernel[i], diagonal, violation, i, first, curvature)
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


def one_sided_terms(signed: Array, low: Array, high: Array, epsilon: float) -> tuple[Array, Array]:
    r"""What the residual lacks of one-sided derivatives of the objective of :func:`solve_pairs`.

    Returns:
        Terms of derivatives upwards, negative infinity at an upper bound, ``m``; and of those
        downwards, infinity at a lower bound, ``m``.
    """
    rise = np.where(signed < high, np.where(signed < 0.0, epsilon, -epsilon), -np.inf)
    fall = np.where(signed > low, np.where(signed > 0.0, -epsilon, epsilon), np.inf)
    return rise, fall


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

        It is a cubic that falls, for ``h`` is concave: Newton's method between bounds of the root.
        """
        if a == b:  # up and down variables of one row of a regression
            return limit
        s, p, k, q = (x.item for x in (self.signed, self.spread, self.kernel, self.squared))
        sa, pa, kaa, qaa = (s(a), p(a), k(a, a), q(a, a)) if a >= 0 else _NOTHING
        sb, pb, kbb, qbb = (s(b), p(b), k(b, b), q(b, b)) if b >= 0 else _NOTHING
        kab, qab = (k(a, b), q(a, b)) if a >= 0 and b >= 0 else (0.0, 0.0)
        # Changes of the spread at a and b are up t + (qaa + qab) t^2, down t + (qab + qbb) t^2.
        up, down = 2.0 * (qaa * sa - qab * sb), 2.0 * (qab * sa - qbb * sb)
        third = -(qaa + 2.0 * qab + qbb) / self.scale
        second = -(sa * (qaa + qab) - sb * (qab + qbb) + up + down) / self.scale
        first = 2.0 * kab - kaa - kbb - (pa + pb + sa * up - sb * down) / self.scale
        if ((third * limit + second) * limit + first) * limit + gain >= 0.0:
            return limit
        left, right, t = 0.0, limit, 0.0
        for _ in range(60):
            value = ((third * t + second) * t + first) * t + gain
            left, right = (t, right) if value > 0 else (left, t)
            if abs(value) <= 1e-3 * tol:
                break
            slope = (3.0 * third * t + 2.0 * second) * t + first
            t = t - value / slope if slope < 0 else right
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
