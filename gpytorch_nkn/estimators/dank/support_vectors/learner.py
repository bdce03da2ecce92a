"""SVMs together with the factor that was learned for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block, DualProblem
from gpytorch_nkn.estimators.dank.support_vectors.extension import SmoothExtension
from gpytorch_nkn.estimators.dank.support_vectors.solvers import DualOptimum, solve
from gpytorch_nkn.estimators.dank.support_vectors.svm import (
    MAX_STEPS,
    comparison_steps,
    solve_svms,
)

__all__ = ["EXTENSIONS", "LEAST_ETA", "FittedSVMs", "Learner"]

EXTENSIONS = ("smooth", "reciprocal")
LEAST_ETA = 1e-12  # over the squared norm of dual variables
_QUICK_TOL, _QUICK_ITER = 1e-3, 50

Spectrum = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class FittedSVMs:
    """SVMs with a kernel ``k F``.

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
    solution: DualOptimum | None = None
    extension: SmoothExtension | None = None
    factor: np.ndarray | None = None

    @property
    def norm(self) -> float:
        """Squared norm of the dual variables: the paper's ``eta``."""
        return float(self.variables @ self.variables)

    def outputs(self, cross: np.ndarray, partners: np.ndarray | None = None) -> np.ndarray:
        """Decision values ``M x P``, by the base kernel with training rows, ``M x n``.

        The reciprocal extension takes ``F`` from partners ``M`` among the training rows.
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

    tau: float = 0.0
    extension: str = "smooth"
    solver: str = "fista"
    tol: float = 1e-5
    max_iter: int = 1000
    machine_tol: float = 1e-3

    def plain(
        self, gram: np.ndarray, blocks: Sequence[Block], max_steps: int = MAX_STEPS
    ) -> FittedSVMs:
        """SVMs with the base kernel itself."""
        variables, intercepts = solve_svms(gram, blocks, self.machine_tol, max_steps=max_steps)
        problem = DualProblem(gram, blocks, 1.0, 0.0)
        return FittedSVMs(variables, problem.signed(variables), intercepts)

    def compared(self, gram: np.ndarray, blocks: Sequence[Block]) -> FittedSVMs:
        """The same in a bounded number of steps, for comparisons."""
        return self.plain(gram, blocks, comparison_steps(len(gram)))

    def learn(
        self, gram: np.ndarray, blocks: Sequence[Block], eta: float, start: np.ndarray
    ) -> FittedSVMs:
        """Learn a factor, extend it, and train SVMs with the kernel that this gives.

        Args:
            gram: Gram matrix of the base kernel, ``n x n``.
            blocks: The SVMs.
            eta: Weight of the distance of ``F`` from ones, positive.
            start: Dual variables of SVMs with the base kernel, to start from, ``m``.

        Raises:
            ValueError: ``eta`` is too small for ``F`` to be computed.
        """
        problem, solution = self._solve(gram, blocks, eta, start)
        point = solution.point
        if self.extension == "reciprocal":
            return FittedSVMs(
                point.variables,
                point.signed,
                problem.intercepts(point.products),
                point.variables,
                solution,
                factor=point.factor.dense(),
            )
        extension = SmoothExtension(gram, point.signed, eta, self.tau)
        return self._extended(problem, extension, point.variables, solution)

    def factor(
        self, gram: np.ndarray, blocks: Sequence[Block], eta: float, start: np.ndarray
    ) -> SmoothExtension:
        """The extended factor alone; arguments as of :meth:`learn`."""
        signed = self._solve(gram, blocks, eta, start)[1].point.signed
        return SmoothExtension(gram, signed, eta, self.tau)

    def quick(
        self,
        gram: np.ndarray,
        blocks: Sequence[Block],
        eta: float,
        start: np.ndarray,
        spectrum: Spectrum | None = None,
    ) -> FittedSVMs:
        """The same as :meth:`learn` without a threshold and loosely, to compare ``eta``."""
        if self.extension == "reciprocal":
            return self.learn(gram, blocks, eta, start)
        problem = DualProblem(gram, blocks, eta, 0.0)
        start = problem.project(start)
        learned = solve(
            problem, start, solver="fista", tol=_QUICK_TOL, max_iter=min(self.max_iter, _QUICK_ITER)
        ).point.variables
        extension = SmoothExtension(gram, problem.signed(learned), eta, 0.0, spectrum)
        return self._extended(problem, extension, learned, None, comparison_steps(len(gram)))

    def _solve(
        self, gram: np.ndarray, blocks: Sequence[Block], eta: float, start: np.ndarray
    ) -> tuple[DualProblem, DualOptimum]:
        least = LEAST_ETA * float(start @ start)
        if eta < least:
            raise ValueError(
                f"eta is too small for F to be computed: it must be at least {least:g} here, "
                f"got {eta:g}."
            )
        problem = DualProblem(gram, blocks, eta, self.tau)
        start = problem.project(start)
        return problem, solve(
            problem, start, solver=self.solver, tol=self.tol, max_iter=self.max_iter
        )

    def _extended(
        self,
        problem: DualProblem,
        extension: SmoothExtension,
        learned: np.ndarray,
        solution: DualOptimum | None,
        max_steps: int = MAX_STEPS,
    ) -> FittedSVMs:
        """SVMs with the kernel that an extension gives."""
        gram = problem.gram
        if not extension.is_trivial:
            gram = gram * extension.factor(gram, extension.features_, extension.features_)
        variables, intercepts = solve_svms(
            gram, problem.blocks, self.machine_tol, max_steps=max_steps
        )
        signed = problem.signed(variables)
        return FittedSVMs(variables, signed, intercepts, learned, solution, extension)
