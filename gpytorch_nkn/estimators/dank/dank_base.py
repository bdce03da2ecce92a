"""Base class of DANKClassifier and DANKRegressor."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from gpytorch_nkn.estimators.dank.base_kernel import BaseKernel, check_gram, make_base_kernel
from gpytorch_nkn.estimators.dank.clusters import Clusters, fit_clusters
from gpytorch_nkn.estimators.dank.dank_selection import (
    Fold,
    Path,
    Task,
    choose_eta,
    confirm,
    learn_relevances,
)
from gpytorch_nkn.estimators.dank.dual import Block, hadamard_factor
from gpytorch_nkn.estimators.dank.relevance import RelevanceKernel
from gpytorch_nkn.estimators.estimator import Estimator, forgets_failures
from gpytorch_nkn.fit import check_counts, check_number, warn_of_size

__all__ = ["FOLDS", "BaseDANK"]

FOLDS = 5  # number of cross-validation folds
_ETA_ROWS = 500  # number of rows for the choice of eta
_PAIRS = 45  # largest number of pairs of classes for which factors are compared (10 classes)
_CHECKED_ROWS = 1000  # number of rows for the check that a function is semi-definite
_CONFIRMED_ROWS = 3000  # number of rows on which relevances are confirmed
_MAX_UNCLUSTERED = 3000  # largest number of rows in one cluster by default
_MAX_UNWARNED = 20_000  # largest number of rows without a warning
_CLUSTER = 1500  # mean number of rows in a cluster by default
_CHUNK = 2**22  # number of Gram matrix entries in memory during predictions
_MAX_INPUT = 1e100  # largest input, because squares must be finite


class BaseDANK(Estimator):
    """Training and predictions of DANK, for classification and regression."""

    _shared_text: ClassVar[dict[str, str]] = {
        "shared arguments": """
kernel: Base kernel: ``"rbf"``, ``"laplacian"``, ``"linear"``, ``"poly"`` (of degree 3),
    ``"cosine"`` or ``"chi2"`` as in scikit-learn; a GPyTorch kernel with its current
    hyperparameters; or a positive semi-definite function that maps two tables ``M x D`` and
    ``N x D`` to ``M x N``. For a precomputed Gram matrix, pass row indices as the only column of
    ``X``, and a function that returns the entries.
gamma: Parameter of named kernels: a number, ``"scale"`` for ``1 / (D var(X))``, ``"auto"`` for
    ``1 / D``.
eta: Weight of the squared distance between ``F`` and ones: a number, ``"norm"`` or ``"cv"``.
    Infinity means ``F_s = 1``. ``"norm"``, as in the paper, is the squared norm of the dual
    variables of the SVM with the base kernel. ``"cv"`` multiplies this norm by one of 1,
    ``n^-1/2``, ``1 / n``, ``0.1 / n``, ``0.01 / n`` and infinity, selected on held-out rows
    (infinity for more than 10 classes).
relevance: ``"cv"`` learns the relevance factor (if there are many rows, from a random subset), and
    keeps it if it predicts held-out rows better; ``None`` omits it. The factor needs several input
    columns and at most 10 classes.
n_clusters: Number of clusters in which factors are learned. 1 learns one factor from the Gram
    matrix of all rows. ``"auto"`` means 1 up to 3000 rows, otherwise clusters of 1500 rows on
    average. With clusters, ``F = 11' + blockdiag(E_c)``, and the final SVM uses up to 8000 rows,
    preferably support vectors of the clusters' SVMs.
random_state: Seed of folds and clusters, or NumPy random state; ``None`` for a random seed.
""",
        "shared attributes": """
support_: Indices of training rows with nonzero dual coefficients.
dual_coef_, intercept_: Signed dual coefficients ``P x len(support_)`` and intercepts ``P`` of the
    ``P`` SVMs.
eta_: Selected ``eta``; infinite for ``F_s = 1``, NaN if clusters have different values.
C_: ``C`` of the SVM; in classification 1, 4 or 16 times the argument, as selected with the kernel.
relevances_: Weights ``w`` of the columns, ``D``. They are not feature importances: they measure
    nonlinearity in a column.
relevance_kernel_: Kernel with relevances; ``None`` if the base kernel was kept.
factor_: Root ``G``, ``n x rank``, of the learned ``F = G G'``.
cv_results_: Data frame of candidate kernels, the initial one first in each ``stage``: parameters,
    mean loss of held-out rows, ``gain`` over the initial kernel, standard ``error`` of the gain,
    and ``weight`` (1 for the selected kernel). Losses of the stage ``"eta"`` are optimistic,
    because relevances were learned from all rows.
