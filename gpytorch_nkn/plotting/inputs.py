"""Inputs and values of kernels."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting.style import as_array

__all__ = ["as_inputs", "check_kernel", "unit_values"]


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
