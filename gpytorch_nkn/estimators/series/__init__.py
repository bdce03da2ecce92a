"""Forecasts of series."""

from gpytorch_nkn.estimators.series.many_series import forecast_many
from gpytorch_nkn.estimators.series.nkn_forecaster import NKNForecaster
from gpytorch_nkn.estimators.series.time_axis import TimeAxis as TimeAxis

__all__ = ["NKNForecaster", "forecast_many"]
