"""Learning: restarts, budgets, progress, and the record of a fit."""

from gpytorch_nkn.fit.best_of import fit_best_of
from gpytorch_nkn.fit.in_stages import fit_in_stages
from gpytorch_nkn.fit.recipe import Recipe
from gpytorch_nkn.fit.result import FitResult, RestartRecord
from gpytorch_nkn.fit.stacking import stacking_weights

__all__ = [
    "FitResult",
    "Recipe",
    "RestartRecord",
    "fit_best_of",
    "fit_in_stages",
    "stacking_weights",
]
