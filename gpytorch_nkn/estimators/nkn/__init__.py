"""Neural Kernel Networks for tables and series."""

from gpytorch_nkn.estimators.nkn.nkn_forecaster import NKNForecaster, default_restarts
from gpytorch_nkn.estimators.nkn.nkn_regressor import NKNRegressor

__all__ = ["NKNForecaster", "NKNRegressor", "default_restarts"]
