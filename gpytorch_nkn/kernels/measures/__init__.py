"""Spectral measures of kernels, from which random features are drawn."""

from gpytorch_nkn.kernels.measures.measures import (
    Constant as Constant,
    Draws,
    Linear as Linear,
    Measure,
    Pairs as Pairs,
    RandomFeatures,
    allocated as allocated,
    complex_exponential as complex_exponential,
    flat as flat,
    matern as matern,
    periodic as periodic,
    rational_quadratic as rational_quadratic,
    rbf as rbf,
    spectral_component as spectral_component,
)

__all__ = ["Draws", "Measure", "RandomFeatures"]
