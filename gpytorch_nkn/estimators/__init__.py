"""Estimators with scikit-learn's interface; they need pandas (``gpytorch_nkn[estimators]``)."""

from gpytorch_nkn._optional import needs

with needs("gpytorch_nkn.estimators"):
    from gpytorch_nkn.estimators.askl import ASKLClassifier, ASKLRegressor
    from gpytorch_nkn.estimators.dank import DANKClassifier, DANKRegressor
    from gpytorch_nkn.estimators.nkn import NKNClassifier, NKNRegressor
    from gpytorch_nkn.estimators.series import NKNForecaster, TimeAxis as TimeAxis, forecast_many

__all__ = [
    "ASKLClassifier",
    "ASKLRegressor",
    "DANKClassifier",
    "DANKRegressor",
    "NKNClassifier",
    "NKNForecaster",
    "NKNRegressor",
    "forecast_many",
]
