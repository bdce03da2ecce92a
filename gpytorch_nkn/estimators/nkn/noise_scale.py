"""Noise variance of a table as a function of the inputs and the prediction."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import GammaRegressor
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["NoiseScale"]

_PENALTY = 10.0  # number of rows; the prior standard deviation of a coefficient is about 0.3
_LARGEST = 16.0  # squared standardised errors are clipped here, to be robust to outliers
_LIMITS = (1 / 9, 9.0)  # range of the factor of a variance
_FOLDS = 5


class NoiseScale:
    """Log-linear factor of the variances of function and noise.

    Features are the columns, the prediction and their squares, clipped to the range of the fit.
    Squared standardised errors have a Gamma distribution with this factor as mean, whose likelihood
    is the Gaussian likelihood with the scaled variance.

    Args:
        inputs: Standardised rows ``N x d``.
        means: Held-out predictions ``N``.
        squares: Squared errors over their predicted variances ``N``.
        numbers: Mask ``d`` of numeric columns.

    Attributes:
        held_out: Factors ``N`` of the rows by cross-validation.
    """

    def __init__(
        self, inputs: np.ndarray, means: np.ndarray, squares: np.ndarray, numbers: np.ndarray
    ):
        self._numbers = numbers
        plain = self._plain(inputs, means)
        self._lower, self._upper = plain.min(0), plain.max(0)
        gamma = GammaRegressor(alpha=_PENALTY / len(means), solver="newton-cholesky")
        self._regressor = make_pipeline(StandardScaler(), gamma)
        given = self._features(inputs, means), np.clip(squares, 1e-12, _LARGEST)
        folds = KFold(_FOLDS, shuffle=True, random_state=0)
        self.held_out = cross_val_predict(self._regressor, *given, cv=folds).clip(*_LIMITS)
        self._regressor.fit(*given)

    def __call__(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return factors ``M`` of variances at rows ``M x d`` with predictions ``M``."""
        return np.clip(self._regressor.predict(self._features(inputs, means)), *_LIMITS)

    def _plain(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        return np.column_stack([inputs[:, self._numbers], means])

    def _features(self, inputs: np.ndarray, means: np.ndarray) -> np.ndarray:
        plain = np.clip(self._plain(inputs, means), self._lower, self._upper)
        return np.column_stack([plain, plain**2])
