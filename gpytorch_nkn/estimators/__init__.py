"""Estimators in the manner of scikit-learn."""

from gpytorch_nkn.estimators.nkn_forecaster import NKNForecaster
from gpytorch_nkn.estimators.nkn_regressor import NKNRegressor

__all__ = ["NKNForecaster", "NKNRegressor"]
