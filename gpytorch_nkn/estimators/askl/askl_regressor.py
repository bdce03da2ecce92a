"""Regression with learned spectral kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import Problem, SpectralLearner
from gpytorch_nkn.estimators.table_input import check_varies, offset_and_scale

__all__ = ["ASKLRegressor"]


class ASKLRegressor(RegressorMixin, SpectralLearner):
    """Regressor that learns a spectral kernel (automated spectral kernel learning).

    :class:`ASKLClassifier` describes the method. The loss is the squared error of the standardised
    targets, summed over the ``K`` targets.

    Args:
        <shared arguments>
        <shared computation>

    Attributes:
        y_offset_, y_scale_: Means and standard deviations ``K`` of the targets.
        <shared attributes>

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(80, 2))
        >>> regressor = ASKLRegressor(n_components=50, max_iter=10, random_state=0)
        >>> regressor.fit(X, np.sin(3 * X[:, 0]) + X[:, 1]).predict(X[:3]).shape
        (3,)

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning.
    """

    y_offset_: np.ndarray
    y_scale_: np.ndarray

    def __init__(
        self,
        method: Literal["SK", "NSK", "SKL", "NSKL", "ASKL"] = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | Literal["auto"] = "auto",
        weight_penalty: float = 1e-5,
        feature_penalty: float = 1e-4,
        max_iter: int = 80,
        early_stopping: bool = True,
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return predictions ``M`` or ``M x K`` at rows ``M x D``, in units of the targets."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs

    @property
    def _loss_name(self) -> str:
        return "squared_error"

    def _read(self, X: ArrayLike, y: ArrayLike) -> Problem:
        table, targets = self._checked_table(X, y, multi_output=True, y_numeric=True)
        self._flat = targets.ndim == 1
        columns = targets.astype(np.float64).reshape(len(targets), -1)
        check_varies(columns)
        offset, scale = self.y_offset_, self.y_scale_ = offset_and_scale(columns)
        scaled = ((columns - offset) / scale).astype(np.float32)
        intercept = np.zeros(columns.shape[1])
        return Problem(table, scaled, scaled.astype(np.float64), intercept, offset, scale)

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -(outputs - targets).square().mean(1)
