"""Structure of covariance matrices; nothing here knows of kernels."""

from gpytorch_nkn.linalg.gaussian import block_predictions, gaussian_negative_log_likelihood

__all__ = ["block_predictions", "gaussian_negative_log_likelihood"]
