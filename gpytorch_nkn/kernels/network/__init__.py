"""Neural Kernel Networks: the kernel, its ready wirings, the parts that it is made of."""

from gpytorch_nkn.kernels.network.convex_shares import SHARES, convex_shares
from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.kernels.network.parts import primitive_values
from gpytorch_nkn.kernels.network.presets import with_outputscale

__all__ = ["SHARES", "NeuralKernelNetwork", "convex_shares", "primitive_values", "with_outputscale"]
