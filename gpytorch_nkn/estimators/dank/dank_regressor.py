"""Support vector regression with a learned Hadamard factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.model_selection import KFold

from gpytorch_nkn.estimators.dank.dank_base import FOLDS, BaseDANK
from gpytorch_nkn.estimators.dank.dank_selection import Fold, Path
from gpytorch_nkn.estimators.dank.dual import Block, regression_blocks
from gpytorch_nkn.estimators.table_input import check_size

__all__ = ["DANKRegressor"]


class DANKRegressor(RegressorMixin, BaseDANK):
    r"""Epsilon-insensitive support vector regression with a data-adaptive kernel.

    The base kernel is multiplied by a factor that is learned together with the SVM:

    .. math::
        \max_{\hat\alpha, \check\alpha} \min_{F \succeq 0}
            -\tfrac{1}{2} s^\top (F \circ K) s + s^\top y
            - \varepsilon 1^\top (\hat\alpha + \check\alpha)
            + \eta \lVert F - 11^\top \rVert_F^2,
        \qquad s = \hat\alpha - \check\alpha

    with ``0 <= alpha <= C`` and ``1's = 0`` (``y's = 0`` in the paper's (22) is a misprint). See
    :class:`~gpytorch_nkn.estimators.DANKClassifier` for the extension of ``F`` to new rows.

    Another factor, not in the paper, is learned first:
    ``F_w(x, x') = exp(-sum_d w_d (x_d - x'_d)^2 / 2)``. Other candidates have absolute differences,
    1, 2 or 4 times the lengthscale of the base kernel, or are averages with the base kernel.

    A factor is kept as in the classifier, over 5 folds. Without factors the model is
    ``sklearn.svm.SVR``. ``C`` and ``epsilon`` are in units of the targets: standardise targets by
    ``sklearn.compose.TransformedTargetRegressor``.

    Args:
        C: Upper bound of the dual variables.
        epsilon: Largest absolute error without loss (half the width of the tube).
        <shared arguments>

    Attributes:
        <shared attributes>

    If all targets are within the tube, predictions are constant.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(80, 4))
        >>> y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
        >>> regressor = DANKRegressor(C=10, epsilon=0.01, random_state=0).fit(X, y)
        >>> np.flatnonzero(regressor.relevances_ > 0.05).tolist()
        [0, 1]

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels,
    section 5.
    """

    _paths = (
        Path(2.0, 1.0, 1, (0.1, 0.03, 0.01), shares=(0.5,)),
        Path(1.0, 1.0, 2, (0.1, 0.03, 0.01), skipped=1, shares=(1.0, 0.5)),
        Path(2.0, 1.0, 2, (0.1, 0.03, 0.01, 0.003), skipped=1, shares=(1.0, 0.5)),
        Path(4.0, 1.0, 2, (0.1, 0.01, 0.003, 0.001), skipped=1, shares=(1.0, 0.5)),
    )
    _max_rows = 600

    def __init__(
        self,
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        kernel: str | Callable[[np.ndarray, np.ndarray], np.ndarray] | Kernel = "rbf",
        gamma: float | Literal["scale", "auto"] = "scale",
        eta: float | Literal["norm", "cv"] = "cv",
        relevance: Literal["cv"] | None = "cv",
        n_clusters: int | Literal["auto"] = "auto",
        random_state: int | np.random.RandomState | None = None,
    ):
        self._set_options(locals())

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return predictions ``M`` at rows ``M x D``, in units of the targets."""
        return self._outputs(X)[:, 0]

    def _read(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        table, targets = self._checked_table(X, y, y_numeric=True)
        targets = targets.astype(np.float64)
        check_size("y", targets)
        return table, targets

    def _blocks(self, target: np.ndarray, cost: float) -> list[Block]:
        return regression_blocks(target, self.epsilon, np.full(len(target), self.C * cost))

    def _losses(self, outputs: np.ndarray, target: np.ndarray) -> np.ndarray:
        return (outputs[:, 0] - target) ** 2

    def _folds(self, target: np.ndarray) -> list[Fold]:
        if len(target) < 2 * FOLDS or not np.ptp(target) > 0.0:
            return []
        splitter = KFold(FOLDS, shuffle=True, random_state=self._random().randint(2**31))
        return list(splitter.split(target))

    def _sample(self, target: np.ndarray, size: int) -> np.ndarray:
        return np.sort(self._random().permutation(len(target))[:size])
