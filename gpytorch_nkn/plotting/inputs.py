"""Inputs of a kernel that lie on a line."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting.style import as_array

__all__ = ["as_inputs", "check_kernel", "kernel_values", "line_of_inputs"]


def check_kernel(kernel: Kernel) -> None:
    """Refuse what is no kernel, or a batch of them.

    Raises:
        TypeError: It is not a kernel.
        ValueError: It has a batch shape.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"A gpytorch.kernels.Kernel is needed, got {type(kernel).__name__}.")
    if len(kernel.batch_shape):
        raise ValueError(
            "One kernel is needed, got a batch of shape "
            f"{tuple(kernel.batch_shape)}; index it first, as in kernel[0]."
        )


def as_inputs(kernel: Kernel, x: Any) -> Tensor:
    """Return finite inputs ``N x D`` in the kernel's precision from ``N`` or ``N x D``.

    Raises:
        TypeError: They are not numbers.
        ValueError: Another number of dimensions, or an entry that is not finite.
    """
    dims = getattr(x, "ndim", None)
    array = as_array("x", x, ndim=2 if dims == 2 else 1)
    if array.dtype.kind == "M":
        raise TypeError("x must hold numbers, got dates.")
    like = next(iter(kernel.parameters()), torch.empty(0))
    return torch.as_tensor(array).to(like.detach()).reshape(len(array), -1)


def line_of_inputs(kernel: Kernel, x: Any) -> tuple[Tensor, int]:
    """Return inputs ``N x D`` sorted along the one column that varies, and its number.

    Raises:
        TypeError: They are not numbers.
        ValueError: Not exactly one column varies; or as in :func:`as_inputs`.
    """
    inputs = as_inputs(kernel, x)
    varying = [d for d in range(inputs.size(1)) if bool((inputs[:, d] != inputs[0, d]).any())]
    if len(varying) != 1:
        raise ValueError(
            f"Exactly one column of x must vary, got {len(varying)} of {inputs.size(1)} "
            f"(x has the shape {tuple(inputs.shape)})."
        )
    column = varying[0]
    return inputs[inputs[:, column].argsort(stable=True)], column


def kernel_values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """Values ``N x M`` without gradients.

    Raises:
        ValueError: The kernel has several outputs per input, or its values are not finite.
    """
    with torch.no_grad():
        # A network of one unit: GPyTorch's own sum with a linear kernel factorises matrices.
        values = NeuralKernelNetwork([kernel], []).unit_values(x1, x2)[0].squeeze(-3)
    values = values.real if values.is_complex() else values
    if values.shape != (len(x1), len(x2)):
        raise ValueError(
            f"A kernel with one output per input is needed, got values of shape "
            f"{tuple(values.shape)} for {len(x1)} and {len(x2)} inputs."
        )
    if not bool(values.isfinite().all()):
        raise ValueError("The kernel's values must be finite, got NaN or infinite ones.")
    return values
