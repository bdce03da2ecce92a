"""What a data-adaptive support vector machine is after its fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_nkn.estimators.dank.dank_clusters import ClusteredMachines
from gpytorch_nkn.estimators.dank.support_vectors import (
    FactorStep,
    LearnedKernel,
    Machines,
    RelevanceKernel,
    Solution,
    reciprocal_neighbours,
)
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["FittedDataAdaptive"]

_CHUNK = 2**22  # entries of a Gram matrix that are computed at once in predictions


class FittedDataAdaptive(BaseEstimator):
    """Learned kernel, attributes and decision values."""

    kernel: Any
    tau: float
    n_features_in_: int
    eta_: float
    intercept_: np.ndarray
    _machines: Machines | ClusteredMachines
    _learned_signed: np.ndarray | None
    _fitted_tau: float
    _is_gram: bool

    def learned_kernel(self, X: ArrayLike, Y: ArrayLike | None = None) -> np.ndarray:
        """Gram matrix ``M x N`` of the learned kernel, for any use of it.

        ``SVC(kernel=fitted.learned_kernel)`` takes it as it is; of other learners it is the
        precomputed kernel, as scikit-learn calls functions row by row there. The machine itself has
        the ``C`` of ``C_``.

        Args:
            X: Rows ``M x D``.
            Y: Rows ``N x D``; ``None`` for those of the first argument.

        Raises:
            ValueError: The kernel has no values at new rows: it is precomputed, or
                ``extension="reciprocal"``; or there is one for each pair of classes, as with
                clusters.
        """
        check_is_fitted(self)
        if self._is_gram:
            raise ValueError(
                "Values of a precomputed kernel between new rows are not known; decision_function "
                "needs those between new rows and rows of the training alone."
            )
        if isinstance(self._machines, Machines) and self._machines.factor is not None:
            raise ValueError(
                "extension='reciprocal' gives no kernel: what it gives between two rows depends on "
                "the others that are predicted with them."
            )
        refuse_other_values("X", X)
        refuse_other_values("Y", Y)
        left = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        right = left
        if Y is not None:
            right = validate_data(self, Y, dtype=np.float64, order="C", reset=False)
        if isinstance(self._machines, ClusteredMachines):
            return self._machines.gram(left, right)
        return self._kernel(left, right)

    @property
    def factor_(self) -> np.ndarray:
        """Root ``G`` of the learned factor ``F = G G'`` between training rows, ``n x rank``.

        It is that of the dual problem, before it is extended. Computed when asked for.

        Raises:
            AttributeError: The machines were fitted in clusters, where ``F`` has no such root.
        """
        check_is_fitted(self)
        if isinstance(self._machines, ClusteredMachines):
            raise AttributeError("factor_ exists for n_clusters=1 alone: F is not of low rank.")
        rows = self._kernel.rows
        learned = self._learned_signed
        if learned is None:
            return np.ones((len(rows), 1))
        gram = rows if self._is_gram else self._kernel.base(rows, rows)
        return FactorStep(gram, self.eta_, self._fitted_tau)(learned)[0].roots()

    @property
    def rank_(self) -> int:
        """Rank of the learned factor."""
        return self.factor_.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _set_relevances(self, kernel: RelevanceKernel | None) -> None:
        self.relevance_kernel_ = kernel
        self.relevances_ = np.zeros(self.n_features_in_) if kernel is None else kernel.relevances

    def _keep(self, table: np.ndarray, kernel: Any, machines: Machines) -> None:
        """Remember what predicts, and what there is to see of it."""
        self._kernel = LearnedKernel(kernel, table, machines.extension)
        self._machines = machines
        learned, solution = machines.learned, machines.solution
        self.ridge_ = math.inf if machines.extension is None else machines.extension.ridge_
        self._learned_signed = None
        if learned is not None and solution is not None:
            self._learned_signed = solution.point.signed
        self._keep_duals(machines.signed, machines.intercepts, solution)
        self._machines = replace(machines, solution=None)  # which holds Gram matrices

    def _keep_duals(
        self, signed: np.ndarray, intercepts: np.ndarray, solution: Solution | None
    ) -> None:
        self.support_ = np.flatnonzero(signed.any(axis=1))
        self.dual_coef_ = signed[self.support_].T
        self.intercept_ = intercepts
        self.gap_ = math.nan if solution is None else solution.relative_gap
        self.objective_trace_ = [] if solution is None else list(solution.trace)
        self.n_iter_ = 1 if solution is None else max(1, solution.iterations)

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Decision values ``M x P``."""
        check_is_fitted(self)
        refuse_other_values("X", X)
        table = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        if isinstance(self._machines, ClusteredMachines):
            return self._machines.outputs(table)
        rows, partners = self._kernel.rows, None
        if self._machines.factor is not None:
            partners = reciprocal_neighbours(euclidean_distances(rows, table))
        step = max(1, _CHUNK // len(rows))
        parts = []
        for first in range(0, len(table), step):
            part = table[first : first + step]
            cross = part if self._is_gram else self._kernel.base(part, rows)
            chosen = None if partners is None else partners[first : first + step]
            parts.append(self._machines.outputs(cross, chosen))
        return np.concatenate(parts)

    def _forget(self) -> None:
        """Drop what another fit left."""
        private = ("_machines", "_kernel", "_learned_signed", "_fitted_tau", "_is_gram")
        for name in [name for name in vars(self) if name.endswith("_") or name in private]:
            delattr(self, name)
