"""Support vector classification with a learned Hadamard factor."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from typing import Any, Literal

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight

from gpytorch_nkn.estimators.dank.dank_base import FOLDS, BaseDANK
from gpytorch_nkn.estimators.dank.dank_selection import Fold, Path
from gpytorch_nkn.estimators.dank.dual import Block, classification_blocks
from gpytorch_nkn.estimators.table_input import encode_classes, stratified_folds

__all__ = ["DANKClassifier"]

_REPEATS = 2  # number of repetitions of cross-validation
_PENALTIES = (0.3, 0.1, 0.03, 0.01, 0.003)  # candidate penalties of relevances


class DANKClassifier(ClassifierMixin, BaseDANK):
    r"""Support vector classification with a data-adaptive kernel.

    The base kernel is multiplied by a factor that is learned together with the SVM:

    .. math::
        \tilde k(x, x') = k(x, x')\, F(x, x'), \qquad
        \max_\alpha \min_{F \succeq 0} 1^\top \alpha
            - \tfrac{1}{2} \alpha^\top Y (F \circ K) Y \alpha
            + \eta \lVert F - 11^\top \rVert_F^2

    The paper's ``F`` is a matrix with a closed form for any ``alpha``. This class extends it to a
    function ``F_s``: kernel ridge regression smooths the dual coefficients. An SVM with the
    resulting kernel is then trained and makes the predictions. (The paper's extension, by
    reciprocal nearest neighbours, is not a kernel and predicts worse.)

    Another factor, not in the paper, is learned first:
    ``F_w(x, x') = exp(-sum_d w_d |x_d - x'_d| / 2)`` minimises the same maximum, with a penalty on
    ``w``. Most gains in benchmarks/RESULTS.md come from this factor. Candidate base kernels have 1,
    2 and 4 times the lengthscale, and 1, 4 and 16 times ``C``.

    A factor is kept only if it predicts held-out rows better by more than a standard error, over
    two repetitions of 5-fold cross-validation. Without factors the model is ``sklearn.svm.SVC``:
    tune ``C`` and ``gamma`` with ``SVC``, which is faster, and then learn the factors. With more
    than two classes, the one-vs-one SVMs share one ``F`` and thus one kernel.

    Args:
        C: Upper bound of the dual variables.
        class_weight: Factors of ``C`` by class, or ``"balanced"``. In comparisons of kernels they
            also weight the errors.
        <shared arguments>

    Attributes:
        classes_: Sorted classes.
        <shared attributes>

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
    classes_: np.ndarray

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] | Kernel = "rbf",
        gamma: float | Literal["scale", "auto"] = "scale",
        eta: float | Literal["norm", "cv"] = "cv",
        relevance: Literal["cv"] | None = "cv",
        n_clusters: int | Literal["auto"] = "auto",
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self._set_options(locals())

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return values ``M`` at rows ``M x D``, positive for the second of two classes.

        For ``K > 2`` classes, values ``M x K`` are one-vs-one votes, as in scikit-learn's ``SVC``.
        Sums of the SVMs' decision values, mapped to between -1/3 and 1/3, are added.
        """
        return _decisions(self._outputs(X), len(self.classes_))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return classes ``M`` at rows ``M x D`` by majority vote; the sums decide ties."""
        codes = _codes(self.decision_function(X))  # first, because it raises if not fitted
        return self.classes_[codes]

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        table, labels = self._checked_table(X, y)
        self.classes_, codes = encode_classes(labels)
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError(f"class_weight must be positive and finite, got {weights.tolist()}.")
        self._class_weights = weights
        self._num_svms = len(self.classes_) * (len(self.classes_) - 1) // 2
        return table, codes

    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        upper = self.C * cost * self._class_weights[target]
        return classification_blocks(target, len(self.classes_), upper)

    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        wrong = _codes(_decisions(outputs, len(self.classes_))) != target
        return wrong * self._class_weights[target]

    def _folds(self, target: np.ndarray) -> list[Fold]:
        counts = np.bincount(target, minlength=len(self.classes_))
        count = min(FOLDS, int(counts.max()))
        if len(target) < 2 * FOLDS or count < 2:
            return []
        # The only row of a class is never held out.
        rows = np.flatnonzero(counts[target] > 1)
        random = self._random()
        folds = [stratified_folds(target[rows], count, random) for _ in range(_REPEATS)]
        held_out = [rows[fold] for fold in chain(*folds)]
        return [(np.setdiff1d(np.arange(len(target)), test), test) for test in held_out]

    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        """Return ``size`` random row indices; more, if needed for two rows of every class."""
        order = self._random().permutation(len(target))
        codes = range(len(self.classes_))
        needed = np.concatenate([order[target[order] == code][:2] for code in codes])
        return np.union1d(needed, order[: max(size - len(needed), 0)])


def _decisions(outputs: np.ndarray, num_classes: int) -> np.ndarray:
    """Return values ``M`` for two classes, otherwise one-vs-one votes ``M x K``.

    Outputs ``M x P`` are positive for the first class of a pair.
    """
    if num_classes == 2:
        return outputs[:, 0]
    votes = np.zeros((len(outputs), num_classes))
    sums = np.zeros_like(votes)
    for column, (first, second) in enumerate(combinations(range(num_classes), 2)):
        value = outputs[:, column]
        votes[:, first] += value > 0
        votes[:, second] += value <= 0
        sums[:, first] += value
        sums[:, second] -= value
    return votes + sums / (3.0 * (np.abs(sums) + 1.0))


def _codes(decisions: np.ndarray) -> np.ndarray:
    return (decisions > 0).astype(np.intp) if decisions.ndim == 1 else decisions.argmax(axis=1)
