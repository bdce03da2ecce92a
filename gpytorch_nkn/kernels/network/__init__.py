"""Neural Kernel Networks and their presets."""

from gpytorch_nkn.kernels.network.convex_weights import OUTPUT_WEIGHTS, convex_weights
from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.network.parts import kernel_values
from gpytorch_nkn.kernels.network.presets import mixed_parts, with_outputscale
from gpytorch_nkn.kernels.network.vocabulary import (
    NETWORKS,
    check_name,
    named_kernel,
    named_network,
)

__all__ = [
    "NETWORKS",
    "OUTPUT_WEIGHTS",
    "NeuralKernelNetwork",
    "check_name",
    "convex_weights",
    "kernel_values",
    "mixed_parts",
    "named_kernel",
    "named_network",
    "with_outputscale",
]
