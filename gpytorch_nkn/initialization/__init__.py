"""Start values from data."""

from gpytorch_nkn.initialization.distances import median_distances
from gpytorch_nkn.initialization.initialize import initialize_from_data, initialize_model
from gpytorch_nkn.initialization.periods import candidate_periods, periodogram_peaks
from gpytorch_nkn.initialization.structures import start_from_structure

__all__ = [
    "candidate_periods",
    "initialize_from_data",
    "initialize_model",
    "median_distances",
    "periodogram_peaks",
    "start_from_structure",
]
