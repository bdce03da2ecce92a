"""Bayesian optimisation: training on growing data, and initial conditions for ``optimize_acqf``."""

from gpytorch_nkn.bo.fitting import fit_bo_model
from gpytorch_nkn.bo.initial_conditions import coordinate_sweep_initial_conditions

__all__ = ["coordinate_sweep_initial_conditions", "fit_bo_model"]
