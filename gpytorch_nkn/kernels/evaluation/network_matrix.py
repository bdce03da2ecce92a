"""Choice of the evaluation path of a network, and its lazily evaluated matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor, nn

from gpytorch_nkn import settings
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.evaluation import native
from gpytorch_nkn.kernels.evaluation.program import Program, describe
from gpytorch_nkn.kernels.evaluation.tiled import TiledEvaluator, differentiable_values
from gpytorch_nkn.linalg import EntrywiseMatrix, Evaluator, broadcast_batches, elements

__all__ = ["is_ordinary", "network_matrix", "program_matrix", "unwrap_scales"]

_BLOCK_ROWS = 100  # rows of the diagonal blocks from which a differentiable diagonal is taken
_MANY_ROWS = 150  # diagonal entries of several networks, above which autograd is faster
_TILED_ENTRIES = 2_500  # entries per matrix of a batch, above which tiles are faster than autograd

# A private function of PyTorch. If it is missing, no dispatch mode is assumed.
try:
    from torch.utils._python_dispatch import _get_current_dispatch_mode
except ImportError:

    def _get_current_dispatch_mode() -> None:  # type: ignore[misc]
        return None


def network_matrix(
    network: Kernel, x1: Tensor, x2: Tensor, scales: Sequence[ScaleKernel] = (), diag: bool = False
) -> EntrywiseMatrix | None:
    """Return a network's matrix times its output scales; ``None`` if it needs plain evaluation.

    With ``diag``, return the diagonal as a batch ``... x N x 1 x 1``; ``None`` without compiled
    code, or for many points of several networks.
    """
    network.check_columns(x1)
    if settings.kernel_evaluation.path() == "plain" or not is_ordinary(x1, x2):
        return None
    described = describe(network, x1.size(-1), scales)
    if described is None:
        return None
    program, vector = described
    networks, theta = vector.batch_shape.numel(), vector.values()
    num_entries = x1.size(-2) * max(networks, x1.shape[:-2].numel())
    if theta is None or (diag and networks > 1 and num_entries > _MANY_ROWS):
        return None
    inputs = (x1,) if are_same(x1, x2) else (x1, x2)
    if not diag:
        return program_matrix(program, theta, inputs)
    theta = theta.unsqueeze(-2) if theta.dim() > 1 else theta
    rows = program_matrix(program, theta, tuple(x.unsqueeze(-2) for x in inputs))
    if rows is None or not rows.whole:
        return None
    return _ProgramDiagonal(program, True, rows.shape, rows.tensors)


def unwrap_scales(kernel: Kernel) -> tuple[Kernel, list[ScaleKernel]]:
    """Return the kernel inside nested ScaleKernels, and these ScaleKernels."""
    scales = []
    while type(kernel) is ScaleKernel:
        scales.append(kernel)
        kernel = kernel.base_kernel
    return kernel, scales


def is_ordinary(x1: Tensor, x2: Tensor) -> bool:
    """Return whether inputs are plain tensors, without tracing or function transforms."""
    return (
        x1.dtype == x2.dtype
        and x1.dtype in (torch.float32, torch.float64)
        and x1.device == x2.device
        and x1.numel() > 0
        and x2.numel() > 0
        and {type(x1), type(x2)} <= {Tensor, nn.Parameter}
        and _get_current_dispatch_mode() is None
        and not torch.jit.is_tracing()
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
    )


def program_matrix(
    program: Program, theta: Tensor, inputs: tuple[Tensor, ...]
) -> EntrywiseMatrix | None:
    """Return the matrix of a program; ``None`` if it needs plain evaluation.

    Parameters are ``... x T`` and inputs ``... x N x D``; a symmetric matrix has one input.
    """
    path = settings.kernel_evaluation.path()
    if path == "plain":
        return None
    x1, x2 = inputs[0], inputs[-1]
    if theta.dtype != x1.dtype or theta.device != x1.device:  # plain evaluation raises an error
        return None
    batch_shape = broadcast_batches(theta.shape[:-1], x1.shape[:-2], x2.shape[:-2])
    compiled = native.applies_to(x1) and native.supports(program)
    if path == "compiled" and not compiled:
        return None
    compiled = compiled and path != "tiles"
    if path == "auto" and not compiled:
        if batch_shape.numel() > 1 and x1.size(-2) * x2.size(-2) < _TILED_ENTRIES:
            return None
    shape = torch.Size([*batch_shape, x1.size(-2), x2.size(-2)])
    return _ProgramMatrix(program, compiled, shape, (*inputs, theta))


class _ProgramMatrix:
    """Lazily evaluated matrix of a program."""

    def __init__(
        self, program: Program, compiled: bool, shape: torch.Size, tensors: tuple[Tensor, ...]
    ):
        self.shape = shape
        self.tensors = tensors
        self.event_dims = (2,) * (len(tensors) - 1) + (1,)
        self.whole = compiled
        self._program = program

    def bind(self, tensors: Sequence[Tensor], needed: Sequence[bool]) -> Evaluator:
        """Return an evaluator of one batch element or, with compiled code, of the whole batch."""
        *inputs, theta = tensors
        make = native.NativeEvaluator if self.whole else TiledEvaluator
        return make(self._program, theta, inputs[0], inputs[-1], any(needed[:-1]))

    def differentiable(self, tensors: Sequence[Tensor]) -> Iterator[tuple[Any, Tensor]]:
        """Yield index and twice differentiable matrix of each batch element."""
        for index, (*inputs, theta) in elements(self, tensors):
            yield index, differentiable_values(self._program, theta, inputs[0], inputs[-1])


class _ProgramDiagonal(_ProgramMatrix):
    """Lazily evaluated diagonal of a program, as a batch ``... x N x 1 x 1``."""

    def differentiable(self, tensors: Sequence[Tensor]) -> Iterator[tuple[Any, Tensor]]:
        """Yield index and diagonal of each batch element, computed from blocks for speed."""
        *inputs, theta = tensors
        theta = theta.squeeze(-2) if theta.dim() > 1 else theta
        inputs = [x.squeeze(-2) for x in inputs]
        column = _ProgramMatrix(self._program, True, self.shape[:-1], (*inputs, theta))
        for index, (*points, parameters) in elements(column, column.tensors):
            blocks = [x.split(_BLOCK_ROWS) for x in points]
            values = [
                differentiable_values(self._program, parameters, left, right).diagonal()
                for left, right in zip(blocks[0], blocks[-1], strict=True)
            ]
            yield index, torch.cat(values)[:, None, None]