""",
    }
    _private_state = ("_svms", "_kernel")

    _paths: ClassVar[tuple[Path, ...]]
    _max_rows: ClassVar[int]  # largest number of rows for relevances
    C: float
    kernel: Any
    gamma: float | str
    eta: float | str
    relevance: str | None
    n_clusters: int | str
    n_features_in_: int

    @forgets_failures
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the kernel and the SVMs.

        Inside a ``joblib.parallel_config(n_jobs=...)`` block, folds and clusters run in parallel.

        Args:
            X: Rows ``n x D``.
            y: Classes or targets ``n``.

        Raises:
            ValueError: An option, the kernel, ``X`` or ``y`` is invalid.
        """
        self._check_options()
        table, target = self._read(X, y)
        warn_of_size(
            type(self).__name__,
            len(table),
            _MAX_UNWARNED,
            "the SVM uses support vectors of clusters of about 1,500 rows; "
            f"{type(self).__name__.replace('DANK', 'ASKL')} learns from all rows in minutes.",
        )
        self._fit(table.copy(), target)  # predictions need the training rows
        return self

    def learned_kernel(self, X: ArrayLike, Y: ArrayLike | None = None) -> np.ndarray:
        """Return the Gram matrix ``M x N`` of the learned kernel.

        Use it as ``SVC(kernel=fitted.learned_kernel, C=fitted.C_)``, or as a precomputed kernel.

        Args:
            X: Rows ``M x D``.
            Y: Rows ``N x D``; ``None`` for ``X``.
        """
        check_is_fitted(self)
        left = self._checked_rows(X)
        return self._kernel(left, left if Y is None else self._checked_rows(Y, "Y"))

    @property
    def factor_(self) -> np.ndarray:
        """Root ``G`` of the factor ``F = G G'`` of the dual problem, ``n x rank``.

        Raises:
            AttributeError: Several clusters have separate factors.
        """
        check_is_fitted(self)
        if len(self._kernel.clusters.rows) > 1:
            raise AttributeError("factor_ needs n_clusters=1, got several clusters.")
        rows, learned = self._kernel.rows, self._svms.learned
        if learned is None:
            return np.ones((len(rows), 1))
        gram = self._kernel.base(rows, rows)
        values, vectors = np.linalg.eigh(hadamard_factor(gram, learned, self.eta_))
        kept = values > len(rows) * np.finfo(float).eps * values[-1]
        return (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]

    @abstractmethod
    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return checked rows and encoded targets, and set the classes."""

    @abstractmethod
    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        """Return the SVMs of encoded targets ``n``, with ``C`` multiplied by ``cost``."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return losses ``M`` of rows, given decision values ``M x P`` and targets ``M``."""

    @abstractmethod
    def _folds(self, target: np.ndarray) -> list[Fold]:
        """Return training and held-out row indices of each fold; no folds for few rows."""

    @abstractmethod
    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        """Return ``size`` random row indices."""

    _num_svms: int = 1  # P

    def _random(self) -> np.random.RandomState:
        """Return a random state independent of NumPy's global one."""
        if self.random_state is None:
            return np.random.RandomState()
        return check_random_state(self.random_state)

    def _subset(self, target: np.ndarray, most: int) -> np.ndarray:
        """Return the indices of all rows, or of a random sample of ``most`` rows."""
        return np.arange(len(target)) if len(target) <= most else self._sample(target, most)

    def _fit(self, table: np.ndarray, target: np.ndarray) -> None:
        """Learn relevances, then factors in clusters, and the SVMs."""
        base = self._base_kernel(table, target)
        number = self._number_of_clusters(len(table))
        self.cv_results_ = pd.DataFrame()
        learned, cost = self._learn_relevance(base, table, target)
        self.relevance_kernel_, self.C_ = learned, self.C * cost
        self.relevances_ = np.zeros(self.n_features_in_) if learned is None else learned.relevances
        kernel: Any = base if learned is None else learned
        random = self._random()
        clusters = Clusters(table, number, random)
        rows = max(clusters.rows, key=len)  # rows for the choice of eta
        eta = self._choose_eta(kernel, table[rows], target[rows], cost)
        order = np.append(self._subset(target, 100), random.permutation(len(table)))
        blocks = self._blocks(target, cost)
        self._kernel, svms, kept = fit_clusters(table, blocks, kernel, clusters, *eta, order)
        self._svms, self.eta_ = svms, svms.eta
        used = svms.signed.any(axis=1)
        self.support_ = kept[used]
        self.dual_coef_ = svms.signed[used].T
        self.intercept_ = svms.intercepts

    def _base_kernel(self, table: np.ndarray, target: np.ndarray) -> BaseKernel:
        base = make_base_kernel(self.kernel, table, self.gamma)
        if not isinstance(base.function, str):
            some = table[self._subset(target, _CHECKED_ROWS)]
            check_gram(base(some, some))
        return base

    def _learn_relevance(
        self, base: BaseKernel, table: np.ndarray, target: np.ndarray
    ) -> tuple[RelevanceKernel | None, float]:
        """Return the kernel with relevances (or ``None``), and its factor of ``C``."""
        allowed = self.relevance and self.n_features_in_ > 1 and self._num_svms <= _PAIRS
        task = self._task(base, table, target, self._max_rows) if allowed else None
        if task is None or not task.folds:
            return None, 1.0
        kernel, cost, candidates = learn_relevances(task, base, self._paths)
        self.cv_results_ = candidates
        if kernel is not None and len(task.table) < len(table):
            task = self._task(base, table, target, _CONFIRMED_ROWS)
            if not confirm(replace(task, folds=task.folds[:FOLDS]), kernel, cost):
                self.cv_results_ = candidates.assign(weight=1.0 * (candidates.index == 0))
                return None, 1.0
        return kernel, cost

    def _task(self, kernel: Any, table: np.ndarray, target: np.ndarray, most: int) -> Task:
        """Return a comparison of kernels on at most ``most`` rows."""
        rows = self._subset(target, most)
        inputs, labels = table[rows], target[rows]
        gram, folds = kernel(inputs, inputs), self._folds(labels)
        return Task(inputs, gram, labels, self._blocks, self._losses, folds)

    def _choose_eta(
        self, kernel: Any, table: np.ndarray, target: np.ndarray, cost: float
    ) -> tuple[float | None, float]:
        """Select ``eta`` on held-out rows.

        Return a factor of the squared norm of the dual variables (or ``None``), and a fixed value.
        """
        if not isinstance(self.eta, str):
            return None, float(self.eta)
        if self.eta == "norm" or self._num_svms > _PAIRS:
            return (1.0 if self.eta == "norm" else None), math.inf
        task = self._task(kernel, table, target, _ETA_ROWS)
        if not task.folds:
            return None, math.inf
        count = len(task.table)
        shares = [1.0, count**-0.5, 1.0 / count, 0.1 / count, 0.01 / count]
        number, candidates = choose_eta(task, shares, cost)
        self.cv_results_ = pd.concat([self.cv_results_, candidates], ignore_index=True)
        return (None if number is None else shares[number]), math.inf

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Return decision values ``M x P``."""
        table = self._checked_rows(X)
        support = self._kernel.rows[self.support_]
        if not len(support):
            return np.tile(self.intercept_, (len(table), 1))
        features = self._kernel.features(support)
        chunks = gen_batches(len(table), max(1, _CHUNK // len(self._kernel.rows)))
        products = [self._kernel(table[i], support, features) @ self.dual_coef_.T for i in chunks]
        return np.concatenate(products) + self.intercept_

    def _check_options(self) -> None:
        """Raise an error if an option is invalid."""
        if self.relevance not in ("cv", None):
            raise ValueError(f"relevance must be 'cv' or None, got {self.relevance!r}.")
        check_number("C", self.C, positive=True, most=_MAX_INPUT)
        check_number("epsilon", getattr(self, "epsilon", 0.0), positive=False, most=_MAX_INPUT)
        check_counts(1, ("auto",), n_clusters=self.n_clusters)
        check_number("eta", self.eta, positive=True, infinite=True, words=("cv", "norm"))

    def _number_of_clusters(self, count: int) -> int:
        """Return the number of clusters of ``count`` rows."""
        number: Any = self.n_clusters
        if number == "auto":
            number = 1 if count <= _MAX_UNCLUSTERED else math.ceil(count / _CLUSTER)
        if number > count:
            raise ValueError(f"n_clusters must be at most {count} for {count} rows, got {number}.")
        return int(number)
