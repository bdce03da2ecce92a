"""Residuals and held-out points compared with a model."""

from gpytorch_nkn.interpretation.checks.check_tools import plain
from gpytorch_nkn.interpretation.checks.forecasts import (
    LeaveOneOut,
    RollingForecasts,
    leave_one_out,
    one_step_ahead,
    rolling_forecasts,
)
from gpytorch_nkn.interpretation.checks.residual_checks import ResidualChecks, check_residuals

__all__ = [
    "LeaveOneOut",
    "ResidualChecks",
    "RollingForecasts",
    "check_residuals",
    "leave_one_out",
    "one_step_ahead",
    "plain",
    "rolling_forecasts",
]
