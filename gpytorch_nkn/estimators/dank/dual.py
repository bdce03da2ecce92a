"""Dual problem of support vector machines with a learned Hadamard factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import brentq

__all__ = [
    "Block",
    "DualProblem",
    "classification_blocks",
    "hadamard_factor",
    "maximize",
    "project_box_hyperplane",
    "regression_blocks",
]

_GROWTH, _DECAY = 2.0, 0.9  # factors of the inverse step size after a failure, after a success
_PATIENCE = 5  # number of steps over which the objective's increase is measured


@dataclass(frozen=True)
class Block:
    """Dual variables ``u`` (``m``) of one SVM with ``0 <= u <= upper`` and ``signs' u = 0``.

    The signed dual coefficient of a training row is the sum of ``signs * u`` over its variables.
    """

    rows: np.ndarray  # training row of each variable, m
    signs: np.ndarray  # 1 or -1, m
    linear: np.ndarray  # linear coefficients of the objective, m
    upper: np.ndarray  # upper bounds, m
    epsilon: float | None = None  # None for classification

    @property
    def count(self) -> int:
        """Number of rows; in regression each row has two variables."""
        return len(self.rows) if self.epsilon is None else len(self.rows) // 2

    @property
    def targets(self) -> np.ndarray:
        """Labels 1 and -1, or targets of a regression, one per row."""
        if self.epsilon is None:
            return self.signs
        return self.linear[: self.count] + self.epsilon

    def restricted(self, rows: np.ndarray) -> Block:
        """Return the SVM of a subset of rows in increasing order, renumbered from 0."""
        kept = np.isin(self.rows, rows)
        numbers = np.searchsorted(rows, self.rows[kept])
        return Block(numbers, self.signs[kept], self.linear[kept], self.upper[kept], self.epsilon)


def classification_blocks(codes: np.ndarray, num_classes: int, upper: np.ndarray) -> list[Block]:
    """Return the one-vs-one SVMs of all pairs of classes, with signs as in ``sklearn.svm.SVC``.

    The first class of a pair is positive; with only two classes, the second class is.
    """
    blocks = []
    for first, second in combinations(range(num_classes), 2):
        rows = np.flatnonzero((codes == first) | (codes == second))
        positive = second if num_classes == 2 else first
        signs = np.where(codes[rows] == positive, 1.0, -1.0)
        blocks.append(Block(rows, signs, np.ones(len(rows)), upper[rows]))
    return blocks


def regression_blocks(targets: np.ndarray, epsilon: float, upper: np.ndarray) -> list[Block]:
    """Return the SVM of epsilon-insensitive regression, with two variables for each target."""
    rows = np.tile(np.arange(len(targets)), 2)
    signs = np.repeat([1.0, -1.0], len(targets))
    linear = np.concatenate([targets, -targets]) - epsilon
    return [Block(rows, signs, linear, np.tile(upper, 2), epsilon)]


def hadamard_factor(gram: np.ndarray, signed: np.ndarray, eta: float) -> np.ndarray:
    r"""Return the minimiser ``F``, ``n x n``, of the dual objective, given ``s``, ``n x P``.

    .. math:: F = 11^\top + \tfrac{1}{4 \eta} \sum_p s_p s_p^\top \circ K

    This is equation (9) of the paper without the threshold of the nuclear norm. ``F`` is always
    positive semi-definite.
    """
    return 1.0 + (signed @ signed.T) * gram / (4.0 * eta)


@dataclass(frozen=True)
class DualPoint:
    """Dual variables ``m`` of all blocks, with their objective and gradient."""

    variables: np.ndarray
    signed: np.ndarray  # n x P, a column for each block
    value: float
    gradient: np.ndarray


def project_box_hyperplane(point: np.ndarray, signs: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the exact nearest point of ``{u : 0 <= u <= upper, signs' u = 0}``.

    The point is ``u(t) = clip(point - t signs, 0, upper)`` for the root ``t`` of ``signs' u(t)``, a
    decreasing piecewise linear function. (The paper's alternating projections end at other points.)
    """
    reach = float(np.abs(point).max(initial=0.0) + upper.max(initial=0.0))
    root = brentq(
        lambda t: signs @ np.clip(point - t * signs, 0.0, upper), -reach, reach, xtol=1e-15
    )
    return np.clip(point - root * signs, 0.0, upper)


