"""Automated spectral kernel learning."""

from gpytorch_nkn.estimators.askl.askl_classifier import ASKLClassifier
from gpytorch_nkn.estimators.askl.askl_regressor import ASKLRegressor
from gpytorch_nkn.estimators.askl.excess_risk import ExcessRiskBound

__all__ = ["ASKLClassifier", "ASKLRegressor", "ExcessRiskBound"]
