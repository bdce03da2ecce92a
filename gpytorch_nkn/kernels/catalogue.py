"""Short names of kernels in the literature's words."""

from __future__ import annotations

from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    SpectralMixtureKernel,
)

from gpytorch_nkn.kernels.bivariate_complex_exponential_kernel import (
    BivariateComplexExponentialKernel,
)
from gpytorch_nkn.kernels.bivariate_spectral_mixture_kernel import BivariateSpectralMixtureKernel
from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.complex_exponential_kernel import ComplexExponentialKernel
from gpytorch_nkn.kernels.data_adaptive_hadamard_kernel import DataAdaptiveHadamardKernel
from gpytorch_nkn.kernels.generalized_spectral_mixture_kernel import (
    GeneralizedSpectralMixtureKernel,
)
from gpytorch_nkn.kernels.network import NeuralKernelNetwork
from gpytorch_nkn.kernels.non_stationary_spectral_kernel import NonStationarySpectralKernel
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = ["short_name"]

_NAMES: dict[type[Kernel], str] = {
    BivariateComplexExponentialKernel: "BCEXP",
    BivariateSpectralMixtureKernel: "BSM",
    CenteredLinearKernel: "LIN",
    ComplexExponentialKernel: "COS",
    ConstantKernel: "CONST",
    CosineKernel: "COS",
    DataAdaptiveHadamardKernel: "DANK",
    GeneralizedSpectralMixtureKernel: "GSM",
    LinearKernel: "LIN",
    NeuralKernelNetwork: "NKN",
    NonStationarySpectralKernel: "NSS",
    PeriodicKernel: "PER",
    RBFKernel: "RBF",
    RQKernel: "RQ",
    SpectralComponentKernel: "SC",
    SpectralMixtureKernel: "SM",
    ZeroMeanPeriodicKernel: "PER",
}


def short_name(kernel: Kernel) -> str:
    """Name of a kernel's family, such as ``RBF`` or ``PER``; that of its class for others."""
    if isinstance(kernel, MaternKernel):
        return f"MATERN{round(2 * kernel.nu)}/2"
    if isinstance(kernel, PolynomialKernel):
        return f"POLY{int(kernel.power)}"
    name = _NAMES.get(type(kernel))
    return type(kernel).__name__.removesuffix("Kernel") if name is None else name
