"""A learned factor that narrows the kernel along the inputs that matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block, DualProblem
from gpytorch_nkn.estimators.dank.support_vectors.svm import solve_svms

__all__ = ["RelevanceKernel", "RelevanceTerm", "relevance_factor", "relevance_path"]

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]

_CUBE = 2**24  # differences that are kept, 128 MB
_COLUMNS = 100  # with relevances, at most
# Of LIBSVM at one point of a path, whose slope need not be exact.
_STEPS, _STEPS_OF_A_ROW = 3000, 30


@dataclass(frozen=True)
class RelevanceTerm:
    r"""A kernel that is narrowed along the inputs that matter.

    .. math::
        a\, k_m(x, x') \exp\Bigl(-\tfrac{1}{2} \sum_d w_d |x_d - x'_d|^p\Bigr)

    Attributes:
        share: ``a``, positive.
        wide: ``k_m``.
        weights: Relevances ``w``, ``D``.
        power: ``p``, 1 or 2.
    """

    share: float
    wide: Function
    weights: np.ndarray
    power: int

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        factor = relevance_factor(left, right, self.weights, self.power)
        return self.share * self.wide(left, right) * factor


@dataclass(frozen=True)
class RelevanceKernel:
    """Base kernel and kernels with relevances, in shares that sum to one.

    All summands are kernels, so the sum is.

    Attributes:
        base: The base kernel.
        share: Its share.
        terms: The others.
    """

    base: Function
    share: float
    terms: tuple[RelevanceTerm, ...]

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` between tables ``M x D`` and ``N x D``."""
        gram = np.zeros((len(left), len(right)))
        if self.share:
            gram += self.share * self.base(left, right)
        for term in self.terms:
            gram += term(left, right)
        return gram

    @property
    def is_definite(self) -> bool:
        """Whether the base kernel is known to be positive semi-definite, hence this one."""
        return bool(getattr(self.base, "is_definite", False))

    @property
    def relevances(self) -> np.ndarray:
        """Mean of the relevances over the kernels in the sum, by their shares, ``D``."""
        return np.sum([term.share * term.weights for term in self.terms], axis=0)


@np.errstate(under="ignore")  # small terms vanish
def relevance_factor(
    left: np.ndarray, right: np.ndarray, relevances: np.ndarray, power: int
) -> np.ndarray:
    """``exp(-sum_d w_d |x_d - x'_d|^power / 2)``, ``M x N``: a kernel for powers 1 and 2."""
    return np.exp(-0.5 * _weighted(left, right, relevances, power))


