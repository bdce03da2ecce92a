"""Estimators in the manner of scikit-learn."""

from gpytorch_nkn.estimators.askl_classifier import ASKLClassifier
from gpytorch_nkn.estimators.askl_regressor import ASKLRegressor
from gpytorch_nkn.estimators.dank_classifier import DANKClassifier
from gpytorch_nkn.estimators.dank_regressor import DANKRegressor
from gpytorch_nkn.estimators.dank_selection import Candidate
from gpytorch_nkn.estimators.excess_risk import ExcessRiskBound
from gpytorch_nkn.estimators.nkn_forecaster import NKNForecaster
from gpytorch_nkn.estimators.nkn_regressor import NKNRegressor

__all__ = [
    "ASKLClassifier",
    "ASKLRegressor",
    "Candidate",
    "DANKClassifier",
    "DANKRegressor",
    "ExcessRiskBound",
    "NKNForecaster",
    "NKNRegressor",
]
