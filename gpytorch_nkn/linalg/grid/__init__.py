"""Kronecker-structured covariances on grids, complete or with missing cells."""

from gpytorch_nkn.linalg.grid.conjugate_gradients import Solution
from gpytorch_nkn.linalg.grid.grid_likelihood import GridLikelihood, LeftOutBlocks
from gpytorch_nkn.linalg.grid.grid_log_determinant import LOG_DETERMINANTS, LogDeterminant
from gpytorch_nkn.linalg.grid.kronecker import KroneckerEigen, kronecker_multiply
from gpytorch_nkn.linalg.grid.partial_dense import dense_matrices, unknown_cells
from gpytorch_nkn.linalg.grid.partial_grid import PartialGrid
from gpytorch_nkn.linalg.grid.partial_kronecker import PartialKronecker

__all__ = [
    "LOG_DETERMINANTS",
    "GridLikelihood",
    "KroneckerEigen",
    "LeftOutBlocks",
    "LogDeterminant",
    "PartialGrid",
    "PartialKronecker",
    "Solution",
    "dense_matrices",
    "kronecker_multiply",
    "unknown_cells",
]
