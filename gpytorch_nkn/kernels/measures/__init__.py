"""Spectral measures of kernels, from which random features are drawn."""

from gpytorch_nkn.kernels.measures.measures import (
    Constant,
    Draws,
    Linear,
    Measure,
    Pairs,
    RandomFeatures,
    allocated,
    complex_exponential,
    flat,
    matern,
    periodic,
    rational_quadratic,
    rbf,
    spectral_component,
)

__all__ = [
    "Constant",
    "Draws",
    "Linear",
    "Measure",
    "Pairs",
    "RandomFeatures",
    "allocated",
    "complex_exponential",
    "flat",
    "matern",
    "periodic",
    "rational_quadratic",
    "rbf",
    "spectral_component",
]
