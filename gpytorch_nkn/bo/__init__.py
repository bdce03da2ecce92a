"""Bayesian optimisation: training while data grow, and the search for the next point."""

from gpytorch_nkn.bo.fitting import fit_bo_model, warm_start
from gpytorch_nkn.bo.initial_conditions import coordinate_sweep_initial_conditions
from gpytorch_nkn.bo.trust_region import TrustRegion, trust_region

__all__ = [
    "TrustRegion",
    "coordinate_sweep_initial_conditions",
    "fit_bo_model",
    "trust_region",
    "warm_start",
]
