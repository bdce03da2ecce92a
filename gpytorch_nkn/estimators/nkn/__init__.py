"""Gaussian processes with networks of kernels, for tables."""

from gpytorch_nkn.estimators.nkn.nkn_classifier import NKNClassifier
from gpytorch_nkn.estimators.nkn.nkn_regressor import NKNRegressor

__all__ = ["NKNClassifier", "NKNRegressor"]
