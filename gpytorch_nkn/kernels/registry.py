"""Registry of kernels, with one spec per class.

A :class:`gpytorch_nkn.kernels.KernelSpec` contains a kernel's name, parameters, spectral measure
and algebra. Only the class and the name are required. Kernels without a spec also work in networks
and expansions.

To add a kernel to the package, write its class with its :class:`gpytorch_nkn.kernels.Formula` in a
separate file, and add a spec here. Users add a spec by ``gpytorch_nkn.kernels.register``.

Subclasses inherit role, words and period from the nearest base class with a spec. They inherit its
spectral measure if they inherit ``forward``, but never its formula, products or name.
"""

from __future__ import annotations

import math
from functools import partial

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
from torch import Tensor

from gpytorch_nkn.kernels import algebra, formulas, measures
from gpytorch_nkn.kernels.bivariate_complex_exponential_kernel import (
    BivariateComplexExponentialKernel,
)
from gpytorch_nkn.kernels.categorical_kernel import CategoricalKernel
from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.change_point_kernel import ChangePointKernel, change_point_products
from gpytorch_nkn.kernels.complex_exponential_kernel import ComplexExponentialKernel
from gpytorch_nkn.kernels.damped_trend_kernel import DampedTrendKernel
from gpytorch_nkn.kernels.data_adaptive_hadamard_kernel import DataAdaptiveHadamardKernel
from gpytorch_nkn.kernels.integrated_wiener_kernel import IntegratedWienerKernel
from gpytorch_nkn.kernels.kernel_spec import KernelSpec, register
from gpytorch_nkn.kernels.network import NeuralKernelNetwork
from gpytorch_nkn.kernels.non_stationary_spectral_kernel import NonStationarySpectralKernel
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.step_kernel import StepKernel
from gpytorch_nkn.kernels.walk_kernel import start_walk
from gpytorch_nkn.kernels.wiener_kernel import WienerKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = ["SPECS"]


def _start_at_mean(kernel: Kernel, x: Tensor) -> None:
    """Set the centre to the mean of the inputs."""
    center = x.mean(0).to(kernel.center)
    if len(center) != kernel.center.size(-1):  # an outer kernel selects other columns
        center = center.mean(-1, keepdim=True)
    kernel.initialize(center=center.expand_as(kernel.center))


SPECS = (
    KernelSpec(
        RBFKernel,
        "RBF",
        {"lengthscale": "lengthscale"},
        role="smooth",
        words="over",
        formula=formulas.RBF,
        measure=measures.rbf,
        multiply=algebra.multiply_rbf,
    ),
    KernelSpec(
        MaternKernel,
        lambda kernel: f"MATERN{round(2 * kernel.nu)}/2",
        {"lengthscale": "lengthscale"},
        role="smooth",
        words="over",
        formula=lambda kernel: formulas.MATERN.get(kernel.nu),
        measure=measures.matern,
        multiply=algebra.multiply_matern,
    ),
    KernelSpec(
        RQKernel,
        "RQ",
        {"alpha": "exponent", "lengthscale": "lengthscale"},
        role="smooth",
        words="over scales around",
        formula=formulas.RATIONAL_QUADRATIC,
        measure=measures.rational_quadratic,
        multiply=algebra.multiply_rational_quadratic,
        simpler=algebra.rbf_for_rational_quadratic,
    ),
    KernelSpec(
        PeriodicKernel,
        "PER",
        {"lengthscale": "shape", "period_length": "period"},
        role="periodic",
        formula=formulas.PERIODIC,
        measure=measures.periodic,
        period=lambda kernel: kernel.period_length.detach(),
        multiply=algebra.multiply_periodic,
        terms=algebra.periodic_terms,
    ),
    KernelSpec(
        ZeroMeanPeriodicKernel,
        "PER",
        {"lengthscale": "shape", "period_length": "period"},
        role="periodic",
        measure=partial(measures.periodic, zero_mean=True),
        period=lambda kernel: kernel.period_length.detach(),
        to_gpytorch=algebra.gpytorch_periodic,
    ),
    KernelSpec(
        LinearKernel,
        "LIN",
        {"variance": "variance"},
        role="linear",
        formula=formulas.LINEAR,
        measure=measures.Linear,
        unit=algebra.unit_linear,
        columns=algebra.linear_per_column,
        to_gpytorch=algebra.gpytorch_linear,
    ),
    KernelSpec(
        CenteredLinearKernel,
        "LIN",
        {"variance": "variance", "center": "center"},
        role="linear",
        measure=measures.Linear,
        unit=algebra.unit_linear,
        columns=algebra.linear_per_column,
        to_gpytorch=algebra.gpytorch_linear,
    ),
    KernelSpec(
        CategoricalKernel,
        "CAT",
        {"lengthscale": "shape"},  # dimensionless
        words="a categorical effect",
    ),
    KernelSpec(
        SpectralComponentKernel,
        "SC",
        {"lengthscale": "lengthscale", "frequency": "frequency"},
        words="a quasi-periodic component",
        measure=measures.spectral_component,
    ),
    KernelSpec(
        WienerKernel,
        "WIE",
        {"origin": "center", "unit": "lengthscale"},
        role="walk",
        words="a random walk",
        start=start_walk,
        unit=algebra.unit_variance,
    ),
    KernelSpec(
        IntegratedWienerKernel,
        "IWIE",
        {"origin": "center", "unit": "lengthscale"},
        role="walk",
        words="a local linear trend",
        start=start_walk,
        unit=algebra.unit_variance,
    ),
    KernelSpec(
        DampedTrendKernel,
        "DAMP",
        {"origin": "center", "unit": "lengthscale", "lengthscale": "lengthscale"},
        role="walk",
        words="a damped trend",
        start=start_walk,
        unit=algebra.unit_variance,
    ),
    KernelSpec(
        StepKernel,
        lambda kernel: kernel.side.upper(),
        {"location": "center", "width": "lengthscale"},
        role="step",
        words="a level shift",
        unit=algebra.unit_variance,
    ),
    KernelSpec(ChangePointKernel, "CP", products=change_point_products),
    KernelSpec(
        CosineKernel,
        "COS",
        {"period_length": "period"},
        formula=formulas.COSINE,
        period=lambda kernel: 2 * kernel.period_length.detach(),  # of cos(pi d / p)
    ),
    KernelSpec(
        ComplexExponentialKernel,
        "COS",
        {"frequency": "frequency"},
        measure=measures.complex_exponential,
        period=lambda kernel: 2 * math.pi / kernel.frequency.detach().abs(),
        to_gpytorch=algebra.cosine_of_exponential,
    ),
    KernelSpec(ConstantKernel, "CONST", {"constant": "constant"}, measure=measures.Constant),
    KernelSpec(PolynomialKernel, lambda kernel: f"POLY{int(kernel.power)}"),
    KernelSpec(SpectralMixtureKernel, "SM"),
    KernelSpec(BivariateComplexExponentialKernel, "BCEXP"),
    KernelSpec(NonStationarySpectralKernel, "NSS", measure=measures.Pairs, start=_start_at_mean),
    KernelSpec(DataAdaptiveHadamardKernel, "DANK"),
    KernelSpec(NeuralKernelNetwork, "NKN"),
)

for _spec in SPECS:
    register(_spec)
