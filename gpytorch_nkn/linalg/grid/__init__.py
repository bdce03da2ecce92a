"""Kronecker-structured covariances on grids, complete or with missing cells."""

from gpytorch_nkn.linalg.grid.grid_likelihood import GridLikelihood, HeldOutBlocks
from gpytorch_nkn.linalg.grid.kronecker import (
    KroneckerEigen,
    kronecker_multiply,
    outer_product as outer_product,
)
from gpytorch_nkn.linalg.grid.partial_kronecker import (
    PartialGrid,
    PartialKronecker,
    put_slices as put_slices,
    take_slices as take_slices,
)

__all__ = [
    "GridLikelihood",
    "HeldOutBlocks",
    "KroneckerEigen",
    "PartialGrid",
    "PartialKronecker",
    "kronecker_multiply",
]
