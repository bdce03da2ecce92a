"""Estimators in the manner of scikit-learn."""

from gpytorch_nkn.estimators.askl import ASKLClassifier, ASKLRegressor
from gpytorch_nkn.estimators.dank import Candidate, DANKClassifier, DANKRegressor
from gpytorch_nkn.estimators.nkn import NKNRegressor
from gpytorch_nkn.estimators.series import NKNForecaster, forecast_many

__all__ = [
    "ASKLClassifier",
    "ASKLRegressor",
    "Candidate",
    "DANKClassifier",
    "DANKRegressor",
    "NKNForecaster",
    "NKNRegressor",
    "forecast_many",
]
