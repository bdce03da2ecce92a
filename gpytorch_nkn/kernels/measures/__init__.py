"""Spectral measures of kernels, and random features that are drawn from them."""

from gpytorch_nkn.kernels.measures.draws import Draws, RandomFeatures, stratified, uniforms
from gpytorch_nkn.kernels.measures.measures import (
    Frequencies,
    Measure,
    centered_linear,
    complex_exponential,
    constant,
    flat,
    linear,
    matern,
    periodic,
    rational_quadratic,
    rbf,
    spectral_component,
    spectral_pairs,
    zero_mean_periodic,
)

__all__ = [
    "Draws",
    "Frequencies",
    "Measure",
    "RandomFeatures",
    "centered_linear",
    "complex_exponential",
    "constant",
    "flat",
    "linear",
    "matern",
    "periodic",
    "rational_quadratic",
    "rbf",
    "spectral_component",
    "spectral_pairs",
    "stratified",
    "uniforms",
    "zero_mean_periodic",
]