class DualProblem:
    r"""Objectives (4) and (22) of the paper: maximum over dual variables, minimum over ``F``.

    .. math::
        \max_u \min_{F \succeq 0} \sum_p \bigl[c_p^\top u_p
            - \tfrac{1}{2} s_p^\top (F \circ K) s_p\bigr]
            + \eta \lVert F - 11^\top \rVert_F^2

    with one block ``p`` and signed dual coefficients ``s_p`` for each SVM. All blocks share one
    ``F`` and thus one kernel. The Gram matrix ``K``, ``n x n``, is symmetric positive
    semi-definite, and ``eta`` is positive.

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels.
    """

    def __init__(self, gram: np.ndarray, blocks: Sequence[Block], eta: float = 1.0):
        self.gram, self.eta = gram, eta
        self.blocks = tuple(blocks)
        self.linear = np.concatenate([block.linear for block in blocks])
        ends = np.cumsum([0, *(len(block.rows) for block in blocks)])
        self.parts = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        self._squares: np.ndarray | None = None

    def project(self, variables: np.ndarray) -> np.ndarray:
        """Return the nearest feasible point, ``m``."""
        return np.concatenate(
            [
                project_box_hyperplane(variables[part], block.signs, block.upper)
                for block, part in zip(self.blocks, self.parts, strict=True)
            ]
        )

    def signed(self, variables: np.ndarray) -> np.ndarray:
        """Return signed dual coefficients ``n x P``."""
        columns = [
            np.bincount(block.rows, block.signs * variables[part], minlength=len(self.gram))
            for block, part in zip(self.blocks, self.parts, strict=True)
        ]
        return np.stack(columns, axis=1)

    def evaluate(self, variables: np.ndarray) -> DualPoint:
        """Compute objective and gradient at dual variables, feasible or not."""
        signed = self.signed(variables)
        change = self._factor_products(signed)
        products = self.gram @ signed + change
        value = self.linear @ variables - np.sum(signed * (0.5 * products - 0.25 * change))
        gradient = [
            block.linear - block.signs * products[block.rows, column]
            for column, block in enumerate(self.blocks)
        ]
        return DualPoint(variables, signed, float(value), np.concatenate(gradient))

    def _factor_products(self, signed: np.ndarray) -> np.ndarray:
        """Return ``((F - 11') o K) s``, ``n x P``, for the optimal ``F``."""
        if self._squares is None:
            self._squares = self.gram**2
        if signed.shape[1] == 1:
            return signed * (self._squares @ signed**2) / (4.0 * self.eta)
        return ((signed @ signed.T) * self._squares) @ signed / (4.0 * self.eta)


def maximize(problem: DualProblem, start: np.ndarray, *, tol: float, max_iter: int) -> DualPoint:
    """Maximise the dual objective by Nesterov's accelerated projected gradients.

    Backtracking permits larger steps than the worst-case constants of the paper's theorems 4 and
    10. Momentum is reset when it decreases the objective. The search stops when the objective's
    relative increase over five steps is below ``tol``.

    Reference: Nesterov (1983), A method of solving a convex programming problem with convergence
    rate O(1/k^2); O'Donoghue and Candes (2015), Adaptive Restart for Accelerated Gradient Schemes.
    """
    best = current = ahead = problem.evaluate(problem.project(start))
    momentum, trace = 1.0, []  # best objective after each step
    constant = float(np.abs(np.diagonal(problem.gram)).max())
    for _ in range(max_iter):
        if not constant > 0.0:
            break
        new, constant = _ascend(problem, ahead, constant)
        best = max(best, new, key=lambda point: point.value)
        trace.append(best.value)
        if len(trace) > _PATIENCE and best.value - trace[-1 - _PATIENCE] <= tol * abs(best.value):
            break
        if ahead.gradient @ (new.variables - current.variables) < 0.0:
            momentum, current = 1.0, max(current, new, key=lambda point: point.value)
            ahead = current
        else:
            larger = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            step = (momentum - 1.0) / larger * (new.variables - current.variables)
            ahead = problem.evaluate(new.variables + step) if momentum > 1.0 else new
            current, momentum = new, larger
        constant *= _DECAY
    return best


def _ascend(problem: DualProblem, point: DualPoint, constant: float) -> tuple[DualPoint, float]:
    """Take a projected gradient step whose quadratic model is a lower bound of the objective."""
    while True:
        target = problem.project(point.variables + point.gradient / constant)
        move = target - point.variables
        new = problem.evaluate(target)
        increase = float(point.gradient @ move - 0.5 * constant * (move @ move))
        if new.value >= point.value + increase - 1e-12 * abs(point.value):
            return new, constant
        constant *= _GROWTH
