"""GPs with an RBF kernel and learned pairs of frequencies."""

from gpytorch_nkn.models.spectral.fit_spectral import fit_spectral_gp
from gpytorch_nkn.models.spectral.spectral_gp import SpectralGP

__all__ = ["SpectralGP", "fit_spectral_gp"]
