"""Cached parameter values of networks for many small matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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

__all__ = ["FrozenKernel", "frozen_matrices"]


class FrozenKernel:
    """Network, scaled or not, with cached parameter values.

    The cache helps because collecting parameters takes ten times as long as a small matrix.

    Args:
        kernel: A network of registered formulas over all columns; other kernels have no
            ``program``.
        num_columns: Number of input columns.
    """

    def __init__(self, kernel: Kernel, num_columns: int):
        self._kernel, self._num_columns = kernel, num_columns
        self.program: Program | None = None
        network, scales = unwrap_scales(kernel)
        chosen = kernel.active_dims is not None or network.active_dims is not None
        if type(network) is not NeuralKernelNetwork or chosen or is_hooked(network):
            return
        with torch.no_grad():
            described = describe(network, num_columns, scales)
            theta = None if described is None else described[1].values()
        if described is not None and theta is not None:
            self.program, self.theta = described[0], theta
            self._parameters = [(p, p.detach().clone()) for p in kernel.parameters()]

    def is_for(self, kernel: Kernel, num_columns: int) -> bool:
        """Whether this is the kernel and its parameters have not changed."""
        return (
            self.program is not None
            and kernel is self._kernel
            and num_columns == self._num_columns
            and all(
                now.dtype == then.dtype and now.device == then.device and now.equal(then)
                for now, then in self._parameters
            )
        )


def frozen_matrices(
    strategy: Any, kernels: Sequence[Kernel], numbers: Iterable[int], x1: Tensor, x2: Tensor
) -> Tensor | None:
    """Return matrices ``... x K x N x M`` of kernels, with gradients of the inputs only.

    Return ``None`` if a kernel is not compiled, or if parameters may need gradients: no input
    requires gradients, or GPyTorch keeps gradients of its caches.

    Args:
        strategy: Prediction strategy of the model, which caches parameter values until training.
        kernels: All kernels of the model.
        numbers: Indices of kernels to evaluate.
        x1: Inputs ``... x N x D``.
        x2: Inputs ``... x M x D``.
    """
    trains = torch.is_grad_enabled() and not (x1.requires_grad or x2.requires_grad)
    ours = isinstance(strategy, BatchPredictionStrategy) and detach_test_caches.on()
    if trains or not ours or x1.size(-1) != x2.size(-1) or not is_ordinary(x1, x2):
        return None
    inputs = (x1,) if x1 is x2 else (x1, x2)
    matrices = []
    for number in numbers:
        kernel, num_columns = kernels[number], x1.size(-1)
        frozen = strategy.frozen.get(number)
        if frozen is None:
            frozen = strategy.frozen[number] = FrozenKernel(kernel, num_columns)
        if not frozen.is_for(kernel, num_columns):
            return None
        matrix = program_matrix(frozen.program, frozen.theta, inputs)
        if matrix is None or not matrix.whole:
            return None
        matrices.append(matrix)
    return stack(matrices) if len({matrix.shape for matrix in matrices}) == 1 else None
