"""Classification with learned spectral kernels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import Problem, SpectralLearner
from gpytorch_nkn.estimators.table_input import encode_classes

__all__ = ["ASKLClassifier"]

_LOSSES = ("log_loss", "hinge")


def _has_probabilities(estimator: Any) -> bool:
    loss = getattr(estimator, "_trained_loss", estimator.loss)  # loss at the time of the fit
    if loss != "log_loss":
        raise AttributeError(f"Probabilities need loss='log_loss', got loss={loss!r}.")
    return True


class ASKLClassifier(ClassifierMixin, SpectralLearner):
    r"""Classifier that learns a spectral kernel (automated spectral kernel learning).

    .. math::
        f(x) = W^\top \phi(x) + c, \qquad \phi(x) = \sqrt{1/2D}\,
            [\cos(\Omega^\top x + b) + \cos(\Omega'^\top x + b)]

    The frequencies and ``W`` minimise the mean loss plus ``weight_penalty`` times the trace norm of
    ``W`` plus ``feature_penalty`` times the mean squared norm of ``phi``. Initial frequencies are
    drawn from an RBF kernel. After each step on a mini-batch, a proximal step reduces the
    singular values of ``W`` by ``weight_penalty`` times the learning rate. The inner product of
    ``phi(x)`` and ``phi(x')`` is a valid kernel, non-stationary for any ``Omega' != Omega``. (With
    separate phases for ``Omega'``, as in the paper, the expected kernel would be stationary.)

    Early stopping regularises, so no option needs tuning; the penalties have little effect.
    Learning rates decrease to zero in cycles that end after 5, 10, 20, 40, ... epochs.

    Args:
        loss: ``"log_loss"``, or ``"hinge"`` (1 minus the margin, at least 0) as in the paper.
        <shared arguments>
        <shared computation>

    Attributes:
        classes_: Sorted classes.
        <shared attributes>

    Training uses float32, and predictions use float64, both on ``device``. A model trained on a GPU
    predicts on the CPU after ``set_params(device=None)``.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(80, 2))
        >>> classifier = ASKLClassifier(n_components=50, max_iter=10, random_state=0)
        >>> classifier.fit(X, X[:, 0] * X[:, 1] > 0).predict_proba(X[:3]).shape
        (3, 2)

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning.
    """

    loss: str
    classes_: np.ndarray

    def __init__(
        self,
        method: Literal["SK", "NSK", "SKL", "NSKL", "ASKL"] = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | Literal["auto"] = "auto",
        weight_penalty: float = 1e-5,
        feature_penalty: float = 1e-4,
        loss: Literal["log_loss", "hinge"] = "log_loss",
        max_iter: int = 80,
        early_stopping: bool = True,
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return outputs ``M x K`` at rows ``M x D``; for two classes ``M``, second minus first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the classes ``M`` with the largest outputs at rows ``M x D``."""
        codes = self._outputs(X).argmax(1)  # first, because it raises if not fitted
        return self.classes_[codes]

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return class probabilities ``M x K``, the softmax of outputs, for ``loss="log_loss"``."""
        return softmax(self._outputs(X), axis=1)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`."""
        return log_softmax(self._outputs(X), axis=1)

    @property
    def _loss_name(self) -> str:
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {_LOSSES}, got {self.loss!r}.")
        return self.loss

    def _read(self, X: ArrayLike, y: ArrayLike) -> Problem:
        table, labels = self._checked_table(X, y)
        self.classes_, codes = encode_classes(labels)
        self._trained_loss = self._loss_name
        one_hot = np.eye(len(self.classes_))[codes]
        logs = np.log(np.maximum(one_hot.sum(0), 1e-6 * len(codes)))
        intercept = (logs - logs.mean()) * (self.loss == "log_loss")
        return Problem(table, codes.astype(np.int64)[:, None], 2.0 * one_hot - 1.0, intercept)

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wrong = (outputs.argmax(1, keepdim=True) != targets).squeeze(1)
        errors = outputs.double().softmax(1)
        errors.scatter_add_(1, targets, torch.full_like(errors[:, :1], -1.0))
        return -(wrong + errors.square().sum(1))
