"""GPs on grids of any number of dimensions, with cells missing."""

from gpytorch_nkn.models.grid.fit_grid import GridFit, GridRestart, fit_grid_gp
from gpytorch_nkn.models.grid.grid_blocks import hole_blocks as hole_blocks
from gpytorch_nkn.models.grid.kronecker_grid_gp import KroneckerGridGP

__all__ = ["GridFit", "GridRestart", "KroneckerGridGP", "fit_grid_gp"]
