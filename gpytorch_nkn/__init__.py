"""Gaussian process kernels whose structure is learned by gradient descent."""

from gpytorch_nkn import settings

__all__ = ["__version__", "settings"]

__version__ = "0.1.0"
