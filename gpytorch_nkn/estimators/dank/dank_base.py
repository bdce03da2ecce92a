"""What data-adaptive classification and regression have in common: options, fit, predictions."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from textwrap import indent
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.dank.base_kernel import BaseKernel, check_gram, make_base_kernel
from gpytorch_nkn.estimators.dank.dank_clusters import (
    DECOMPOSITIONS,
    ClusteredSVMs,
    fit_clusters,
)
from gpytorch_nkn.estimators.dank.dank_selection import (
    Blocks,
    Candidate,
    Fold,
    Path,
    Task,
    choose_eta,
    confirm,
    learn_relevances,
)
from gpytorch_nkn.estimators.dank.support_vectors import (
    EXTENSIONS,
    SOLVERS,
    Block,
    DualOptimum,
    FactorStep,
    FittedSVMs,
    LearnedKernel,
    Learner,
    RelevanceKernel,
    reciprocal_neighbours,
)
from gpytorch_nkn.estimators.table_input import refuse_other_values
from gpytorch_nkn.fit import Session, check_counts, check_number, warn_of_size, warn_user

__all__ = ["BaseDANK"]

_ETA_ROWS = 500  # that eta is chosen with at first
_PAIRS = 45  # of 10 classes: factors of more are not compared by default
_CHECKED_ROWS = 1000  # of a kernel that need not be definite, at first
_CONFIRMED_ROWS = 3000  # that relevances must be better with
_WHOLE = 3000  # rows up to which all are in one cluster by default
_USUAL_ROWS = 20_000
_CLUSTER = 1500  # rows of a cluster beyond, on average
_CHUNK = 2**22  # entries of a Gram matrix that are computed at once in predictions
_LARGEST = 1e100  # of numbers whose squares are needed

# Of both estimators: their docstrings say where.
_SHARED = {
    "shared arguments": """
kernel: Base kernel: a name of scikit-learn's (``"rbf"``, ``"laplacian"``, ``"linear"``,
    ``"poly"``, ``"cosine"``, ``"chi2"``, ...), a function of two tables ``M x D`` and
    ``N x D`` that returns ``M x N``, a GPyTorch kernel with its present hyperparameters, or
    ``"precomputed"``: ``X`` is the Gram matrix ``n x n`` then, and kernel values with the
    training rows ``M x n`` in predictions. A Gram matrix with a negative eigenvalue is
    refused.
gamma: Of named kernels: a number, ``"scale"`` for ``1 / (D var(X))``, ``"auto"`` for
    ``1 / D``.
degree: Of the polynomial kernel.
coef0: Of the polynomial and the sigmoid kernel.
eta: Weight of ``F``'s distance from ones: a number; ``"norm"``, the paper's: the squared
    norm of the dual variables of the SVM with the base kernel; or ``"cv"``: that times
    1, ``n^-1/2``, ``1 / n``, ``0.1 / n``, ``0.01 / n``, or infinity (``F_s = 1``), by
    held-out rows (of more than 10 classes it is infinity). Infinity is a number.
tau: Weight of the nuclear norm of ``F``, relative to ``eta``. It sets the rank of ``F``
    and little else: predictions with 0 and 0.01 are alike, and 0 needs no eigenvalues.
    The paper has 0.01. Clusters need 0.
relevance: ``"cv"`` learns the relevance factor and keeps it if held-out rows say so,
    ``None`` does not. ``"auto"`` is ``"cv"``, except where a number of clusters is
    given, with a precomputed kernel, with the reciprocal extension, with one column (a
    relevance would be a width), and with more than 10 classes. It learns from a random part
    of many rows, and has to be better than the base kernel with up to 3000 of them.
extension: ``"smooth"`` as above, or ``"reciprocal"``, the paper's: a new row has the column
    of ``F`` of its reciprocal nearest neighbour. That is no kernel: it depends on what is
    predicted together and on the order of rows at equal distance, and acts as a vote of
    neighbours.
