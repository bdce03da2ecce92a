"""Support vector machines together with the factor that was learned for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block, DualProblem
from gpytorch_nkn.estimators.dank.support_vectors.extension import SmoothExtension
from gpytorch_nkn.estimators.dank.support_vectors.solvers import Solution, solve
from gpytorch_nkn.estimators.dank.support_vectors.svm import comparison_steps, solve_machines

__all__ = ["EXTENSIONS", "Learner", "Machines"]

EXTENSIONS = ("smooth", "reciprocal")
_QUICK_TOL, _QUICK_ITER = 1e-3, 50


@dataclass(frozen=True)
class Machines:
    """Machines with a kernel ``k F``.

    Attributes:
        variables: Dual variables of all blocks, ``m``.
        signed: Signed dual coefficients, ``n x P``.
        intercepts: ``P``.
        learned: Dual variables that ``F`` was learned with, ``m``; ``None`` for ``F = 1``.
        solution: Where these come from, if the gap to the maximum was certified.
        extension: ``F`` as a function of inputs; ``None`` where there is none.
        factor: ``F`` between training rows, ``n x n``, for the reciprocal extension alone.
    """

    variables: np.ndarray
    signed: np.ndarray
    intercepts: np.ndarray
    learned: np.ndarray | None = None
    solution: Solution | None = None
    extension: SmoothExtension | None = None
    factor: np.ndarray | None = None

    def outputs(self, cross: np.ndarray, partners: np.ndarray | None = None) -> np.ndarray:
        """Decision values ``M x P``.

        Args:
            cross: Base kernel with training rows, ``M x n``.
            partners: Training rows to take ``F`` from, ``M``, for the reciprocal extension.
        """
        if self.factor is not None:
            cross = cross * self.factor[partners]
        elif self.extension is not None and not self.extension.is_trivial:
            features = self.extension.features(cross)
            cross = cross * self.extension.factor(cross, features, self.extension.features_)
        return cross @ self.signed + self.intercepts


@dataclass(frozen=True)
class Learner:
    """How factors are learned and extended.

    Attributes:
        tau: Weight of the nuclear norm, relative to ``eta``.
        extension: One of ``EXTENSIONS``.
        solver: Key of ``SOLVERS``.
        tol: Relative gap to stop at.
        max_iter: Largest number of steps.
        machine_tol: LIBSVM's tolerance.
    """

    tau: float
    extension: str
    solver: str
    tol: float
    max_iter: int
    machine_tol: float

    def plain(self, gram: np.ndarray, blocks: Sequence[Block]) -> Machines:
        """Machines with the base kernel itself."""
        return self._plain(gram, blocks, {})

    def compared(self, gram: np.ndarray, blocks: Sequence[Block]) -> Machines:
        """The same in a bounded number of steps, for comparisons."""
        return self._plain(gram, blocks, {"max_steps": comparison_steps(len(gram))})

    def _plain(
        self, gram: np.ndarray, blocks: Sequence[Block], options: dict[str, int]
    ) -> Machines:
        variables, intercepts = solve_machines(gram, tuple(blocks), self.machine_tol, **options)
        problem = DualProblem(gram, blocks, 1.0, 0.0)
        return Machines(variables, problem.signed(variables), intercepts)

    def learn(
        self,
        gram: np.ndarray,
        blocks: Sequence[Block],
        eta: float,
        start: np.ndarray,
        spectrum: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Machines:
        """Learn a factor, extend it, and train machines with the kernel that this gives.

        Args:
            gram: Gram matrix of the base kernel, ``n x n``.
            blocks: The machines.
            eta: Weight of the distance of ``F`` from ones, positive.
            start: Dual variables to start from, ``m``.
            spectrum: Eigenvalues and eigenvectors of ``gram``, if they are known.
        """
        problem = DualProblem(gram, blocks, eta, self.tau)
        solution = solve(
            problem,
            problem.project(start),
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        point = solution.point
        if self.extension == "reciprocal":
            intercepts = problem.intercepts(point.products)
            return Machines(
                point.variables,
                point.signed,
                intercepts,
                point.variables,
                solution,
                factor=point.factor.dense(),
            )
        extension = SmoothExtension(gram, point.signed, eta, self.tau, spectrum)
        return self._extended(problem, extension, point.variables, solution)

    def quick(
        self,
        gram: np.ndarray,
        blocks: Sequence[Block],
        eta: float,
        start: np.ndarray,
        spectrum: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Machines:
        """The same without a threshold and to a loose tolerance, for comparisons of ``eta``."""
        if self.extension == "reciprocal":
            return self.learn(gram, blocks, eta, start)
        problem = DualProblem(gram, blocks, eta, 0.0)
        start = problem.project(start)
        learned = solve(
            problem, start, solver="fista", tol=_QUICK_TOL, max_iter=min(self.max_iter, _QUICK_ITER)
        ).point.variables
        extension = SmoothExtension(gram, problem.signed(learned), eta, 0.0, spectrum)
        return self._extended(problem, extension, learned, None, comparison_steps(len(gram)))

    def _extended(
        self,
        problem: DualProblem,
        extension: SmoothExtension,
        learned: np.ndarray,
        solution: Solution | None,
        max_steps: int | None = None,
    ) -> Machines:
        """Machines with the kernel that an extension gives."""
        gram = problem.gram
        if not extension.is_trivial:
            gram = gram * extension.factor(gram, extension.features_, extension.features_)
        options = {} if max_steps is None else {"max_steps": max_steps}
        variables, intercepts = solve_machines(gram, problem.blocks, self.machine_tol, **options)
        signed = problem.signed(variables)
        return Machines(variables, signed, intercepts, learned, solution, extension)
