"""Objectives for training Gaussian processes."""

from gpytorch_nkn.mlls.analytic_exact_marginal_log_likelihood import (
    AnalyticExactMarginalLogLikelihood,
    exact_log_density,
)

__all__ = ["AnalyticExactMarginalLogLikelihood", "exact_log_density"]
