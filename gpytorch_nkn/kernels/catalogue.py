"""The catalogue of kernels: one row for each class of which the package knows more than values.

A row says how a kernel is called, which parameters it has and of what kind, from which spectral
measure random features are drawn, and what reports and expansions say and do with it;
:class:`gpytorch_nkn.kernels.kernel_row.KernelRow` lists the
fields. All but the class and the name may be left out: a kernel of which nothing else is known
takes part in networks by its values, and in expansions under its name.

To add a kernel, write its class with its :class:`gpytorch_nkn.kernels.formula.Formula` in a file of
its own, and add a row here.
A kernel of your own is entered by ``gpytorch_nkn.kernels.register(KernelRow(MyKernel, ...))``.

What counts for subclasses: the formula, exact products and the name are those of the very
class; random features also those of a base class whose ``forward`` is inherited; role, words and
periods those of the nearest base class that has a row.
"""

from __future__ import annotations

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
from gpytorch_nkn.kernels.bivariate_spectral_mixture_kernel import BivariateSpectralMixtureKernel
from gpytorch_nkn.kernels.categorical_kernel import CategoricalKernel
from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.change_point_kernel import ChangePointKernel, change_point_products
from gpytorch_nkn.kernels.complex_exponential_kernel import ComplexExponentialKernel
from gpytorch_nkn.kernels.damped_trend_kernel import DampedTrendKernel
from gpytorch_nkn.kernels.data_adaptive_hadamard_kernel import DataAdaptiveHadamardKernel
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.kernels.generalized_spectral_mixture_kernel import (
    GeneralizedSpectralMixtureKernel,
)
from gpytorch_nkn.kernels.input_warp_kernel import InputWarpKernel
from gpytorch_nkn.kernels.integrated_wiener_kernel import IntegratedWienerKernel
from gpytorch_nkn.kernels.kernel_row import KernelRow, register
from gpytorch_nkn.kernels.network import NeuralKernelNetwork
from gpytorch_nkn.kernels.non_stationary_spectral_kernel import NonStationarySpectralKernel
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.step_kernel import StepKernel
from gpytorch_nkn.kernels.walk_kernel import start_walk
from gpytorch_nkn.kernels.wiener_kernel import WienerKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = ["ROWS"]


def _matern_name(kernel: Kernel) -> str:
    return f"MATERN{round(2 * kernel.nu)}/2"


def _matern_formula(kernel: Kernel) -> Formula | None:
    return formulas.MATERN.get(kernel.nu)


def _polynomial_name(kernel: Kernel) -> str:
    return f"POLY{int(kernel.power)}"


def _step_name(kernel: Kernel) -> str:
    return kernel.side.upper()


def _start_at_mean(kernel: Kernel, x: Tensor) -> None:
    """The origin of waves at the mean of the inputs."""
    center = x.mean(0).to(kernel.center)
    center = center if kernel.center.size(-1) > 1 else center.mean(-1, keepdim=True)
    kernel.initialize(center=center.expand_as(kernel.center))


ROWS = (
    KernelRow(
        RBFKernel,
        "RBF",
        {"lengthscale": "lengthscale"},
        role="smooth",
        words="over",
        formula=formulas.RBF,
        measure=measures.rbf,
        multiply=algebra.multiply_rbf,
    ),
    KernelRow(
        MaternKernel,
        _matern_name,
        {"lengthscale": "lengthscale"},
        role="smooth",
        words="over",
        formula=_matern_formula,
        measure=measures.matern,
        multiply=algebra.multiply_matern,
    ),
    KernelRow(
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
    KernelRow(
        PeriodicKernel,
        "PER",
        {"lengthscale": "shape", "period_length": "period"},
        role="periodic",
        formula=formulas.PERIODIC,
        measure=measures.periodic,
        period=algebra.period_of_periodic,
        multiply=algebra.multiply_periodic,
        terms=algebra.periodic_terms,
    ),
    KernelRow(
        ZeroMeanPeriodicKernel,
        "PER",
        {"lengthscale": "shape", "period_length": "period"},
        role="periodic",
        measure=partial(measures.periodic, zero_mean=True),
        period=algebra.period_of_periodic,
        stock=algebra.stock_periodic,
    ),
    KernelRow(
        LinearKernel,
        "LIN",
        {"variance": "variance"},
        role="linear",
        formula=formulas.LINEAR,
        measure=measures.Linear,
        unit=algebra.unit_linear,
        columns=algebra.linear_per_column,
        stock=algebra.stock_linear,
    ),
    KernelRow(
        CenteredLinearKernel,
        "LIN",
        {"variance": "variance", "center": "center"},
        role="linear",
        measure=measures.Linear,
        unit=algebra.unit_linear,
        columns=algebra.linear_per_column,
        stock=algebra.stock_linear,
    ),
    KernelRow(
        CategoricalKernel,
        "CAT",
        {"lengthscale": "shape"},  # no distance of the inputs
        words="an effect of categories",
    ),
    KernelRow(
        SpectralComponentKernel,
        "SC",
        {"lengthscale": "lengthscale", "frequency": "frequency"},
        words="waves whose phase is lost over a while",
        measure=measures.spectral_component,
    ),
    KernelRow(
        WienerKernel,
        "WIE",
        {"origin": "center", "unit": "lengthscale"},
        role="walk",
        words="a random walk",
        start=start_walk,
        unit=algebra.alone,
    ),
    KernelRow(
        IntegratedWienerKernel,
        "IWIE",
        {"origin": "center", "unit": "lengthscale"},
        role="walk",
        words="a trend whose slope wanders",
        start=start_walk,
        unit=algebra.alone,
    ),
    KernelRow(
        DampedTrendKernel,
        "DAMP",
        {"origin": "center", "unit": "lengthscale", "lengthscale": "lengthscale"},
        role="walk",
        words="a trend whose slope wanders and is forgotten",
        start=start_walk,
        unit=algebra.alone,
    ),
    KernelRow(
        StepKernel,
        _step_name,
        {"location": "center", "width": "lengthscale"},
        role="step",
        words="a shift of level",
        unit=algebra.alone,
    ),
    KernelRow(ChangePointKernel, "CP", products=change_point_products),
    KernelRow(
        CosineKernel,
        "COS",
        {"period_length": "period"},
        formula=formulas.COSINE,
        period=algebra.period_of_cosine,
    ),
    KernelRow(
        ComplexExponentialKernel,
        "COS",
        {"frequency": "frequency"},
        measure=measures.complex_exponential,
        period=algebra.period_of_exponential,
        stock=algebra.cosine_of_exponential,
    ),
    KernelRow(ConstantKernel, "CONST", {"constant": "constant"}, measure=measures.Constant),
    KernelRow(PolynomialKernel, _polynomial_name),
    KernelRow(SpectralMixtureKernel, "SM"),
    KernelRow(BivariateComplexExponentialKernel, "BCEXP"),
    KernelRow(BivariateSpectralMixtureKernel, "BSM", start=_start_at_mean),
    KernelRow(GeneralizedSpectralMixtureKernel, "GSM"),
    KernelRow(NonStationarySpectralKernel, "NSS", measure=measures.Pairs, start=_start_at_mean),
    KernelRow(DataAdaptiveHadamardKernel, "DANK"),
    KernelRow(InputWarpKernel, "WARP"),
    KernelRow(NeuralKernelNetwork, "NKN"),
)

for _row in ROWS:
    register(_row)
