"""Networks that are asked for many small matrices while their parameters stay as they are."""

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
    """A network in ScaleKernels or not, with the values that its parameters have now.

    To look these up takes ten times as long as to evaluate a small matrix.

    Args:
        kernel: Of which nothing is kept unless it is a network of known formulas over all columns.
        num_columns: Of the inputs.
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
        """Whether it stands for this kernel as it is now."""
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
    """The matrices ``... x K x N x M`` of some kernels, with gradients of the inputs alone.

    ``None`` where not all can be had so, for one without compiled code, and where gradients of
    the parameters may be meant: the inputs have none, or GPyTorch is to keep those of its caches.

    Args:
        strategy: The model's prediction strategy, which keeps what is looked up, as all that it
            needs, until the next training.
        kernels: Always the same ones.
        numbers: Those that are wanted.
        x1: Inputs ``... x N x D``.
        x2: Inputs ``... x M x D``.
    """
    meant = torch.is_grad_enabled() and not (x1.requires_grad or x2.requires_grad)
    ours = isinstance(strategy, BatchPredictionStrategy) and detach_test_caches.on()
    if meant or not ours or x1.size(-1) != x2.size(-1) or not is_ordinary(x1, x2):
        return None
    inputs = (x1,) if x1 is x2 else (x1, x2)
    matrices = []
    for number in numbers:
        kernel, num_columns = kernels[number], x1.size(-1)
        kept = strategy.frozen.get(number)
        if kept is None:
            kept = strategy.frozen[number] = FrozenKernel(kernel, num_columns)
        if not kept.is_for(kernel, num_columns):
            return None
        matrix = program_matrix(kept.program, kept.theta, inputs)
        if matrix is None or not matrix.whole:
            return None
        matrices.append(matrix)
    return stack(matrices) if len({matrix.shape for matrix in matrices}) == 1 else None
