"""Neural Kernel Networks and their presets."""

from gpytorch_nkn.kernels.network.convex_weights import convex_weights as convex_weights
from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.network.parts import kernel_values as kernel_values
from gpytorch_nkn.kernels.network.presets import (
    mixed_parts as mixed_parts,
    with_outputscale as with_outputscale,
)
from gpytorch_nkn.kernels.network.vocabulary import (
    NETWORKS as NETWORKS,
    check_name as check_name,
    named_kernel as named_kernel,
    named_network as named_network,
    numbered_names as numbered_names,
)

__all__ = ["NeuralKernelNetwork"]
