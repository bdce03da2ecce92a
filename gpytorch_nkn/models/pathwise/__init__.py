"""Samples of whole functions from priors and posteriors, by spectral features."""

from gpytorch_nkn.models.pathwise.spectral_features import SpectralFeatureMap, spectral_features
from gpytorch_nkn.models.pathwise.weight_space_paths import draw_weight_space_paths

__all__ = ["SpectralFeatureMap", "draw_weight_space_paths", "spectral_features"]
