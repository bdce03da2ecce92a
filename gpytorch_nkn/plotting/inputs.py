"""Inputs of a kernel along one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.fit import check_number
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting.style import as_array

__all__ = [
    "InputLine",
    "as_inputs",
    "check_kernel",
    "kernel_values",
    "line_of_inputs",
    "unit_values",
]


@dataclass(frozen=True, eq=False)
class InputLine:
    """Inputs with one varying column, which the kernel receives as ``(x - offset) / scale``."""

    x: np.ndarray  # sorted values N of the varying column in the user's units, in float64
    column: int
    fixed: Tensor  # row 1 x D with the values of the other columns, in the kernel's dtype
    offset: float
    scale: float

    def at(self, x: np.ndarray) -> Tensor:
        """Return the kernel's inputs ``M x D`` for values ``M`` in the user's units."""
        inputs = self.fixed.repeat(len(x), 1)
        # standardise in float64, because years or days leave few digits in float32
        inputs[:, self.column] = torch.as_tensor((x - self.offset) / self.scale).to(inputs)
        return inputs


def check_kernel(kernel: Kernel) -> None:
    """Raise an error unless the object is a kernel without a batch."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
    if len(kernel.batch_shape):
        raise ValueError(
            "kernel must have no batch dimensions, got a batch of shape "
            f"{tuple(kernel.batch_shape)}; index it first, as in kernel[0]."
        )


def as_inputs(kernel: Kernel, x: Any) -> Tensor:
    """Convert ``N`` or ``N x D`` finite numbers to inputs ``N x D`` in the kernel's dtype."""
    array = as_array("x", x, ndim=2 if getattr(x, "ndim", None) == 2 else 1)
    if array.dtype.kind == "M":
        raise TypeError("x must hold numbers, got dates.")
    like = next(iter(kernel.parameters()), torch.empty(0))
    return torch.as_tensor(array.reshape(len(array), -1)).to(like.detach())


def line_of_inputs(kernel: Kernel, x: Any, offset: float = 0.0, scale: float = 1.0) -> InputLine:
    """Return inputs along the only varying column of ``N`` or ``N x D`` values."""
    check_kernel(kernel)
    check_number("x_offset", abs(offset), positive=False)
    check_number("x_scale", scale, positive=True)
    fixed = as_inputs(kernel, x)[:1]
    array = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)
    array = array.reshape(len(array), -1)
    (varying,) = np.nonzero((array != array[0]).any(0))
    if len(varying) != 1:
        raise ValueError(
            f"Exactly one column of x must vary, got {len(varying)} of {array.shape[1]} "
            f"(x has the shape {array.shape})."
        )
    column = int(varying[0])
    return InputLine(np.sort(array[:, column]), column, fixed, float(offset), float(scale))


def unit_values(network: NeuralKernelNetwork, x1: Tensor, x2: Tensor) -> list[Tensor]:
    """Return real values ``U x N x M`` of the units of each layer, in float64 on the CPU."""
    with torch.no_grad():
        values = [v.real if v.is_complex() else v for v in network.unit_values(x1, x2)]
    if values[0].shape[-2:] != (len(x1), len(x2)):
        raise ValueError(
            f"kernel must have one output per input, got values of shape "
            f"{tuple(values[0].shape[-2:])} for {len(x1)} and {len(x2)} inputs."
        )
    if not all(bool(v.isfinite().all()) for v in values):
        raise ValueError("The kernel's values must be finite, got NaN or infinite values.")
    return [v.double().cpu() for v in values]


def kernel_values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """Return values ``N x M`` of a kernel with one output, in float64 on the CPU."""
    # use a network of one unit, because GPyTorch's sums with linear kernels factorise matrices
    return unit_values(NeuralKernelNetwork([kernel], []), x1, x2)[0].squeeze(-3)
