"""Residuals and held-out points compared with a model."""

from gpytorch_nkn.interpretation.checks.forecasts import (
    LeaveOneOut,
    leave_one_out,
    one_step_ahead,
)
from gpytorch_nkn.interpretation.checks.residual_checks import ResidualChecks, check_residuals

__all__ = [
    "LeaveOneOut",
    "ResidualChecks",
    "check_residuals",
    "leave_one_out",
    "one_step_ahead",
]
