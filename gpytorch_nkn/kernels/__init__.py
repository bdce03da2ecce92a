"""Covariance functions."""

from gpytorch_nkn.kernels.bivariate_complex_exponential_kernel import (
    BivariateComplexExponentialKernel,
)
from gpytorch_nkn.kernels.bivariate_spectral_mixture_kernel import BivariateSpectralMixtureKernel
from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.complex_exponential_kernel import ComplexExponentialKernel
from gpytorch_nkn.kernels.complex_kernel import ComplexKernel
from gpytorch_nkn.kernels.data_adaptive_hadamard_kernel import DataAdaptiveHadamardKernel
from gpytorch_nkn.kernels.generalized_spectral_mixture_kernel import (
    GeneralizedSpectralMixtureKernel,
)
from gpytorch_nkn.kernels.kronecker_kernel import KroneckerKernel
from gpytorch_nkn.kernels.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.non_stationary_spectral_kernel import NonStationarySpectralKernel
from gpytorch_nkn.kernels.separable_grid_interpolation_kernel import (
    SeparableGridInterpolationKernel,
)
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = [
    "BivariateComplexExponentialKernel",
    "BivariateSpectralMixtureKernel",
    "CenteredLinearKernel",
    "ComplexExponentialKernel",
    "ComplexKernel",
    "DataAdaptiveHadamardKernel",
    "GeneralizedSpectralMixtureKernel",
    "KroneckerKernel",
    "NeuralKernelNetwork",
    "NonStationarySpectralKernel",
    "SeparableGridInterpolationKernel",
    "SpectralComponentKernel",
    "ZeroMeanPeriodicKernel",
]
