"""Support vector machines with learned (data-adaptive) kernels."""

from gpytorch_nkn.estimators.dank.dank_classifier import DANKClassifier
from gpytorch_nkn.estimators.dank.dank_regressor import DANKRegressor

__all__ = ["DANKClassifier", "DANKRegressor"]
