"""Relevance factor, which shortens the lengthscales of relevant input columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from gpytorch_nkn.estimators.dank.dual import Block, DualProblem
from gpytorch_nkn.estimators.dank.extension import Function
from gpytorch_nkn.estimators.dank.svm import solve_svms

__all__ = ["RelevanceKernel", "relevance_factor", "relevance_path"]

_CUBE = 2**24  # number of differences in memory: 128 MB
_COLUMNS = 100  # largest number of columns with relevances


@dataclass(frozen=True)
class RelevanceKernel:
    r"""Average of the base kernel and a kernel with shorter lengthscales in relevant columns.

    .. math::
        a\, k_m(x, x') \exp\Bigl(-\tfrac{1}{2} \sum_d w_d |x_d - x'_d|^p\Bigr) + (1 - a)\, k(x, x')
    """

    base: Function  # k
    wide: Function  # k_m, the base kernel with m times the lengthscale
    relevances: np.ndarray  # w, D
    power: int  # p, 1 or 2
    share: float = 1.0  # a

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the Gram matrix ``M x N`` of tables ``M x D`` and ``N x D``."""
        factor = relevance_factor(left, right, self.relevances, self.power)
        gram = self.share * self.wide(left, right) * factor
        if self.share < 1.0:
            gram += (1.0 - self.share) * self.base(left, right)
        return gram


@np.errstate(under="ignore")  # small terms vanish
def relevance_factor(
    left: np.ndarray, right: np.ndarray, relevances: np.ndarray, power: int
) -> np.ndarray:
    """Return ``exp(-sum_d w_d |x_d - x'_d|^power / 2)``, ``M x N``, a kernel for powers 1 and 2."""
    return np.exp(-0.5 * cdist(left, right, ("cityblock", "sqeuclidean")[power - 1], w=relevances))


@np.errstate(under="ignore")  # small terms vanish
def relevance_path(
    gram: np.ndarray,
    rows: np.ndarray,
    blocks: Sequence[Block],
    penalties: Sequence[float],
    *,
    scale: float,
    power: int,
    max_iter: int,
    tol: float = 1e-3,
) -> list[np.ndarray]:
    r"""Learn relevances ``w`` (``D``) together with the SVMs, for each decreasing penalty.

    .. math::
        \min_{w \ge 0} \; \frac{J(w)}{J(0)} + \lambda \rho \sum_d w_d, \qquad
        J(w) = \max_u \sum_p \bigl[c_p^\top u_p - \tfrac{1}{2} s_p^\top (F_w \circ K) s_p\bigr]

    The paper's factor minimises the same maximum over another set of factors, with another penalty.
    The penalty is linear in ``w``, so that relevances of irrelevant columns are exactly zero. By
    Danskin's theorem, the gradient of ``J`` equals the gradient of the objective at the SVMs'
    solution. Only the 100 columns with the steepest descent at ``w = 0`` are used (fewer for many
    rows). L-BFGS-B starts each penalty at the previous solution. ``J`` is not convex; the result is
    a minimum near ``w = 0``.

    Args:
        gram, rows, blocks: Gram matrix ``n x n`` and SVMs of the rows ``n x D``.
        penalties, max_iter: Decreasing values of ``lambda``, and iterations for each.
        scale, power: ``rho``, a scale of ``sum_d |x_d - x'_d|^p``, and ``p``, 1 or 2.
        tol: Tolerance of the SVMs.
    """
    problem = DualProblem(gram, blocks)
    used = np.arange(rows.shape[1])
    count = len(rows)

    def optimum(learned: np.ndarray) -> tuple[float, np.ndarray]:
        variables, _ = solve_svms(learned, blocks, tol=tol, quick=True)
        signed = problem.signed(variables)
        quadratic = (signed @ signed.T) * learned
        return float(problem.linear @ variables - 0.5 * quadratic.sum()), quadratic

    first, quadratic = optimum(gram)
    if not first > 0.0:
        return [np.zeros(rows.shape[1])] * len(penalties)
    most = min(_COLUMNS, max(1, _CUBE // count**2))
    if len(used) > most:
        slopes = [np.sum(quadratic * _differences(column, power)) for column in rows.T]
        used = np.sort(np.argsort(slopes, kind="stable")[:most])
    cube = np.stack([_differences(rows[:, column], power).ravel() for column in used])
    slope = 0.25 * cube @ quadratic.ravel()
    relative = np.zeros(len(used))
    path = []
    for penalty in penalties:

        def objective(point: np.ndarray, penalty: float = penalty) -> tuple[float, np.ndarray]:
            value, gradient = first, slope
            if point.any():
                learned = gram * np.exp(-0.5 * (point / scale) @ cube).reshape(count, count)
                value, quadratic = optimum(learned)
                gradient = 0.25 * cube @ quadratic.ravel()
            return value / first + penalty * point.sum(), gradient / (first * scale) + penalty

        relative = minimize(
            objective,
            relative,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(relative),
            options={"maxiter": max_iter, "ftol": 1e-5, "gtol": 1e-5},
        ).x
        weights = np.zeros(rows.shape[1])
        weights[used] = relative / scale
        path.append(weights)
    return path


def _differences(column: np.ndarray, power: int) -> np.ndarray:
    """Return ``|x_i - x_j|^power`` of all pairs of rows, ``n x n``."""
    return np.abs(column[:, None] - column) ** power