solver: ``"fista"``, or ``"nesterov"``: the paper's algorithms with the step constants of
    theorems 4 and 10, far too small to get there unless ``eta`` is large.
tol: Certified gap to stop at, relative to the dual objective of the SVMs.
max_iter: Most steps of the solver; ``gap_`` tells what was reached.
n_clusters: Clusters to learn factors in: 1 learns one with the Gram matrix of all rows;
    ``"auto"`` takes one up to 3000 rows, and as many as give 1500 rows each beyond.
decomposition: With clusters, ``"global"``: ``F = 11' + blockdiag(E_c)``, one SVM on
    all rows; ``"block"``: the paper's block-diagonal ``F``, an SVM for each cluster
    alone, without an intercept.
cv: Folds of the comparisons; fewer than twice as many rows are not compared, and keep the
    base kernel.
n_jobs: Processes of folds and clusters, as joblib's; ``joblib.parallel_config`` chooses
    another backend, such as Dask's.
random_state: Of folds and clusters: a seed, a NumPy random state, or ``None`` for other
    ones each time.
progress: Show a progress bar on a terminal.
""",
    "shared attributes": """
support_: Training rows with a dual coefficient.
dual_coef_, intercept_: Signed dual coefficients, SVMs by ``support_``, and intercepts.
eta_, eta_norm_: What was used, infinite for ``F_s = 1``, and the paper's. With clusters
    the first is NaN where it differs between them, and there is no second.
ridge_: Of the smooth extension, relative to the mean of the diagonal of the Gram matrix.
    If it is infinite, dual coefficients have no pattern, and ``F_s = 1`` whatever ``eta_``.
C_: ``C`` of the SVM; with a widened base kernel it is larger than that given.
relevances_: Weights ``D`` of the columns, ``w``; of several kernels, their weighted mean.
    They are no importances: the more a function bends along a column the larger they are,
    so that of a column in which it is nearly linear is small. They have units, those of
    the column to the power of minus ``p``.
relevance_kernel_: The kernel with relevances; ``None`` if the base kernel stays.
factor_, rank_: Root ``G`` of the learned ``F = G G'``, ``n x rank``, and its rank.
gap_: Certified relative gap of the dual problem; NaN where none was certified, without a
    factor and with clusters.
objective_trace_, n_iter_: Objective after each step of the solver; number of these, or 1.
cv_results_: What was compared, a :class:`~gpytorch_nkn.estimators.Candidate` each, with its
    gain over the kernel before it and the standard error of that.
