"""Networks that are asked for many small matrices while their parameters stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.settings import detach_test_caches
from torch import Tensor

from gpytorch_nkn.kernels.batch_prediction_strategy import BatchPredictionStrategy
from gpytorch_nkn.kernels.evaluation import (
    Program,
    describe,
    is_hooked,
    is_ordinary,
    program_matrix,
    unwrap_scales,
)
from gpytorch_nkn.kernels.network.neural_kernel_network import NeuralKernelNetwork
from gpytorch_nkn.linalg import stack

__all__ = ["FrozenKernel", "frozen_kernels", "frozen_matrices"]


class FrozenKernel(NamedTuple):
    """A network in ScaleKernels or not, with the values that its parameters had.

    To look these up takes ten times as long as to evaluate a small matrix.

    Attributes:
        program: The network.
        theta: Values of its parameters ``... x T``, without gradients.
    """

    program: Program
    theta: Tensor


def frozen_kernels(
    strategy: Any, kernels: Sequence[Kernel], num_columns: int
) -> Sequence[FrozenKernel | None]:
    """Kernels as they were when predictions were first asked for.

    They are kept with what GPyTorch itself keeps from then on until the next training, and are
    ``None`` where that is not meant to be (``detach_test_caches(False)``) or a kernel is no network
    of known formulas over all columns.

    Args:
        strategy: The model's prediction strategy.
        kernels: Always the same ones.
        num_columns: Of the inputs.
    """
    if detach_test_caches.off() or not isinstance(strategy, BatchPredictionStrategy):
        return [None] * len(kernels)
    if strategy.frozen is None:
        strategy.frozen = [_frozen(kernel, num_columns) for kernel in kernels]
    return strategy.frozen


@torch.no_grad()
def _frozen(kernel: Kernel, num_columns: int) -> FrozenKernel | None:
    network, scales = unwrap_scales(kernel)
    chosen = kernel.active_dims is not None or network.active_dims is not None
    if type(network) is not NeuralKernelNetwork or chosen or is_hooked(network):
        return None
    described = describe(network, num_columns, scales)
    theta = None if described is None else described[1].values()
    return None if described is None or theta is None else FrozenKernel(described[0], theta)


def frozen_matrices(
    kernels: Sequence[FrozenKernel | None], x1: Tensor, x2: Tensor
) -> Tensor | None:
    """The matrices ``... x K x N x M`` of some kernels, with gradients of the inputs alone.

    ``None`` where not all can be had so: without compiled code, for one.
    """
    if not is_ordinary(x1, x2):
        return None
    inputs = (x1,) if x1 is x2 else (x1, x2)
    matrices = []
    for kernel in kernels:
        matrix = None if kernel is None else program_matrix(*kernel, inputs)
        if matrix is None or not matrix.whole:
            return None
        matrices.append(matrix)
    return stack(matrices) if len({matrix.shape for matrix in matrices}) == 1 else None
