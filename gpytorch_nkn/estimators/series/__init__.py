"""Forecasts of series."""

from gpytorch_nkn.estimators.series.nkn_forecaster import NKNForecaster

__all__ = ["NKNForecaster"]
