"""What residuals and left-out points say of a model."""

from gpytorch_nkn.interpretation.checks.checks import (
    LeaveOneOut,
    ResidualChecks,
    check_residuals,
    leave_one_out,
)

__all__ = ["LeaveOneOut", "ResidualChecks", "check_residuals", "leave_one_out"]
