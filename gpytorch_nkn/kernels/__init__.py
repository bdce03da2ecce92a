"""Kernels, and networks of kernels."""

from gpytorch_nkn.kernels.algebra import columns_of as columns_of
from gpytorch_nkn.kernels.batch_kernel import (
    BatchKernel as BatchKernel,
    expand_kernel_batch as expand_kernel_batch,
    index_kernel_batch as index_kernel_batch,
    least_columns as least_columns,
    variances_of as variances_of,
)
from gpytorch_nkn.kernels.batch_prediction_strategy import (
    BatchPredictionStrategy as BatchPredictionStrategy,
    noise_variances as noise_variances,
)
from gpytorch_nkn.kernels.bivariate_complex_exponential_kernel import (
    BivariateComplexExponentialKernel,
)
from gpytorch_nkn.kernels.categorical_kernel import (
    CategoricalKernel,
    categorical_columns as categorical_columns,
    check_codes as check_codes,
)
from gpytorch_nkn.kernels.centered_linear_kernel import CenteredLinearKernel
from gpytorch_nkn.kernels.change_point_kernel import ChangePointKernel
from gpytorch_nkn.kernels.complex_exponential_kernel import ComplexExponentialKernel
from gpytorch_nkn.kernels.complex_kernel import ComplexKernel
from gpytorch_nkn.kernels.damped_trend_kernel import DampedTrendKernel
from gpytorch_nkn.kernels.data_adaptive_hadamard_kernel import (
    DataAdaptiveHadamardKernel,
    cluster_centers as cluster_centers,
)
from gpytorch_nkn.kernels.feature_kernel import (
    FeatureKernel as FeatureKernel,
    lazy_covariance as lazy_covariance,
)
from gpytorch_nkn.kernels.feature_prediction_strategy import feature_function as feature_function
from gpytorch_nkn.kernels.formula import Formula, stationary as stationary
from gpytorch_nkn.kernels.gradient_kernel import (
    GradientKernel,
    check_has_derivatives as check_has_derivatives,
    explained_derivatives as explained_derivatives,
)
from gpytorch_nkn.kernels.integrated_wiener_kernel import IntegratedWienerKernel
from gpytorch_nkn.kernels.kernel_spec import (
    KernelSpec,
    own_spec as own_spec,
    register,
    role_of as role_of,
    short_name as short_name,
    spec_of as spec_of,
    spec_of_values as spec_of_values,
)
from gpytorch_nkn.kernels.network import NeuralKernelNetwork
from gpytorch_nkn.kernels.non_stationary_spectral_kernel import NonStationarySpectralKernel
from gpytorch_nkn.kernels.registry import SPECS as SPECS
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.kernels.stationary_kernel import StationaryKernel
from gpytorch_nkn.kernels.step_kernel import StepKernel
from gpytorch_nkn.kernels.wiener_kernel import WienerKernel
from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = [
    "BivariateComplexExponentialKernel",
    "CategoricalKernel",
    "CenteredLinearKernel",
    "ChangePointKernel",
    "ComplexExponentialKernel",
    "ComplexKernel",
    "DampedTrendKernel",
    "DataAdaptiveHadamardKernel",
    "Formula",
    "GradientKernel",
    "IntegratedWienerKernel",
    "KernelSpec",
    "NeuralKernelNetwork",
    "NonStationarySpectralKernel",
    "SpectralComponentKernel",
    "StationaryKernel",
    "StepKernel",
    "WienerKernel",
    "ZeroMeanPeriodicKernel",
    "register",
]
