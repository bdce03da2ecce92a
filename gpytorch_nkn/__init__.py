"""Gaussian process kernels whose structure is learned by gradient descent."""

__all__ = ["__version__"]

__version__ = "0.1.0"
