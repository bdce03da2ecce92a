"""Estimators with scikit-learn's conventions."""

from gpytorch_nkn.estimators.nkn_forecaster import NKNForecaster

__all__ = ["NKNForecaster"]
