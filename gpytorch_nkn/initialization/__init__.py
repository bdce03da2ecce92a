"""Start values from data."""

from gpytorch_nkn.initialization.assign import assign as assign
from gpytorch_nkn.initialization.change_points import ChangePoint, change_points
from gpytorch_nkn.initialization.distances import median_distances
from gpytorch_nkn.initialization.grid_start import (
    initialize_grid_kernels,
    rescale_kernel as rescale_kernel,
)
from gpytorch_nkn.initialization.initialize import initialize_from_data, initialize_model
from gpytorch_nkn.initialization.periods import periodogram_peaks

__all__ = [
    "ChangePoint",
    "change_points",
    "initialize_from_data",
    "initialize_grid_kernels",
    "initialize_model",
    "median_distances",
    "periodogram_peaks",
]
