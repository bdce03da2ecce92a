"""What data-adaptive classification and regression have in common."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from gpytorch_nkn.estimators.dank.dank_clusters import ClusterOptions, fit_clusters
from gpytorch_nkn.estimators.dank.dank_fitted import FittedDataAdaptive
from gpytorch_nkn.estimators.dank.dank_kernel import check_gram, make_base_kernel
from gpytorch_nkn.estimators.dank.dank_options import check_options, number_of_clusters
from gpytorch_nkn.estimators.dank.dank_selection import (
    Candidate,
    Fold,
    Path,
    Task,
    choose_eta,
    confirm,
    learn_relevances,
)
from gpytorch_nkn.estimators.dank.support_vectors import (
    LEAST_ETA,
    BaseKernel,
    Block,
    LearnedKernel,
    Learner,
)

__all__ = ["DataAdaptiveLearner"]

Blocks = Callable[[np.ndarray, float], list[Block]]

_ETA_ROWS = 500  # that eta is chosen with at first
_MACHINES = 45  # pairs of 10 classes: factors of more are not compared by default
_CHECKED_ROWS = 1000  # of a kernel that need not be definite, at first
_CONFIRMED_ROWS = 3000  # that relevances must be better with
_MACHINE_TOL = 1e-3  # of LIBSVM, its default


class DataAdaptiveLearner(FittedDataAdaptive):
    """Fitting and predicting, whatever the targets are."""

    _paths: ClassVar[tuple[Path, ...]]
    _max_rows: ClassVar[int]  # to learn relevances from
    C: float
    gamma: float | str
    degree: float
    coef0: float
    eta: float | str
    relevance: str | None
    extension: str
    solver: str
    tol: float
    max_iter: int
    n_clusters: int | str
    decomposition: str
    cv: int
    n_jobs: int | None
    random_state: Any
    progress: bool

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the kernel and the machines.

        Args:
            X: Rows ``n x D``, or the Gram matrix ``n x n`` with ``kernel="precomputed"``.
            y: Classes or targets, ``n``.

        Returns:
            The estimator.

        Raises:
            ValueError: Values are missing or not finite, there is only one class, the Gram matrix
                is not positive semi-definite, or an option has no meaning.
            TypeError: An option is of a wrong type.
            KeyboardInterrupt: Ctrl-C came with clusters; without, what was chosen before it stays.
        """
        self._forget()
        check_options(dict(vars(self)))
        try:
            table, target = self._read(X, y)
            table = table.copy()  # predictions need it as it is now
            self._fitted_tau, self._is_gram = self.tau, self._is_precomputed
            self._fit(table, target)
        except BaseException:
            self._forget()  # what is not trained must not predict
            raise
        return self

    @abstractmethod
    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Checked rows and encoded targets; classes are learned."""

    @abstractmethod
    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        """Machines for encoded targets of all rows or some, at a factor of ``C``."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss of each row, given decision values ``M x P``."""

    @staticmethod
    @abstractmethod
    def _weigh(losses: np.ndarray) -> np.ndarray:
        """Shares of kernels of losses, kernels by rows."""

    @abstractmethod
    def _folds(self, target: np.ndarray) -> list[Fold]:
        """Rows to train with and to predict, for every part of cross-validation."""

    @abstractmethod
    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        """So many rows, drawn at random."""

    def _fit(self, table: np.ndarray, target: np.ndarray) -> None:
        if self._is_precomputed:
            if table.shape[0] != table.shape[1]:
                raise ValueError(
                    "X must be the square Gram matrix of the training rows with "
                    f"kernel='precomputed', got shape {table.shape}."
                )
            base = None
        else:
            base = make_base_kernel(
                self.kernel, table, gamma=self.gamma, degree=self.degree, coef0=self.coef0
            )
            if not base.is_definite:  # before anything is learned with it
                some = table[self._some(target, _CHECKED_ROWS)]
                check_gram(base(some, some))
        clusters = number_of_clusters(dict(vars(self)), len(table))
        learner = Learner(
            self.tau,
            self.extension,
            self.solver,
            self.tol,
            self.max_iter,
            _MACHINE_TOL,
        )
        self.cv_results_: list[Candidate] = []
        kernel: Any = base
        cost = 1.0
        try:
            if base is not None and self._wants_relevance():
                kernel, cost = self._learn_relevance(learner, base, table, target)
            self._set_relevances(None if kernel is base else kernel)
            self.C_ = self.C * cost
            blocks = partial(_scaled_blocks, self._blocks, cost)
            if clusters > 1:
                self._fit_clusters(table, target, kernel, blocks, clusters)
            else:
                self._fit_whole(learner, table, target, kernel, blocks)
        except KeyboardInterrupt:
            if clusters > 1:
                raise
            warnings.warn(
                "Interrupted: the machines have the base kernel, "
                + ("without a learned factor." if kernel is base else "with relevances alone."),
                UserWarning,
                stacklevel=3,
            )
            gram = table if kernel is None else kernel(table, table)
            self._set_relevances(None if kernel is base else kernel)
            self.eta_, self.C_ = math.inf, self.C * cost
            machines = learner.plain(gram, self._blocks(target, cost))
            self.eta_norm_ = float(machines.variables @ machines.variables)
            self._keep(table, kernel, machines)

    def _wants_relevance(self) -> bool:
        if self.relevance == "auto":
            few = self.n_features_in_ > 1 and self._num_machines <= _MACHINES
            whole = self.n_clusters in ("auto", 1)
            return whole and self.extension == "smooth" and few
        return self.relevance == "cv"

    def _learn_relevance(
        self, learner: Learner, base: BaseKernel, table: np.ndarray, target: np.ndarray
    ) -> tuple[Any, float]:
        """Kernel with relevances, or the base kernel, and the factor of ``C`` for it."""
        rows = self._some(target, self._max_rows)
        known, labels = table[rows], target[rows]
        folds = self._folds(labels)
        if not folds:
            return base, 1.0
        task = self._task(learner, base(known, known), labels, folds, self._blocks)
        kernel, cost, candidates = learn_relevances(
            task, base, known, self._paths_for(known.shape[1]), self._weigh
        )
        self.cv_results_ = [*self.cv_results_, *candidates]
        if kernel is None:
            return base, 1.0
        if len(rows) < len(table):
            rows = self._some(target, _CONFIRMED_ROWS)
            known, labels = table[rows], target[rows]
            folds = self._folds(labels)[: self.cv]
            task = self._task(learner, base(known, known), labels, folds, self._blocks)
            if not confirm(task, kernel(known, known), cost):
                self.cv_results_ = [replace(c, weight=float(not c.params)) for c in candidates]
                return base, 1.0
        return kernel, cost

    @property
    def _num_machines(self) -> int:
        return 1

    def _paths_for(self, num_columns: int) -> tuple[Path, ...]:
        return self._paths

    def _random(self) -> np.random.RandomState:
        """A random state, not NumPy's own, which stays as it is."""
        if self.random_state is None:
            return np.random.RandomState()
        return check_random_state(self.random_state)

    def _some(self, target: np.ndarray, most: int) -> np.ndarray:
        """All rows, or a random sample."""
        return np.arange(len(target)) if len(target) <= most else self._sample(target, most)

    def _task(
        self,
        learner: Learner,
        gram: np.ndarray,
        target: np.ndarray,
        folds: list[Fold],
        blocks: Blocks,
        distances: np.ndarray | None = None,
    ) -> Task:
        return Task(
            gram,
            target,
            blocks,
            self._losses,
            folds,
            learner,
            distances,
            self.n_jobs,
            self.progress,
        )

    def _fit_whole(
        self,
        learner: Learner,
        table: np.ndarray,
        target: np.ndarray,
        kernel: Any,
        blocks: Blocks,
    ) -> None:
        """Learn with the Gram matrix of all rows."""
        gram = table if kernel is None else kernel(table, table)
        if not getattr(kernel, "is_definite", False):
            check_gram(gram)
        gram = 0.5 * (gram + gram.T)
        machines = learner.plain(gram, blocks(target, 1.0))
        norm = float(machines.variables @ machines.variables)
        self.eta_norm_ = norm
        self.eta_ = math.inf
        if isinstance(self.eta, str):
            share: float | None = 1.0
            if self.eta == "cv" and self._num_machines > _MACHINES:
                share = None
            elif self.eta == "cv":
                share = self._choose_eta(learner, gram, table, target, blocks)
            if share is not None and norm > 0.0:
                self.eta_ = share * norm
        else:
            self.eta_ = float(self.eta)
        if math.isfinite(self.eta_):
            start = machines.variables
            if self.eta_ < LEAST_ETA * norm:
                raise ValueError(
                    f"eta is too small for F to be computed: it must be at least "
                    f"{LEAST_ETA * norm:g} here, got {self.eta_:g}."
                )
            machines = learner.learn(gram, blocks(target, 1.0), self.eta_, start)
            solution = machines.solution
            if solution is not None and not solution.converged:
                warnings.warn(
                    f"The factor's dual problem stopped after {solution.iterations} steps at a "
                    f"relative gap of {solution.relative_gap:.1e}, above tol={self.tol:g}: raise "
                    "max_iter, or tol.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
        self._keep(table, kernel, machines)

    def _fit_clusters(
        self, table: np.ndarray, target: np.ndarray, kernel: Any, blocks: Blocks, clusters: int
    ) -> None:
        """Learn in clusters, without the Gram matrix of all rows."""
        seed = int(self._random().randint(2**31))
        options = ClusterOptions(self.eta, clusters, self.decomposition, seed, self.n_jobs)
        machines = fit_clusters(table, blocks(target, 1.0), kernel, options)
        self._kernel = LearnedKernel(kernel, table)
        self._machines, self._learned_signed = machines, None
        self.cv_results_ = [*self.cv_results_, *machines.candidates]
        self.eta_ = machines.eta
        self._keep_duals(machines.signed, machines.intercepts, None)

    def _choose_eta(
        self,
        learner: Learner,
        gram: np.ndarray,
        table: np.ndarray,
        target: np.ndarray,
        blocks: Blocks,
    ) -> float | None:
        """Share of ``eta``; many rows have a say only where some have chosen one."""
        place: int | None = None
        for most in (_ETA_ROWS, len(target)):
            rows = self._some(target, most)
            known, count = table[rows], len(rows)
            shares = [1.0, count**-0.5, 1.0 / count, 0.1 / count, 0.01 / count]
            folds = self._folds(target[rows])
            if place is not None:
                shares, folds = shares[place : place + 1], folds[: self.cv]
            if not folds:
                return None
            distances = euclidean_distances(known) if self.extension == "reciprocal" else None
            inner = gram[np.ix_(rows, rows)]
            task = self._task(learner, inner, target[rows], folds, blocks, distances)
            found, candidates = choose_eta(task, shares)
            self.cv_results_ = [*self.cv_results_, *candidates]
            if found is None or count == len(target):
                return None if found is None else shares[found]
            place = found
        return None


def _scaled_blocks(make: Blocks, scale: float, target: np.ndarray, factor: float) -> list[Block]:
    return make(target, scale * factor)
