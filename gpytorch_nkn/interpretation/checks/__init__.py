"""What residuals and held-out points say of a model."""

from gpytorch_nkn.interpretation.checks.check_tools import plain
from gpytorch_nkn.interpretation.checks.leave_one_out import LeaveOneOut, leave_one_out
from gpytorch_nkn.interpretation.checks.one_step_ahead import one_step_ahead
from gpytorch_nkn.interpretation.checks.residual_checks import ResidualChecks, check_residuals
from gpytorch_nkn.interpretation.checks.rolling import RollingForecasts, rolling_forecasts

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
