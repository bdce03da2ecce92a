"""Sample paths from priors and posteriors by spectral features."""

from gpytorch_nkn.models.pathwise.paths import SharedMapPath as SharedMapPath
from gpytorch_nkn.models.pathwise.spectral_features import SpectralFeatureMap, spectral_features

__all__ = ["SpectralFeatureMap", "spectral_features"]
