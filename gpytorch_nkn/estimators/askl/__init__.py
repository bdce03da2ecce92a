"""Automated spectral kernel learning."""

from gpytorch_nkn.estimators.askl.askl_classifier import ASKLClassifier
from gpytorch_nkn.estimators.askl.askl_regressor import ASKLRegressor

__all__ = ["ASKLClassifier", "ASKLRegressor"]
