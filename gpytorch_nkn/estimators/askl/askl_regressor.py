"""Regression with learned spectral kernels."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import SpectralLearner, describe_shared
from gpytorch_nkn.estimators.askl.askl_inputs import varies
from gpytorch_nkn.estimators.table_input import offset_and_scale, refuse_other_values

__all__ = ["ASKLRegressor"]


@describe_shared
class ASKLRegressor(RegressorMixin, SpectralLearner):
    """Regression by automated spectral kernel learning: features and weights together.

    As :class:`ASKLClassifier`, with the squared distance between outputs and standardised targets,
    summed over several targets, as loss.

    Args:
        {shared}

    Attributes:
        y_offset_, y_scale_: Means and deviations ``K`` of the targets.
        {shared}

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """One pass over a part of the data, at the full learning rates.

        As :meth:`ASKLClassifier.partial_fit`, without classes: the first call fixes the
        standardisation of columns and targets (``"auto"`` is ``True`` here), ``gamma``, the
        frequencies to start from, and options that belong to these, so its rows should be typical
        ones. After ``fit`` predictions for the same rows get worse at first, as rates that had
        fallen to zero are full ones again. A call that fails, or that Ctrl-C ends, changes nothing.

        Args:
            X: Rows ``N x d``.
            y: Targets ``N`` or ``N x K``.

        Returns:
            The estimator.

        Raises:
            ValueError: What ``fit`` raises.
        """
        return self._partial_fit(X, y, not hasattr(self, "_network"), None)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predictions ``M`` or ``M x K``, in units of the targets.

        Args:
            X: Rows ``M x d``.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs

    @property
    def _loss_name(self) -> str:
        return "squared_error"

    def _read(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[np.ndarray, np.ndarray]:
        refuse_other_values("X", X)
        refuse_other_values("y", y)
        table, targets = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            order="C",
            reset=first,
            ensure_min_samples=2 if first else 1,
            multi_output=True,
            y_numeric=True,
        )
        return table, targets.astype(np.float64)

    def _learn_targets(self, y: np.ndarray, given: np.ndarray | None) -> int:
        self._flat = y.ndim == 1
        columns = y.reshape(len(y), -1)
        use = varies(columns)
        if not use.any():
            raise ValueError(f"The targets are constant ({columns[0, 0]}): nothing can be learned.")
        pairs = [
            offset_and_scale(column) if used else (column[0], 1.0)
            for column, used in zip(columns.T, use, strict=True)
        ]
        self.y_offset_, self.y_scale_ = (np.array(part) for part in zip(*pairs, strict=True))
        return columns.shape[1]

    def _encode(self, y: np.ndarray) -> np.ndarray:
        columns = y.reshape(len(y), -1)
        if columns.shape[1] != len(self.y_offset_):
            raise ValueError(
                f"y must have {len(self.y_offset_)} columns as in the first call, got "
                f"{columns.shape[1]}."
            )
        return ((columns - self.y_offset_) / self.y_scale_).astype(np.float32)

    def _ridge_targets(self, encoded: np.ndarray) -> np.ndarray:
        return encoded.astype(np.float64)

    def _first_intercept(self, encoded: np.ndarray) -> np.ndarray:
        return np.zeros(encoded.shape[1])

    def _scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -(outputs - targets).square().mean(1)

    def _output_scale(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        return self.y_offset_, self.y_scale_
