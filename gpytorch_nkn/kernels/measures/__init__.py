"""Spectral measures of kernels, from which random features are drawn."""

from gpytorch_nkn.kernels.measures.draws import Draws, RandomFeatures, allocated, uniforms
from gpytorch_nkn.kernels.measures.measures import (
    Constant,
    Frequencies,
    Linear,
    Measure,
    Pairs,
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
    "Frequencies",
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
    "uniforms",
]
