"""Regression with learned spectral kernels."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_base import SpectralLearner
from gpytorch_nkn.estimators.askl.askl_inputs import varies
from gpytorch_nkn.estimators.table_input import refuse_other_values

__all__ = ["ASKLRegressor"]


def _offset_and_scale(y: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of targets ``N`` that vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        offset, scale = float(y.mean()), float(y.std())
    if not 0 < scale < np.inf:
        raise ValueError(
            f"The targets, from {y.min():g} to {y.max():g}, are too large or too small to be "
            "standardised."
        )
    return offset, scale


def _refuse_text(y: ArrayLike) -> None:
    try:
        values = np.asarray(y)
        if values.dtype.kind in "OUS":
            values.astype(np.float64)
    except ValueError as error:
        if "could not convert string" in str(error):
            raise ValueError(
                f"y must hold numbers, but {error}: ASKLClassifier learns labels."
            ) from error
    except TypeError:
        return  # scikit-learn's checks say what is wrong


class ASKLRegressor(RegressorMixin, SpectralLearner, BaseEstimator):
    """Regression by automated spectral kernel learning: features and weights together.

    As :class:`ASKLClassifier`, with the squared distance between outputs and standardised targets,
    summed over several targets, as loss.

    Args:
        method: See :class:`ASKLClassifier`, as for all that is not here.
        n_components: Number ``D`` of features.
        gamma: Of the RBF kernel whose frequencies are the first.
        weight_penalty: Factor of the norm of ``W``, for targets of unit deviation.
        feature_penalty: Factor of the mean squared norm of features.
        depth: Number of layers.
        fit_intercept: Learn an intercept; without, it is the mean of the targets.
        solver: ``"adam"`` or ``"sgd"``.
        learning_rate: Of ``W`` and the intercept.
        frequency_learning_rate: Of the frequencies.
        batch_size: Rows of a mini-batch.
        max_iter: Largest number of epochs.
        early_stopping: Choose the number of epochs by held-out rows.
        validation_fraction: Share of a single part to hold out instead of the rule.
        n_iter_no_change: Cycles without a better score after which to stop.
        refit: Train on all rows for the number of epochs chosen.
        ridge: With early stopping and an intercept, solve for the weights by ridge regression on
            the features at the end of cycles, its penalty chosen by left-out rows, and let that on
            the features to start from be a candidate, too. ``False`` keeps the weights of the
            training, and with them the rank that ``weight_penalty`` gives. With ``"SK"`` and
            ``"NSK"``, whose features stay, this ridge regression is the model: there is no epoch
            of training, and ``weight_penalty``, ``solver``, ``learning_rate``, ``batch_size``,
            ``max_iter``, ``n_iter_no_change`` and ``budget`` (but for the start) have no effect.
        standardize: How to scale columns (targets are standardised always).
        budget: Seconds of a fit; ``None`` for no limit.
        device: Torch device of the computation.
        random_state: Seed, or NumPy random state.
        progress: Show a progress bar on a terminal.

    Attributes:
        coef_, intercept_: Weights ``D x K`` and intercepts ``K``, in units of the targets.
        y_offset_, y_scale_: Means and deviations ``K`` of the targets.
        validation_scores_: Minus the mean squared errors of held-out rows, for targets of unit
            deviation.

    Others are those of :class:`ASKLClassifier`.

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
        method: str = "ASKL",
        *,
        n_components: int = 2000,
        gamma: float | str = "auto",
        weight_penalty: float = 1e-5,
        feature_penalty: float | None = None,
        depth: int = 1,
        fit_intercept: bool = True,
        solver: str = "adam",
        learning_rate: float | None = None,
        frequency_learning_rate: float | None = None,
        batch_size: int | str = "auto",
        max_iter: int = 80,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        refit: bool | str = "auto",
        ridge: bool = True,
        n_iter_no_change: int = 2,
        standardize: bool | str = "auto",
        budget: float | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ):
        self.method = method
        self.n_components = n_components
        self.gamma = gamma
        self.weight_penalty = weight_penalty
        self.feature_penalty = feature_penalty
        self.depth = depth
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.learning_rate = learning_rate
        self.frequency_learning_rate = frequency_learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.ridge = ridge
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.budget = budget
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """One pass over a part of the data, at the full learning rates.

        As :meth:`ASKLClassifier.partial_fit`, without classes: the first call fixes the
        standardisation of columns and targets (``"auto"`` is ``True`` here), ``gamma``, the
        frequencies to start from, and options that belong to these, so its rows should be typical
        ones. After :meth:`fit` predictions for the same rows get worse at first, as rates that had
        fallen to zero are full ones again. A call that fails, or that Ctrl-C ends, changes nothing.

        Args:
            X: Rows ``N x d``.
            y: Targets ``N`` or ``N x K``.

        Returns:
            The estimator.

        Raises:
            ValueError: What :meth:`fit` raises.
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
        _refuse_text(y)
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
            _offset_and_scale(column) if used else (column[0], 1.0)
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
