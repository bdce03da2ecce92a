"""Support vector classification with a learned Hadamard factor on the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import combinations
from typing import Any, Literal

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from gpytorch_nkn.estimators.dank.dank_base import BaseDANK
from gpytorch_nkn.estimators.dank.dank_selection import Fold, Path, choose
from gpytorch_nkn.estimators.dank.support_vectors import Block, classification_blocks
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["DANKClassifier"]

_REPEATS = 2  # of the comparison
_PENALTIES = (0.3, 0.1, 0.03, 0.01, 0.003)


class DANKClassifier(ClassifierMixin, BaseDANK):
    r"""Support vector classification whose kernel is adapted to the data.

    The base kernel is multiplied, entry by entry, with a factor that is learned together with the
    SVM:

    .. math::
        \tilde k(x, x') = k(x, x')\, F(x, x'), \qquad
        \max_\alpha \min_{F \succeq 0} 1^\top \alpha
            - \tfrac{1}{2} \alpha^\top Y (F \circ K) Y \alpha
            + \eta \lVert F - 11^\top \rVert_F^2 + \tau \eta \lVert F \rVert_*

    The paper's ``F`` is a matrix, in closed form for any ``alpha``. Here it is extended to a
    function ``F_s``: dual coefficients are smoothed by kernel ridge regression, and the SVM is
    trained once more with the kernel that this gives
    (``SmoothExtension``), so training and prediction see one kernel, positive semi-definite on any
    inputs.

    A second factor is learned before: ``F_w(x, x') = exp(-sum_d w_d |x_d - x'_d| / 2)``, a
    minimiser of the same maximum among factors of this form with a penalty on ``w``. It is not the
    paper's; it does what that should: most gains on the tables of the benchmarks are its (see
    benchmarks/RESULTS.md, which also says how little the paper's factor gains where it is chosen
    honestly). Base kernels of 1, 2 and 4 times the width are tried with it, and as ``w`` narrows
    them ``C`` grows by their square.

    Each factor stays only if held-out rows say so, by more than a standard error over two
    rounds of ``cv`` folds; otherwise this is ``sklearn.svm.SVC``. Tune ``C`` and ``gamma`` with
    ``SVC``, which is faster, and then learn the factors with these values.

    With more than two classes SVMs of all pairs share one ``F``, hence one kernel.

    Args:
        C: Bound of dual variables.
        class_weight: Factors of ``C`` of the classes, or ``"balanced"``. Errors count by them where
            kernels are compared, too.
        <shared arguments>

    Attributes:
        classes_: The classes.
        <shared attributes>

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
        gamma: float | Literal["scale", "auto"] = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        eta: float | Literal["norm", "cv"] = "cv",
        tau: float = 0.0,
        relevance: Literal["auto", "cv"] | None = "auto",
        extension: Literal["smooth", "reciprocal"] = "smooth",
        solver: Literal["fista", "nesterov"] = "fista",
        tol: float = 1e-5,
        max_iter: int = 1000,
        n_clusters: int | Literal["auto"] = "auto",
        decomposition: Literal["global", "block"] = "global",
        class_weight: dict[Any, float] | str | None = None,
        cv: int = 5,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Values ``M`` for two classes, positive for the second; otherwise ``M x K``.

        Those of more classes are votes of the SVMs of all pairs, plus a number between -1/3
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
        # Rows that are the only ones of their class must stay: no SVM lacks a class.
        rows = np.flatnonzero(counts[target] > 1)
        random = self._random()
        folds = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            for _ in range(_REPEATS):
                splitter = StratifiedKFold(count, shuffle=True, random_state=random.randint(2**31))
                for _, held_out in splitter.split(rows, target[rows]):
                    known = np.ones(len(target), dtype=bool)
                    known[rows[held_out]] = False
                    folds.append((np.flatnonzero(known), rows[held_out]))
        return folds

    @property
    def _num_svms(self) -> int:
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
    """Votes ``M x K`` of the SVMs of pairs, whose positive class is the first."""
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
