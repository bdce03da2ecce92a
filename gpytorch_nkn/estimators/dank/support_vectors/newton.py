"""Newton's step of the dual problem: one quadratic program for each machine, by LIBSVM."""

from __future__ import annotations

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block, DualPoint, DualProblem
from gpytorch_nkn.estimators.dank.support_vectors.svm import comparison_steps, solve_regression

__all__ = ["newton_target"]

_FAR = 1e3  # times the range of targets, of the row that takes up the sum


def newton_target(problem: DualProblem, point: DualPoint, tol: float) -> np.ndarray:
    r"""Feasible dual variables ``m`` that maximise a quadratic model of the objective.

    The model has the gradient ``g`` of ``h`` at ``s``, and with ``M = K \circ K`` the curvature

    .. math::
        B_p = F \circ K + \tfrac{1}{4 \eta}
            \bigl[\operatorname{diag}(M s_p^2) + \operatorname{diag}(s_p) M \operatorname{diag}(s_p)
            \bigr]

    which is minus the Hessian for one machine and ``tau = 0``. A threshold lessens the second part;
    between machines of several classes it is left out, so the way to the target must be searched.

    Args:
        problem: The problem.
        point: Where the model touches the objective.
        tol: LIBSVM's tolerance, relative to the labels or the deviation of the targets.
    """
    learned = point.factor.dense() * problem.gram
    squares = problem.gram**2
    parts = []
    for column, block in enumerate(problem.blocks):
        signed = point.signed[:, column]
        curved = (signed[:, None] * signed) * squares
        curved[np.diag_indices_from(curved)] += squares @ signed**2
        curvature = learned + curved / (4.0 * problem.step.eta)
        slope = curvature @ signed - point.products[:, column]
        parts.append(_maximise(block, curvature, slope, tol))
    return np.concatenate(parts)


def _maximise(block: Block, curvature: np.ndarray, slope: np.ndarray, tol: float) -> np.ndarray:
    """Variables of one machine that maximise ``c'u + slope's - s'Bs / 2``."""
    if block.epsilon is not None:
        count = len(block.rows) // 2
        targets = block.linear[:count] + block.epsilon + slope
        signed = solve_regression(
            curvature,
            targets,
            block.upper[:count],
            block.epsilon,
            tol * (float(np.std(block.linear[:count])) or 1.0),
            comparison_steps(count),
        )
        both = np.concatenate([np.maximum(signed, 0.0), np.maximum(-signed, 0.0)])
        return np.minimum(both, block.upper)
    # Signed variables lie between 0 and C or -C and 0. From the middle m of that on it is a
    # regression without a tube, but for their sum, which one more row takes up, far away.
    inner = curvature[np.ix_(block.rows, block.rows)]
    middle = 0.5 * block.signs * block.upper
    targets = block.signs * block.linear + slope[block.rows] - inner @ middle
    total, count = float(middle.sum()), len(middle)
    widened = np.zeros((count + 1, count + 1))
    widened[:count, :count] = inner
    reach = float(np.abs(inner).sum(axis=1).max()) * float(block.upper.max())
    far = np.sign(total) * _FAR * (float(np.abs(targets).max()) + reach)
    used = slice(0, count + 1 if total else count)
    moved = solve_regression(
        np.ascontiguousarray(widened[used, used]),
        np.append(targets, far)[used],
        np.append(0.5 * block.upper, abs(total))[used],
        0.0,
        tol,
        comparison_steps(count),
    )[:count]
    return np.clip(block.signs * (middle + moved), 0.0, block.upper)
