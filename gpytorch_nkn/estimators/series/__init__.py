"""Forecasts of series."""

from gpytorch_nkn.estimators.series.forecast_many import forecast_many
from gpytorch_nkn.estimators.series.nkn_forecaster import NKNForecaster

__all__ = ["NKNForecaster", "forecast_many"]
