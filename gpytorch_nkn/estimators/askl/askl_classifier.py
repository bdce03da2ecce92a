"""Classification with learned spectral kernels."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import SpectralLearner, describe_shared
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["ASKLClassifier"]

_LOSSES = ("log_loss", "hinge")


def _has_probabilities(estimator: Any) -> bool:
    loss = getattr(estimator, "_trained_loss", estimator.loss)  # outputs are those of the fit
    if loss != "log_loss":
        raise AttributeError(f"Probabilities come with loss='log_loss', not with loss={loss!r}.")
    return True


@describe_shared
class ASKLClassifier(ClassifierMixin, SpectralLearner):
    r"""Classification by automated spectral kernel learning: features and weights together.

    .. math::
        f(x) = W^\top \phi(x) + c, \qquad \phi(x) = \sqrt{1/2D}\,
            [\cos(\Omega^\top x + b) + \cos(\Omega'^\top x + b)]

    minimises the mean loss plus ``weight_penalty`` times the trace norm of ``W`` plus
    ``feature_penalty`` times the mean squared norm of ``phi``, over ``W`` and the frequencies,
    which start at those of an RBF kernel. Each step on a mini-batch is followed by a proximal one:
    singular values of ``W`` shrink by ``weight_penalty`` times its learning rate.
    ``phi(x)' phi(x')`` is a non-stationary kernel, whatever the frequencies are.

    The paper draws phases of ``Omega'`` of their own. The expectation of its kernel over them is
    stationary, so here both have the same phases ``b``, with which ``phi`` equals
    ``sqrt(2 / D) cos(m'x + b) cos(e'x)``: a wave whose frequency ``m`` is the mean of both, in an
    envelope by half their difference ``e``.

    Nothing needs to be tuned. What regularises is the length of the training, which held-out rows
    choose: learning rates fall to zero in cycles that end after 5, 10, 20, 40, ... epochs, and the
    best of their ends, or ridge regression on the features to start from, tells for how long to
    train on all rows. The penalties change little, with Adam above all.

    Args:
        loss: ``"log_loss"``, or ``"hinge"``, the paper's: one minus the lead of the right class.
        {shared}

    Attributes:
        classes_: The classes.
        {shared}

    Training computes in float32, predictions in float64. Ctrl-C and the budget end a training; the
    best parameters so far predict.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(80, 2))
        >>> classifier = ASKLClassifier(n_components=50, max_iter=10, random_state=0)
        >>> classifier.fit(X, X[:, 0] * X[:, 1] > 0).predict_proba(X[:3]).shape
        (3, 2)

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning.
    """

    classes_: np.ndarray

    def __init__(
        self,
        method: Literal["SK", "NSK", "SKL", "NSKL", "ASKL"] = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | Literal["auto", "median"] = "auto",
        loss: Literal["log_loss", "hinge"] = "log_loss",
        weight_penalty: float = 1e-5,
        feature_penalty: float | None = None,
        depth: int = 1,
        fit_intercept: bool = True,
        solver: Literal["adam", "sgd"] = "adam",
        learning_rate: float | None = None,
        frequency_learning_rate: float | None = None,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 80,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        refit: bool | Literal["auto"] = "auto",
        ridge: bool = True,
        n_iter_no_change: int = 2,
        standardize: bool | str = "auto",
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        shared = dict(locals())
        for name in ("self", "loss", "__class__"):
            del shared[name]
        super().__init__(**shared)
        self.loss = loss

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """One pass over a part of the data, at the full learning rates.

        The first call fixes the classes, the standardisation (``"auto"`` is ``True`` here),
        ``gamma`` and the frequencies to start from, so its rows should be typical ones; a column
        that is constant in them is centred, but not scaled. ``n_components``, ``depth``,
        ``fit_intercept`` and ``random_state`` are those of the first call, too, whatever
        ``set_params`` says later; another ``solver`` is refused; rates, penalties, ``loss``,
        ``method`` and ``batch_size`` are those of the present call. ``early_stopping`` with what
        belongs to it, ``ridge``, ``max_iter`` and ``budget`` have no part in it.

        What the optimiser remembers is kept between calls. After ``fit`` the first call starts
        from its parameters with an optimiser that remembers nothing, at rates that had fallen to
        zero: on the same rows predictions get worse at first, as what ``fit`` converged to (or
        solved for) is left. It is for rows that differ from those of ``fit``; smaller
        ``learning_rate`` and ``frequency_learning_rate`` move less. A call that fails, or that
        Ctrl-C ends, changes nothing.

        Args:
            X: Rows ``N x d``.
            y: Classes ``N``.
            classes: All classes there will ever be; needed in the first call.

        Returns:
            The estimator.

        Raises:
            ValueError: There are no classes in the first call, or other ones later; and what
                ``fit`` raises.
        """
        first = not hasattr(self, "_network")
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit.")
        given = None if classes is None else np.unique(np.asarray(classes))
        if given is not None and not first and not np.array_equal(given, self.classes_):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got "
                f"{given.tolist()}."
            )
        return self._partial_fit(X, y, first, given)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Outputs ``M x K``; for two classes ``M``, that of the second minus that of the first.

        Args:
            X: Rows ``M x d``.
        """
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Classes ``M`` with the largest outputs.

        Args:
            X: Rows ``M x d``.
        """
        places = self._outputs(X).argmax(1)
        return self.classes_[places]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities ``M x K`` of the classes, the softmax of the outputs.

        Only with ``loss="log_loss"``: outputs of the hinge loss are no probabilities.

        Args:
            X: Rows ``M x d``.
        """
        return softmax(self._outputs(X), axis=1)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`.

        Args:
            X: Rows ``M x d``.
        """
        return log_softmax(self._outputs(X), axis=1)

    @property
    def _loss_name(self) -> str:
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {_LOSSES}, got {self.loss!r}.")
        return self.loss

    def _read(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[np.ndarray, np.ndarray]:
        refuse_other_values("X", X)
        least = 2 if first else 1
        try:
            table, labels = validate_data(
                self, X, y, dtype=np.float64, order="C", reset=first, ensure_min_samples=least
            )
            check_classification_targets(labels)
            np.unique(labels)
        except TypeError as error:
            if "not supported between instances" not in str(error):
                raise
            kinds = sorted({type(label).__name__ for label in np.asarray(y, dtype=object).flat})
            raise ValueError(
                f"y must hold labels of one kind without missing ones, got {', '.join(kinds)}."
            ) from error
        return table, labels

    def _learn_targets(self, y: np.ndarray, given: np.ndarray | None) -> int:
        self.classes_ = np.unique(y) if given is None else given
        if len(self.classes_) < 2:
            raise ValueError(
                f"There must be two classes or more, got one class: {self.classes_.tolist()}."
            )
        return len(self.classes_)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[places] != y
        if unknown.any():
            raise ValueError(
                f"y has classes {np.unique(y[unknown]).tolist()}, which are not among the classes "
                f"of the first call, {self.classes_.tolist()}."
            )
        return places.astype(np.int64)[:, None]

    def _ridge_targets(self, encoded: np.ndarray) -> np.ndarray:
        return 2.0 * np.eye(len(self.classes_))[encoded[:, 0]] - 1.0

    def _first_intercept(self, encoded: np.ndarray) -> np.ndarray:
        counts = np.bincount(encoded[:, 0], minlength=len(self.classes_))
        if self._loss_name != "log_loss":
            return np.zeros(len(counts))
        logs = np.log(np.maximum(counts, 1e-6 * len(encoded)))
        return logs - logs.mean()

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wrong = (outputs.argmax(1, keepdim=True) != targets).squeeze(1)
        apart = outputs.double().softmax(1)
        apart.scatter_add_(1, targets, torch.full_like(apart[:, :1], -1.0))
        return -(wrong + apart.square().sum(1))
