"""Support vector classification with a learned Hadamard factor on the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_nkn.estimators.dank.dank_base import DataAdaptiveLearner
from gpytorch_nkn.estimators.dank.dank_clusters import ClusteredMachines
from gpytorch_nkn.estimators.dank.dank_selection import Fold, Path, choose
from gpytorch_nkn.estimators.dank.support_vectors import (
    Block,
    BlockCertificate,
    classification_blocks,
)
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["DANKClassifier"]

_REPEATS = 2  # of the comparison
_PENALTIES = (0.3, 0.1, 0.03, 0.01, 0.003)


class DANKClassifier(ClassifierMixin, DataAdaptiveLearner):
    r"""Support vector classification whose kernel is adapted to the data.

    The base kernel is multiplied, entry by entry, with a factor that is learned together with the
    machine:

    .. math::
        \tilde k(x, x') = k(x, x')\, F(x, x'), \qquad
        \max_\alpha \min_{F \succeq 0} 1^\top \alpha
            - \tfrac{1}{2} \alpha^\top Y (F \circ K) Y \alpha
            + \eta \lVert F - 11^\top \rVert_F^2 + \tau \eta \lVert F \rVert_*

    The paper's ``F`` is a matrix, in closed form for any ``alpha``. Here it is extended to a
    function ``F_s``: dual coefficients are smoothed by kernel ridge regression, and the machine is
    trained once more with the kernel that this gives
    (``SmoothExtension``), so training and prediction see one kernel, positive semi-definite on any
    inputs.

    A second factor is learned before: ``F_w(x, x') = exp(-sum_d w_d |x_d - x'_d| / 2)``, a
    minimiser of the same maximum among factors of this form with a penalty on ``w``. It is not the
    paper's; it does what that should: most gains on the tables of the benchmarks are its (see
    benchmarks/RESULTS.md, which also says how little the paper's factor gains where it is chosen
    honestly). Base kernels of 1, 2 and 4 times the width are tried with it, and as ``w`` narrows
    them ``C`` grows by their square.

    Each factor stays only if rows that were left out say so, by more than a standard error over two
    rounds of ``cv`` folds; otherwise this is ``sklearn.svm.SVC``. Tune ``C`` and ``gamma`` with
    ``SVC``, which is faster, and then learn the factors with these values.

    With more than two classes machines of all pairs share one ``F``, hence one kernel.

    Args:
        C: Bound of dual variables.
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
            norm of the dual variables of the machine with the base kernel; or ``"cv"``: that times
            1, ``n^-1/2``, ``1 / n``, ``0.1 / n``, ``0.01 / n``, or infinity (``F_s = 1``), by rows
            that were left out (of more than 10 classes it is infinity). Infinity is a number.
        tau: Weight of the nuclear norm of ``F``, relative to ``eta``. It sets the rank of ``F``
            and little else: predictions with 0 and 0.01 are alike, and 0 needs no eigenvalues.
            The paper has 0.01. Clusters need 0.
        relevance: ``"cv"`` learns the relevance factor and keeps it if left-out rows say so,
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
        tol: Certified gap to stop at, relative to the dual objective of the machines.
        max_iter: Most steps of the solver; ``gap_`` tells what was reached.
        n_clusters: Clusters to learn factors in: 1 learns one with the Gram matrix of all rows;
            ``"auto"`` takes one up to 3000 rows, and as many as give 1500 rows each beyond.
        decomposition: With clusters, ``"global"``: ``F = 11' + blockdiag(E_c)``, one machine on
            all rows; ``"block"``: the paper's block-diagonal ``F``, a machine for each cluster
            alone, without an intercept.
        class_weight: Factors of ``C`` of the classes, or ``"balanced"``. Errors count by them where
            kernels are compared, too.
        cv: Folds of the comparisons; fewer than twice as many rows are not compared, and keep the
            base kernel.
        n_jobs: Processes of folds and clusters, as joblib's; ``joblib.parallel_config`` chooses
            another backend, such as Dask's.
        random_state: Of folds and clusters: a seed, a NumPy random state, or ``None`` for other
            ones each time.
        progress: Show a progress bar on a terminal.

    Attributes:
        classes_: The classes.
        support_: Training rows with a dual coefficient.
        dual_coef_, intercept_: Signed dual coefficients, machines by ``support_``, and intercepts.
        eta_, eta_norm_: What was used, infinite for ``F_s = 1``, and the paper's. With clusters
            the first is NaN where it differs between them, and there is no second.
        ridge_: Of the smooth extension, relative to the mean of the diagonal of the Gram matrix.
            If it is infinite, dual coefficients have no pattern, and ``F_s = 1`` whatever ``eta_``.
        C_: ``C`` of the machine; with a widened base kernel it is larger than that given.
        relevances_: Weights ``D`` of the columns, ``w``; of several kernels, their mean by shares.
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

    Ctrl-C while factors are compared leaves those chosen before, with a warning.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(80, 4))
        >>> y = X[:, 0] * X[:, 1] > 0
        >>> classifier = DANKClassifier(C=10, random_state=0).fit(X, y)
        >>> np.argsort(classifier.relevances_)[:-3:-1].tolist()
        [0, 1]

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels.
    """

    _paths = tuple(
        Path(widening, widening**2, 1, _PENALTIES, max_iter=12) for widening in (1.0, 2.0, 4.0)
    )
    _max_rows = 400
    _weigh = staticmethod(choose)
    classes_: np.ndarray

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] | Kernel = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        eta: float | str = "cv",
        tau: float = 0.0,
        relevance: str | None = "auto",
        extension: str = "smooth",
        solver: str = "fista",
        tol: float = 1e-5,
        max_iter: int = 1000,
        n_clusters: int | str = "auto",
        decomposition: str = "global",
        class_weight: dict[Any, float] | str | None = None,
        cv: int = 5,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.eta = eta
        self.tau = tau
        self.relevance = relevance
        self.extension = extension
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.n_clusters = n_clusters
        self.decomposition = decomposition
        self.class_weight = class_weight
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Values ``M`` for two classes, positive for the second; otherwise ``M x K``.

        Those of more classes are votes of the machines of all pairs, plus a number between -1/3
        and 1/3 that grows with the sum of their values, as in scikit-learn's ``SVC``.

        Args:
            X: Rows ``M x D``, or kernel values with the training rows, ``M x n``.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else _votes(outputs, len(self.classes_))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Classes ``M`` with the largest values; ties of votes are broken by their sums.

        Args:
            X: Rows ``M x D``, or kernel values with the training rows, ``M x n``.
        """
        outputs = self._outputs(X)
        return self.classes_[_codes(outputs, len(self.classes_))]

    def block_certificate(self, eta: float | None = None) -> BlockCertificate:
        """What clusters tell of the problem without them: theorems 6 and 7 of the paper.

        Neither holds as printed; the certificate has what they say, and bounds of the optimum and
        a rule for rows that are no support vectors which do hold. For two classes.

        Args:
            eta: Weight of the distance of ``F`` from ones; ``None`` for :attr:`eta_`.

        Raises:
            ValueError: The machine was fitted without clusters, there are more than two classes, or
                ``eta_`` differs between clusters and no other is given.
        """
        check_is_fitted(self)
        if not isinstance(self._machines, ClusteredMachines):
            raise ValueError("block_certificate needs a fit with n_clusters > 1, got 1 cluster.")
        weight = self.eta_ if eta is None else float(eta)
        if not weight > 0.0:
            raise ValueError(
                f"eta must be positive, got {weight}; that of the fit differs between clusters "
                "unless it was given as a number."
            )
        return self._machines.certificate(weight, self.n_jobs)

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        refuse_other_values("X", X)
        table, labels = validate_data(self, X, y, dtype=np.float64, order="C", ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must have at least 2 classes, got 1 class: {self.classes_.tolist()}."
            )
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError(f"class_weight must be positive and finite, got {weights.tolist()}.")
        self._class_weights = weights
        return table, codes

    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        upper = self.C * cost * self._class_weights[target]
        return classification_blocks(target, len(self.classes_), upper)

    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        wrong = _codes(outputs, len(self.classes_)) != target
        return wrong * self._class_weights[target]

    def _folds(self, target: np.ndarray) -> list[Fold]:
        counts = np.bincount(target, minlength=len(self.classes_))
        count = min(self.cv, int(counts.max()))
        if len(target) < 2 * self.cv or count < 2:
            return []
        # Rows that are the only ones of their class must stay: no machine lacks a class.
        rows = np.flatnonzero(counts[target] > 1)
        random = self._random()
        folds = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            for _ in range(_REPEATS):
                splitter = StratifiedKFold(count, shuffle=True, random_state=random.randint(2**31))
                for _, left_out in splitter.split(rows, target[rows]):
                    known = np.ones(len(target), dtype=bool)
                    known[rows[left_out]] = False
                    folds.append((np.flatnonzero(known), rows[left_out]))
        return folds

    @property
    def _num_machines(self) -> int:
        return len(self.classes_) * (len(self.classes_) - 1) // 2

    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        """Rows of every class, in proportion, two of each at least."""
        size = max(size, 2 * len(self.classes_))
        random = self._random()
        order = random.permutation(len(target))
        places = np.empty(len(target))  # of a row among those of its class, from 0 to 1
        for code in range(len(self.classes_)):
            own = order[target[order] == code]
            places[own] = np.arange(len(own)) / len(own)
            places[own[:2]] = -1.0
        return np.sort(order[np.argsort(places[order], kind="stable")][:size])


def _votes(outputs: np.ndarray, num_classes: int) -> np.ndarray:
    """Votes ``M x K`` of the machines of pairs, whose positive class is the first."""
    votes = np.zeros((len(outputs), num_classes))
    sums = np.zeros_like(votes)
    for column, (first, second) in enumerate(combinations(range(num_classes), 2)):
        value = outputs[:, column]
        votes[:, first] += value > 0
        votes[:, second] += value <= 0
        sums[:, first] += value
        sums[:, second] -= value
    return votes + sums / (3.0 * (np.abs(sums) + 1.0))


def _codes(outputs: np.ndarray, num_classes: int) -> np.ndarray:
    if num_classes == 2:
        return (outputs[:, 0] > 0).astype(np.intp)
    return _votes(outputs, num_classes).argmax(axis=1)