def relevance_path(
    gram: np.ndarray,
    rows: np.ndarray,
    blocks: Sequence[Block],
    penalties: Sequence[float],
    *,
    scale: float,
    power: int,
    tol: float,
    max_iter: int,
) -> list[np.ndarray]:
    r"""Relevances that are learned with the SVMs, for falling penalties.

    .. math::
        \min_{w \ge 0} \; \frac{J(w)}{J(0)} + \lambda \rho \sum_d w_d, \qquad
        J(w) = \max_u \sum_p \bigl[c_p^\top u_p - \tfrac{1}{2} s_p^\top (F_w \circ K) s_p\bigr]

    as the learned factor of the paper is the minimiser of the same maximum, with another set of
    factors and another penalty: ``F_w`` is positive semi-definite for any ``w``, one for
    ``w = 0``, and a function of inputs from the outset. The penalty, linear in ``w``, makes
    relevances of inputs that do not help exactly zero. By Danskin's theorem the gradient of ``J``
    is that at the SVMs' solution. Of more than 100 columns those take part whose relevance has
    the steepest descent at 0. Minimised by L-BFGS-B, each penalty from where the one before
    ended. ``J`` is not convex in ``w``, so what is found is a minimum next to ``w = 0``.

    Args:
        gram: ``K``, ``n x n``.
        rows: Inputs ``n x D``.
        blocks: The SVMs.
        penalties: Values of ``lambda``, falling.
        scale: ``rho``, in units of the differences to their power: makes penalties free of units.
        power: ``p`` of the factor, 1 or 2.
        tol: LIBSVM's tolerance.
        max_iter: Iterations for each penalty.

    Returns:
        ``w`` for each penalty, ``D``.
    """
    problem = DualProblem(gram, blocks, 1.0, 0.0)
    if rows.shape[1] > _COLUMNS:
        variables, _ = solve_svms(gram, problem.blocks, tol)
        signed = problem.signed(variables)
        slopes = _Differences(rows, power).sums((signed @ signed.T) * gram)
        used = np.sort(np.argsort(slopes, kind="stable")[:_COLUMNS])
        options: dict[str, Any] = {"scale": scale, "power": power, "tol": tol, "max_iter": max_iter}
        wide = np.zeros((len(penalties), rows.shape[1]))
        wide[:, used] = relevance_path(gram, rows[:, used], blocks, penalties, **options)
        return list(wide)
    differences = _Differences(rows, power)

    @np.errstate(under="ignore")  # small terms vanish
    def optimum(weights: np.ndarray) -> tuple[float, np.ndarray]:
        learned = gram * np.exp(-0.5 * differences.weighted(weights))
        variables, _ = solve_svms(
            learned, problem.blocks, tol, max_steps=_STEPS + _STEPS_OF_A_ROW * len(rows)
        )
        signed = problem.signed(variables)
        quadratic = (signed @ signed.T) * learned
        value = problem.linear @ variables - 0.5 * quadratic.sum()
        return float(value), 0.25 * differences.sums(quadratic)

    first, slope = optimum(np.zeros(rows.shape[1]))
    if not first > 0.0:
        return [np.zeros(rows.shape[1])] * len(penalties)
    relative = np.zeros(rows.shape[1])
    path = []
    for penalty in penalties:

        def objective(point: np.ndarray, penalty: float = penalty) -> tuple[float, np.ndarray]:
            if not point.any():
                value, gradient = first, slope
            else:
                value, gradient = optimum(point / scale)
            return value / first + penalty * point.sum(), gradient / (first * scale) + penalty

        relative = minimize(
            objective,
            relative,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(relative),
            options={"maxiter": max_iter, "ftol": 1e-5, "gtol": 1e-5},
        ).x
        path.append(relative / scale)
    return path


def _weighted(left: np.ndarray, right: np.ndarray, weights: np.ndarray, power: int) -> np.ndarray:
    """``sum_d w_d |x_d - x'_d|^power``, ``M x N``."""
    used = np.flatnonzero(weights)
    if power == 1:
        total = np.zeros((len(left), len(right)))
        for column in used:
            total += weights[column] * np.abs(left[:, column, None] - right[:, column])
        return total
    scale = np.sqrt(weights[used])
    middle = right[:, used].mean(axis=0) if len(right) else 0.0  # for accuracy
    a, b = (left[:, used] - middle) * scale, (right[:, used] - middle) * scale
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T, 0.0)


class _Differences:
    """``|x_id - x_jd|^power`` of all pairs of rows: sums of columns, and over pairs."""

    def __init__(self, rows: np.ndarray, power: int):
        self.rows, self.power = rows, power
        self._cube: np.ndarray | None = None
        if power == 1 and rows.shape[1] * len(rows) ** 2 <= _CUBE:
            columns = rows.T
            self._cube = np.abs(columns[:, :, None] - columns[:, None, :]).reshape(len(columns), -1)

    def weighted(self, weights: np.ndarray) -> np.ndarray:
        """``sum_d w_d |x_id - x_jd|^power``, ``n x n``."""
        if self._cube is None:
            return _weighted(self.rows, self.rows, weights, self.power)
        return (weights @ self._cube).reshape(len(self.rows), -1)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """``sum_ij Q_ij |x_id - x_jd|^power`` for every column, with a symmetric ``Q``."""
        if self._cube is not None:
            return self._cube @ values.ravel()
        if self.power == 2:
            centred = self.rows - self.rows.mean(axis=0)
            own = values.sum(axis=1) @ centred**2
            return 2.0 * (own - np.sum(centred * (values @ centred), axis=0))
        return np.array(
            [np.sum(values * np.abs(column[:, None] - column)) for column in self.rows.T]
        )
