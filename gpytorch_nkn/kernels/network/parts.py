"""Parts of a network: their checks, and values of primitives as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    Matern52KernelGrad,
    PolynomialKernelGrad,
    ProductKernel,
    RBFKernelGrad,
    RBFKernelGradGrad,
    ScaleKernel,
)
from gpytorch.priors import Prior
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.layers import Layer

__all__ = ["check_parts", "part_batch_shape", "primitive_values", "select_columns"]

_DERIVATIVE_KERNELS = (Matern52KernelGrad, PolynomialKernelGrad, RBFKernelGrad, RBFKernelGradGrad)


def select_columns(kernel: Kernel, x: Tensor) -> Tensor:
    return x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)


def part_batch_shape(part: Any) -> torch.Size:
    """Batch shape of a kernel or a layer, without a search for kernels in one that has none."""
    alone = type(part).batch_shape is Kernel.batch_shape and all(
        isinstance(child, (Interval, Prior)) for child in part._modules.values()
    )
    return part._batch_shape if alone else part.batch_shape


def primitive_values(
    kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool, num_entry_dims: int, params: Mapping
) -> Tensor:
    """Values of a kernel as a tensor, sums and products entry by entry.

    GPyTorch's sum with a kernel of low rank (a linear one) decomposes the matrices though nobody
    asks for it: far more work than the sum, and an error where one is nearly singular.
    """
    scale: Tensor | float = 1.0
    inner = kernel
    while type(inner) is ScaleKernel:
        outputscale = inner.outputscale
        scale = scale * outputscale.view(*outputscale.shape, *[1] * num_entry_dims)
        inner = inner.base_kernel
    if type(inner) not in (AdditiveKernel, ProductKernel):
        return to_dense(kernel(x1, x2, diag=diag, **params))
    x1, x2 = select_columns(kernel, x1), select_columns(kernel, x2)
    total, *others = [
        primitive_values(part, x1, x2, diag, num_entry_dims, params) for part in inner.kernels
    ]
    for part in others:
        total = total + part if type(inner) is AdditiveKernel else total * part
    return total * scale


def check_parts(primitives: list[Kernel], layers: list[Layer], skip: bool) -> None:
    if not primitives:
        raise ValueError("A network needs at least one primitive kernel, got none.")
    for kernel in primitives:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"Primitives must be gpytorch.kernels.Kernel, got {kernel!r}.")
        for part in kernel.modules():
            if isinstance(part, _DERIVATIVE_KERNELS):
                raise NotImplementedError(
                    f"{type(part).__name__} models derivatives: sums and products of its values "
                    "in a network are not the derivative kernel of the sums and products."
                )
    for layer in layers:
        if not isinstance(layer, Layer):
            raise TypeError(f"Layers must be gpytorch_nkn.layers.Layer, got {layer!r}.")
    if skip and len(layers) < 2:
        raise ValueError(f"A skip connection needs at least two layers, got {len(layers)}.")
    chain, width, fits = f"{len(primitives)} primitives", len(primitives), True
    for number, layer in enumerate(layers, start=1):
        if skip and number == len(layers):
            width += len(primitives)
            chain += f" (+ {len(primitives)} skipped)"
        fits = fits and layer.in_features == width
        chain += f" -> {type(layer).__name__}({layer.in_features}, {layer.out_features})"
        width = layer.out_features
    if not fits or width != 1:
        raise ValueError(
            "Every layer must take the width that comes in, and the last one must give 1; "
            f"got {chain}."
        )
