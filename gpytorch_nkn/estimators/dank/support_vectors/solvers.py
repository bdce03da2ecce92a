"""Solvers of the dual problem, which stop when the gap to its maximum is certified."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.dual import DualPoint, DualProblem
from gpytorch_nkn.estimators.dank.support_vectors.svm import (
    comparison_steps,
    solve_quadratic,
    solve_svms,
)

__all__ = ["SOLVERS", "DualOptimum", "lipschitz_constant", "newton_target", "solve"]

_GROWTH, _DECAY = 2.0, 0.9  # of the step constant
_FIRST_LOOK, _LOOK_GROWTH = 10, 1.5  # iterations between certificates by an SVM
_GOOD = 0.5  # of the gap is left after one that is worth another at once
_FIRST_TOL, _LEAST_TOL = 1e-3, 1e-7  # of LIBSVM, from one certificate to the next


@dataclass
class DualOptimum:
    """Where a solver came to.

    Attributes:
        point: The best dual variables, with their factor.
        gap: Certified bound of what the objective lacks to its maximum.
        relative_gap: ``gap`` over the absolute value of the objective of the SVMs.
        iterations: Steps taken.
        converged: Whether ``relative_gap`` is within the tolerance.
        trace: Objective after each iteration.
    """

    point: DualPoint
    gap: float
    relative_gap: float
    iterations: int = 0
    converged: bool = False
    trace: list[float] = field(default_factory=list)


class _Best:
    """The best feasible point so far, and the least gap of any."""

    def __init__(self, problem: DualProblem, point: DualPoint, tol: float):
        self.problem, self.tol = problem, tol
        self.point, self.bound = point, math.inf
        self.trace = [point.value]
        self.machine_tol = _FIRST_TOL
        self.offer(point)

    def offer(self, point: DualPoint) -> None:
        """Take the point if it is better; its kernel bounds the maximum either way."""
        self.bound = min(self.bound, point.value + self.problem.gap(point))
        if point.value > self.point.value:
            self.point = point

    def certify(self) -> None:
        """Bound the maximum by SVMs at the factor of the best point."""
        problem, point = self.problem, self.point
        gram = point.factor.dense() * problem.gram
        steps = comparison_steps(len(gram))
        target, _ = solve_svms(gram, problem.blocks, self.machine_tol, max_steps=steps)
        signed = problem.signed(target)
        primal = problem.primal(signed, gram @ signed)
        self.bound = min(self.bound, primal + point.factor.penalty)

    def jump(self) -> DualPoint | None:
        """Search along Newton's step from the best point.

        Returns:
            Where it ends, if that is better.
        """
        problem, point = self.problem, self.point
        target = newton_target(problem, point, self.machine_tol)
        self.machine_tol = max(0.3 * self.machine_tol, _LEAST_TOL)
        ascent = float(point.gradient @ (target - point.variables))
        if ascent <= 0.0:
            return None
        share = 1.0
        while share > 1e-3:
            trial = problem.evaluate(point.variables + share * (target - point.variables))
            if trial.value > point.value + 0.1 * share * ascent:
                self.offer(trial)
                return trial
            share *= 0.3
        return None

    @property
    def gap(self) -> float:
        return max(self.bound - self.point.value, 0.0)

    @property
    def relative_gap(self) -> float:
        size = abs(self.point.value - self.point.factor.penalty)
        return self.gap / size if size else (0.0 if not self.gap else math.inf)

    def solution(self, iterations: int) -> DualOptimum:
        relative = self.relative_gap
        self.trace[-1] = self.point.value
        return DualOptimum(
            self.point, self.gap, relative, iterations, relative <= self.tol, self.trace
        )


def fista(problem: DualProblem, start: np.ndarray, tol: float, max_iter: int) -> DualOptimum:
    """Accelerated projected gradients, with the step found by backtracking.

    Momentum starts anew when it points downhill. Now and then, and as long as that pays, Newton's
    step from the best point is searched, and SVMs with its kernel are solved, which certifies
    how good it is.

    Reference: Beck and Teboulle (2009), A Fast Iterative Shrinkage-Thresholding Algorithm;
    O'Donoghue and Candes (2015), Adaptive Restart for Accelerated Gradient Schemes.
    """
    current = problem.evaluate(start)
    best = _Best(problem, current, tol)
    ahead, momentum = current, 1.0
    constant = float(np.abs(np.diagonal(problem.gram)).max())
    look, pause = 0, _FIRST_LOOK
    if not problem.blocks[0].bias:  # LIBSVM solves no quadratic programs: gradients do alone
        look = max_iter
    iteration = 0
    while best.relative_gap > tol and iteration < max_iter:
        if iteration >= look:
            before = best.gap
            jump = best.jump()
            if jump is not None:
                current, ahead, momentum = jump, jump, 1.0
            if best.relative_gap > tol:
                best.certify()
            if best.gap > _GOOD * before:  # else such steps are the better ones
                look, pause = iteration + pause, math.ceil(_LOOK_GROWTH * pause)
            if best.relative_gap <= tol:
                break
        iteration += 1
        new, constant = _ascend(problem, ahead, constant)
        best.offer(new)
        if ahead.gradient @ (new.variables - current.variables) < 0.0:
            momentum, ahead = 1.0, current if current.value > new.value else new
            current = ahead
        else:
            grown = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            step = (momentum - 1.0) / grown * (new.variables - current.variables)
            ahead = problem.evaluate(new.variables + step) if momentum > 1.0 else new
            current, momentum = new, grown
        constant *= _DECAY
        best.trace.append(best.point.value)
    if best.relative_gap > tol:
        best.certify()
    return best.solution(iteration)


def _ascend(problem: DualProblem, point: DualPoint, constant: float) -> tuple[DualPoint, float]:
    """A projected gradient step whose model bounds the objective from below."""
    while True:
        target = problem.project(point.variables + point.gradient / constant)
        move = target - point.variables
        new = problem.evaluate(target)
        model = point.gradient @ move - 0.5 * constant * (move @ move)
        slack = 1e-12 * (abs(point.value) + abs(point.value - point.factor.penalty))
        if new.value >= point.value + model - slack:
            return new, constant
        constant *= _GROWTH


def nesterov(problem: DualProblem, start: np.ndarray, tol: float, max_iter: int) -> DualOptimum:
    """The paper's algorithms 1 and 2, with its step constant; mended where they err.

    Steps of ``beta`` go up the gradient (line 7 has them go down), projections are exact, and what
    stops is the certified gap: a change of 1e-4 can be seen in the first step already.

    Reference: Nesterov (2005), Smooth minimization of non-smooth functions; theorems 4 and 10.
    """
    constant = lipschitz_constant(problem)
    current = problem.evaluate(start)
    best = _Best(problem, current, tol)
    weighted = np.zeros_like(start)
    look = _FIRST_LOOK
    iteration = 0
    while best.relative_gap > tol and iteration < max_iter:
        theta = problem.project(current.variables + current.gradient / constant)
        weighted += 0.5 * (iteration + 1) * current.gradient
        beta = problem.project(start + weighted / constant)
        share = 2.0 / (iteration + 3)
        current = problem.evaluate((1.0 - share) * theta + share * beta)
        iteration += 1
        best.offer(current)
        best.trace.append(current.value)
        if iteration >= look and best.relative_gap > tol:
            best.certify()
            look = math.ceil(_LOOK_GROWTH * look)
    return best.solution(iteration)


def newton_target(problem: DualProblem, point: DualPoint, tol: float) -> np.ndarray:
    r"""Where Newton's step ends: feasible dual variables ``m`` that maximise a quadratic model.

    The model has the gradient ``g`` of ``h`` at ``s``, and with ``M = K \circ K`` the curvature

    .. math::
        B_p = F \circ K + \tfrac{1}{4 \eta}
            \bigl[\operatorname{diag}(M s_p^2) + \operatorname{diag}(s_p) M \operatorname{diag}(s_p)
            \bigr]

    which is minus the Hessian for one SVM and ``tau = 0``. A threshold lessens the second part;
    between SVMs of several classes it is left out, so the way to the target must be searched.

    One quadratic program for each SVM, by LIBSVM at the tolerance ``tol``.
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
        steps = comparison_steps(block.count)
        parts.append(solve_quadratic(block, curvature, slope, tol, steps))
    return np.concatenate(parts)


def lipschitz_constant(problem: DualProblem) -> float:
    """Bound of how fast the gradient changes, of theorem 4, or of theorem 10 for regression."""
    gram, step = problem.gram, problem.step
    largest = float(np.abs(gram).max())
    norm = float(np.linalg.norm(gram)) / (4.0 * step.eta)
    if problem.blocks[0].epsilon is None:
        return largest * (len(gram) + 3.0 * float(problem.upper @ problem.upper) * norm)
    squares = 0.5 * float(problem.upper @ problem.upper)
    return 2.0 * largest * (len(gram) + 9.0 * squares * norm)


SOLVERS: dict[str, Callable[[DualProblem, np.ndarray, float, int], DualOptimum]] = {
    "fista": fista,
    "nesterov": nesterov,
}


def solve(
    problem: DualProblem, start: np.ndarray, *, solver: str, tol: float, max_iter: int
) -> DualOptimum:
    """Maximise the dual objective from a feasible start, to a relative gap."""
    return SOLVERS[solver](problem, start, tol, max_iter)