""",
}


class BaseDANK(OnCPU, BaseEstimator):
    """Fitting and predicting, whatever the targets are."""

    _paths: ClassVar[tuple[Path, ...]]
    _max_rows: ClassVar[int]  # to learn relevances from
    C: float
    kernel: Any
    gamma: float | str
    degree: float
    coef0: float
    eta: float | str
    tau: float
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

    n_features_in_: int
    eta_: float
    _svms: FittedSVMs | ClusteredSVMs
    _kernel: LearnedKernel
    _learned_signed: np.ndarray | None
    _fitted_tau: float
    _is_gram: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Put the shared parts into the docstring."""
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is not None:  # with its indentation, or without it from Python 3.13 on
            cls.__doc__ = re.sub(
                r"^( *)<(shared \w+)>$",
                lambda found: indent(_SHARED[found[2]].strip(), found[1]),
                cls.__doc__,
                flags=re.MULTILINE,
            )

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Keep what ``__init__`` was called with: its local variables."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the kernel and the SVMs.

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
        self._check_options()
        try:
            table, target = self._read(X, y)
            warn_of_size(
                type(self).__name__,
                len(table),
                _USUAL_ROWS,
                "more are divided into clusters of some 1,500, each with SVMs of its own, which "
                f"takes hours; {type(self).__name__.replace('DANK', 'ASKL')} learns spectral "
                "kernels from many rows in minutes.",
            )
            table = table.copy()  # predictions need it as it is now
            self._fitted_tau, self._is_gram = self.tau, self._is_precomputed
            self._fit(table, target)
        except BaseException:
            self._forget()  # what is not trained must not predict
            raise
        return self

    def learned_kernel(self, X: ArrayLike, Y: ArrayLike | None = None) -> np.ndarray:
        """Gram matrix ``M x N`` of the learned kernel, for any use of it.

        ``SVC(kernel=fitted.learned_kernel)`` takes it as it is; of other learners it is the
        precomputed kernel, as scikit-learn calls functions row by row there. The SVM itself has
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
        if isinstance(self._svms, FittedSVMs) and self._svms.factor is not None:
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
        if isinstance(self._svms, ClusteredSVMs):
            return self._svms.gram(left, right)
        return self._kernel(left, right)

    @property
    def factor_(self) -> np.ndarray:
        """Root ``G`` of the learned factor ``F = G G'`` between training rows, ``n x rank``.

        It is that of the dual problem, before it is extended. Computed when asked for.

        Raises:
            AttributeError: The SVMs were fitted in clusters, where ``F`` has no such root.
        """
        check_is_fitted(self)
        if isinstance(self._svms, ClusteredSVMs):
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

    @abstractmethod
    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Checked rows and encoded targets; classes are learned."""

    @abstractmethod
    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        """SVMs for encoded targets of all rows or some, at a factor of ``C``."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss of each row, given decision values ``M x P``."""

    @staticmethod
    @abstractmethod
    def _weigh(losses: np.ndarray) -> np.ndarray:
        """Weights of kernels of losses, kernels by rows."""

    @abstractmethod
    def _folds(self, target: np.ndarray) -> list[Fold]:
        """Rows to train with and to predict, for every part of cross-validation."""

    @abstractmethod
    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        """So many rows, drawn at random."""

    @property
    def _num_svms(self) -> int:
        return 1

    def _paths_for(self, num_columns: int) -> tuple[Path, ...]:
        return self._paths

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _random(self) -> np.random.RandomState:
        """A random state, not NumPy's own, which stays as it is."""
        if self.random_state is None:
            return np.random.RandomState()
        return check_random_state(self.random_state)

    def _some(self, target: np.ndarray, most: int) -> np.ndarray:
        """All rows, or a random sample."""
        return np.arange(len(target)) if len(target) <= most else self._sample(target, most)

    def _fit(self, table: np.ndarray, target: np.ndarray) -> None:
        """Relevances first, then the factor: in clusters, or with all rows at once."""
        base = self._base_kernel(table, target)
        clusters = self._number_of_clusters(len(table))
        learner = Learner(self.tau, self.extension, self.solver, self.tol, self.max_iter)
        self.cv_results_: list[Candidate] = []
        kernel: Any = base
        cost = 1.0
        session = Session(progress=self.progress)
        with session.interruptible(
            lambda: clusters == 1,
            lambda: (
                "Interrupted: the SVMs have the base kernel, "
                + ("without a learned factor." if kernel is base else "with relevances alone.")
            ),
        ):
            if base is not None and self._wants_relevance():
                kernel, cost = self._learn_relevance(learner, base, table, target)
            self._set_relevances(None if kernel is base else kernel)
            self.C_ = self.C * cost
            blocks = partial(_scaled_blocks, self._blocks, cost)
            if clusters > 1:
                self._fit_clusters(table, target, kernel, blocks, clusters)
            else:
                self._fit_whole(learner, table, target, kernel, blocks)
        if session.interrupted:
            gram = table if kernel is None else kernel(table, table)
            self._set_relevances(None if kernel is base else kernel)
            self.eta_, self.C_ = math.inf, self.C * cost
            svms = learner.plain(gram, self._blocks(target, cost))
            self.eta_norm_ = svms.norm
            self._keep(table, kernel, svms)

    def _base_kernel(self, table: np.ndarray, target: np.ndarray) -> BaseKernel | None:
        """The base kernel; ``None`` where the table is its Gram matrix."""
        if self._is_precomputed:
            if table.shape[0] != table.shape[1]:
                raise ValueError(
                    "X must be the square Gram matrix of the training rows with "
                    f"kernel='precomputed', got shape {table.shape}."
                )
            return None
        base = make_base_kernel(
            self.kernel, table, gamma=self.gamma, degree=self.degree, coef0=self.coef0
        )
        if not base.is_definite:  # before anything is learned with it
            some = table[self._some(target, _CHECKED_ROWS)]
            check_gram(base(some, some))
        return base

    def _wants_relevance(self) -> bool:
        if self.relevance == "auto":
            few = self.n_features_in_ > 1 and self._num_svms <= _PAIRS
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

    def _task(
        self,
        learner: Learner,
        gram: np.ndarray,
        target: np.ndarray,
        folds: list[Fold],
        blocks: Blocks,
        distances: np.ndarray | None = None,
    ) -> Task:
        jobs = (self.n_jobs, self.progress)
        return Task(gram, target, blocks, self._losses, folds, learner, distances, *jobs)

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
        svms = learner.plain(gram, blocks(target, 1.0))
        norm = self.eta_norm_ = svms.norm
        self.eta_ = math.inf
        if isinstance(self.eta, str):
            share: float | None = 1.0
            if self.eta == "cv" and self._num_svms > _PAIRS:
                share = None
            elif self.eta == "cv":
                share = self._choose_eta(learner, gram, table, target, blocks)
            if share is not None and norm > 0.0:
                self.eta_ = share * norm
        else:
            self.eta_ = float(self.eta)
        if math.isfinite(self.eta_):
            svms = learner.learn(gram, blocks(target, 1.0), self.eta_, svms.variables)
            solution = svms.solution
            if solution is not None and not solution.converged:
                warn_user(
                    f"The factor's dual problem stopped after {solution.iterations} steps at a "
                    f"relative gap of {solution.relative_gap:.1e}, above tol={self.tol:g}: raise "
                    "max_iter, or tol.",
                    ConvergenceWarning,
                )
        self._keep(table, kernel, svms)

    def _choose_eta(
        self,
        learner: Learner,
        gram: np.ndarray,
        table: np.ndarray,
        target: np.ndarray,
        blocks: Blocks,
    ) -> float | None:
        """``eta`` over its norm; many rows have a say only where some have chosen one."""
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

    def _fit_clusters(
        self, table: np.ndarray, target: np.ndarray, kernel: Any, blocks: Blocks, clusters: int
    ) -> None:
        """Learn in clusters, without the Gram matrix of all rows."""
        svms = fit_clusters(
            table,
            blocks(target, 1.0),
            kernel,
            eta=self.eta,
            n_clusters=clusters,
            decomposition=self.decomposition,
            seed=int(self._random().randint(2**31)),
            n_jobs=self.n_jobs,
        )
        self._kernel = LearnedKernel(kernel, table)
        self._svms, self._learned_signed = svms, None
        self.cv_results_ = [*self.cv_results_, *svms.candidates]
        self.eta_ = svms.eta
        self._keep_duals(svms.signed, svms.intercepts, None)

    def _set_relevances(self, kernel: RelevanceKernel | None) -> None:
        self.relevance_kernel_ = kernel
        self.relevances_ = np.zeros(self.n_features_in_) if kernel is None else kernel.relevances

    def _keep(self, table: np.ndarray, kernel: Any, svms: FittedSVMs) -> None:
        """Remember what predicts, and what there is to see of it."""
        self._kernel = LearnedKernel(kernel, table, svms.extension)
        learned, solution = svms.learned, svms.solution
        self.ridge_ = math.inf if svms.extension is None else svms.extension.ridge_
        self._learned_signed = None
        if learned is not None and solution is not None:
            self._learned_signed = solution.point.signed
        self._keep_duals(svms.signed, svms.intercepts, solution)
        self._svms = replace(svms, solution=None)  # which holds Gram matrices

    def _keep_duals(
        self, signed: np.ndarray, intercepts: np.ndarray, solution: DualOptimum | None
    ) -> None:
        self.support_ = np.flatnonzero(signed.any(axis=1))
        self.dual_coef_ = signed[self.support_].T
        self.intercept_ = intercepts
        self.gap_ = math.nan if solution is None else solution.relative_gap
        self.objective_trace_ = [] if solution is None else list(solution.trace)
        self.n_iter_ = 1 if solution is None else max(1, solution.iterations)

    def _forget(self) -> None:
        """Drop what another fit left."""
        private = ("_svms", "_kernel", "_learned_signed", "_fitted_tau", "_is_gram")
        for name in [name for name in vars(self) if name.endswith("_") or name in private]:
            delattr(self, name)

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Decision values ``M x P``."""
        check_is_fitted(self)
        refuse_other_values("X", X)
        table = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        if isinstance(self._svms, ClusteredSVMs):
            return self._svms.outputs(table)
        rows, partners = self._kernel.rows, None
        if self._svms.factor is not None:
            partners = reciprocal_neighbours(euclidean_distances(rows, table))
        step = max(1, _CHUNK // len(rows))
        parts = []
        for first in range(0, len(table), step):
            part = table[first : first + step]
            cross = part if self._is_gram else self._kernel.base(part, rows)
            chosen = None if partners is None else partners[first : first + step]
            parts.append(self._svms.outputs(cross, chosen))
        return np.concatenate(parts)

    def _check_options(self) -> None:
        """Refuse options without a meaning."""
        choices = {"solver": SOLVERS, "extension": EXTENSIONS, "decomposition": DECOMPOSITIONS}
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} must be one of {list(known)}, got {value!r}.")
        for name in ("C", "tol", "tau", "epsilon"):
            if hasattr(self, name):
                positive = name in ("C", "tol")
                check_number(name, getattr(self, name), positive=positive, most=_LARGEST)
        check_counts(1, max_iter=self.max_iter)
        check_counts(2, cv=self.cv)
        check_counts(1, ("auto",), n_clusters=self.n_clusters)
        check_number("eta", self.eta, positive=True, infinite=True, words=("cv", "norm"))
        if self.relevance not in ("auto", "cv", None):
            raise ValueError(f"relevance must be 'auto', 'cv' or None, got {self.relevance!r}.")
        if self.relevance == "cv" and self._is_precomputed:
            raise ValueError(
                "relevance='cv' weights input columns, which a precomputed kernel does not have: "
                "set relevance=None."
            )
        if not isinstance(self.progress, bool | np.bool_):
            raise TypeError(f"progress must be True or False, got {self.progress!r}.")

    def _number_of_clusters(self, count: int) -> int:
        """Clusters of so many rows to learn factors in, if options allow them."""
        number: Any = self.n_clusters
        whole = self._is_precomputed or self.extension == "reciprocal"
        if self.tau >= 2 * count:
            raise ValueError(f"tau must be below 2 n = {2 * count}, where F is 0: {self.tau}.")
        if number == "auto":
            number = 1 if whole or count <= _WHOLE else math.ceil(count / _CLUSTER)
        if number > 1 and self.tau > 0:
            raise ValueError(
                f"tau > 0 needs n_clusters=1, which forms the Gram matrix of all {count} rows; got "
                f"tau={self.tau} and {number} clusters."
            )
        if number > count:
            raise ValueError(
                f"n_clusters must be at most the number of rows, {count}, got {number}."
            )
        if number > 1 and whole:
            raise ValueError(
                "n_clusters > 1 needs inputs to cluster and the smooth extension: neither "
                "kernel='precomputed' nor extension='reciprocal'."
            )
        return int(number)


def _scaled_blocks(make: Blocks, scale: float, target: np.ndarray, factor: float) -> list[Block]:
    return make(target, scale * factor)
