"""Residuals and held-out points compared with a model."""

from gpytorch_nkn.interpretation.checks.forecasts import LeaveOneOut, held_out
from gpytorch_nkn.interpretation.checks.residual_checks import ResidualChecks, check_residuals

__all__ = ["LeaveOneOut", "ResidualChecks", "check_residuals", "held_out"]
