"""The choice of a way to evaluate a network, and the matrix that results."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.utils.parametrize
from gpytorch.kernels import (
    GridInterpolationKernel,
    GridKernel,
    InducingPointKernel,
    Kernel,
    RFFKernel,
    ScaleKernel,
)
from gpytorch.module import RandomModuleMixin
from gpytorch.utils.grid import ScaleToBounds
from torch import Tensor, nn

from gpytorch_nkn import settings
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.evaluation import native
from gpytorch_nkn.kernels.evaluation.autograd import AutogradEvaluator, with_parameters
from gpytorch_nkn.kernels.evaluation.closed_form import ClosedFormEvaluator, differentiable_values
from gpytorch_nkn.kernels.evaluation.program import Program, describe, is_hooked
from gpytorch_nkn.linalg import EntrywiseMatrix, Evaluator, broadcast_batch_shapes

__all__ = ["is_ordinary", "network_matrix", "program_matrix", "unwrap_scales"]

# Where evaluation by tiles starts to pay, measured against plain autograd.
_AUTOGRAD_ENTRIES = 400_000  # of one matrix: below, computing everything twice costs more
_CLOSED_FORM_ENTRIES = 2_500  # of each matrix of a batch, which is evaluated one by one

# Private to PyTorch. A release without it evaluates as if no dispatch mode were active.
try:
    from torch.utils._python_dispatch import _get_current_dispatch_mode
except ImportError:

    def _get_current_dispatch_mode() -> None:  # type: ignore[misc]
        return None


# Parts whose entries depend on more than two inputs, or on when they are computed.
_NOT_ENTRYWISE = (
    GridInterpolationKernel,
    GridKernel,
    InducingPointKernel,
    RFFKernel,
    RandomModuleMixin,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.modules.instancenorm._InstanceNorm,
    nn.utils.parametrize.ParametrizationList,
    ScaleToBounds,
)


def network_matrix(
    network: Kernel,
    x1: Tensor,
    x2: Tensor,
    scales: Sequence[ScaleKernel] = (),
    diag: bool = False,
) -> EntrywiseMatrix | None:
    """The scaled matrix of a network at two inputs; ``None`` where plain evaluation is the way.

    With ``diag`` its diagonal alone, as a batch ``... x N x 1 x 1``: by compiled code, and without
    gradients of the inputs, whose second derivatives would be computed row by row.

    The network has ``primitives``, ``layers``, ``plain_values`` and ``check_columns``, inputs its
    columns alone.
    """
    network.check_columns(x1)
    path = settings.kernel_evaluation.path()
    if path == "plain" or not is_ordinary(x1, x2):
        return None
    if diag and (x1.requires_grad or x2.requires_grad):
        return None
    inputs = (x1,) if are_same(x1, x2) else (x1, x2)
    if path != "autograd":
        described = describe(network, x1.size(-1), scales)
        if described is not None:
            program, vector = described
            theta = vector.values()
            if theta is None:
                return None
            if not diag:
                return program_matrix(program, theta, inputs)
            theta = theta.unsqueeze(-2) if theta.dim() > 1 else theta
            rows = program_matrix(program, theta, tuple(x.unsqueeze(-2) for x in inputs))
            return rows if rows is not None and rows.whole else None
        if path in ("closed_form", "compiled"):
            return None
    if diag:
        return None
    batch_shape = broadcast_batch_shapes(network.batch_shape, x1.shape[:-2], x2.shape[:-2])
    if path == "auto" and x1.size(-2) * x2.size(-2) < _AUTOGRAD_ENTRIES:
        return None
    if batch_shape or scales or not _is_entrywise(network, x1, x2):
        return None
    return _AutogradMatrix(network, inputs)


def unwrap_scales(kernel: Kernel) -> tuple[Kernel, list[ScaleKernel]]:
    """The kernel within ScaleKernels, and these."""
    scales = []
    while type(kernel) is ScaleKernel:
        scales.append(kernel)
        kernel = kernel.base_kernel
    return kernel, scales


def is_ordinary(x1: Tensor, x2: Tensor) -> bool:
    """Whether custom gradients may be used: not while something else looks into the operations."""
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


def _is_entrywise(network: Kernel, x1: Tensor, x2: Tensor) -> bool:
    """Whether entries may be evaluated by tiles, each with others than in the whole matrix."""
    if any(p.dtype != x1.dtype or p.device != x1.device for p in network.parameters()):
        return False
    for module in network.modules():
        if isinstance(module, _NOT_ENTRYWISE) or is_hooked(module):
            return False
    if any(kernel.num_outputs_per_input(x1, x2) != 1 for kernel in network.primitives):
        return False
    return _stand_alone(network, x1, x2)


def _stand_alone(network: Kernel, x1: Tensor, x2: Tensor) -> bool:
    """Whether a few entries are the same with more beside them, and known by the parameters.

    They are not where features are standardised, say; and a tensor that is no registered
    parameter would not get its gradient.
    """
    # From all over the inputs, which may be sorted or repeated: the inner half of them, and the
    # outer one, of which one at least lacks whatever stands out among all.
    x1, x2 = _spread_rows(x1), _spread_rows(x2)
    values = with_parameters(network, [p.detach() for p in network.parameters()]).plain_values
    devices = [x1.device] if x1.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad():
        more = values(x1, x2)
        if more.requires_grad or more.shape != (len(x1), len(x2)):
            return False
        halves = list(zip(_halves(x1), _halves(x2), strict=True))
        less = torch.cat([values(x1[a], x2[b]).flatten() for a, b in halves])
    tolerance = 1e-6 if x1.dtype == torch.float64 else 1e-3
    scale = more.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    more = torch.cat([more[a][:, b].flatten() for a, b in halves])
    return torch.allclose(less, more, tolerance, tolerance * scale, equal_nan=True)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.arange(len(x), device=x.device)
    inner = (rows >= len(x) // 4) & (rows < len(x) - len(x) // 4)
    return rows[inner], rows[~inner]


def _spread_rows(x: Tensor) -> Tensor:
    rows = torch.linspace(0, len(x) - 1, min(len(x), 16), device=x.device)
    return x.detach()[rows.round().long()]


def program_matrix(
    program: Program, theta: Tensor, inputs: tuple[Tensor, ...]
) -> EntrywiseMatrix | None:
    """The matrix of a program, or ``None`` where plain evaluation is the way.

    Parameters are ``... x T``, inputs ``... x N x D``: one for a symmetric matrix, else two.
    """
    path = settings.kernel_evaluation.path()
    if path in ("plain", "autograd"):
        return None
    x1, x2 = inputs[0], inputs[-1]
    if theta.dtype != x1.dtype or theta.device != x1.device:  # plain evaluation tells what is wrong
        return None
    batch_shape = broadcast_batch_shapes(theta.shape[:-1], x1.shape[:-2], x2.shape[:-2])
    compiled = native.applies_to(x1) and native.knows(program)
    if path == "compiled" and not compiled:
        return None
    compiled = compiled and path != "closed_form"
    if path == "auto" and not compiled:
        if batch_shape.numel() > 1 and x1.size(-2) * x2.size(-2) < _CLOSED_FORM_ENTRIES:
            return None
    shape = torch.Size([*batch_shape, x1.size(-2), x2.size(-2)])
    return _ProgramMatrix(program, compiled, shape, (*inputs, theta))


class _ProgramMatrix:
    """A network whose formulas are all known."""

    def __init__(
        self,
        program: Program,
        compiled: bool,
        shape: torch.Size,
        tensors: tuple[Tensor, ...],
    ):
        self.shape = shape
        self.tensors = tensors
        self.event_dims = (2,) * (len(tensors) - 1) + (1,)
        self.whole = compiled
        self._program = program

    def bind(self, tensors: Sequence[Tensor], needed: Sequence[bool]) -> Evaluator:
        """Evaluator of one element of the batch, or of all of it where it is compiled."""
        *inputs, theta = tensors
        make = native.NativeEvaluator if self.whole else ClosedFormEvaluator
        return make(self._program, theta, inputs[0], inputs[-1], any(needed[:-1]))

    def differentiable(self, tensors: Sequence[Tensor]) -> Tensor:
        """One element of the batch in ordinary differentiable operations."""
        *inputs, theta = tensors
        return differentiable_values(self._program, theta, inputs[0], inputs[-1])


class _AutogradMatrix:
    """Any network without a batch, its tiles evaluated as it would evaluate the whole."""

    def __init__(self, network: Kernel, inputs: tuple[Tensor, ...]):
        self.shape = torch.Size([inputs[0].size(-2), inputs[-1].size(-2)])
        parameters = list(network.parameters())
        self.tensors = (*inputs, *parameters)
        self.event_dims = tuple(tensor.dim() for tensor in self.tensors)
        self.whole = False
        self._network = network
        self._num_inputs = len(inputs)

    def bind(self, tensors: Sequence[Tensor], needed: Sequence[bool]) -> Evaluator:
        """Evaluator of the matrix."""
        *inputs, parameters = *tensors[: self._num_inputs], tensors[self._num_inputs :]
        return AutogradEvaluator(self._network, parameters, inputs[0], inputs[-1], needed)

    def differentiable(self, tensors: Sequence[Tensor]) -> Tensor:
        """The matrix in ordinary differentiable operations."""
        *inputs, parameters = *tensors[: self._num_inputs], tensors[self._num_inputs :]
        network = with_parameters(self._network, parameters)
        return network.plain_values(inputs[0], inputs[-1])
