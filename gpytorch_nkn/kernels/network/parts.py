"""Checks of a network's parts, and values of its primitives."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    GridInterpolationKernel,
    Kernel,
    Matern52KernelGrad,
    PolynomialKernelGrad,
    ProductKernel,
    RBFKernelGrad,
    RBFKernelGradGrad,
    RFFKernel,
    ScaleKernel,
    SpectralDeltaKernel,
)
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.kernels.distances import differentiable_distances
from gpytorch_nkn.kernels.evaluation import is_hooked
from gpytorch_nkn.kernels.formula_kernel import formula_values
from gpytorch_nkn.kernels.kernel_spec import own_spec
from gpytorch_nkn.layers import Layer
from gpytorch_nkn.linalg import check_flags

__all__ = ["check_parts", "kernel_values", "select_columns"]

# kernels that ignore x2 if both inputs are equal, so that x2 receives no gradient
_SHARING_KERNELS = (GridInterpolationKernel, RFFKernel, SpectralDeltaKernel)
_DERIVATIVE_KERNELS = (Matern52KernelGrad, PolynomialKernelGrad, RBFKernelGrad, RBFKernelGradGrad)


def select_columns(kernel: Kernel, x: Tensor) -> Tensor:
    return x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)


def kernel_values(
    kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
) -> Tensor:
    """Return the values of a kernel as a twice differentiable tensor.

    Sums are evaluated elementwise. In a sum with a low-rank kernel, GPyTorch factorises both
    matrices, which is slow and fails for nearly singular matrices.
    """
    params.pop("last_dim_is_batch", None)  # GPyTorch passes False
    num_entry_dims = 1 if diag else 2
    scale: Tensor | float = 1.0
    inner = kernel
    while type(inner) is ScaleKernel:
        outputscale = inner.outputscale
        scale = scale * outputscale.view(*outputscale.shape, *[1] * num_entry_dims)
        inner = inner.base_kernel
    if not params:
        values = _values_of_formula(inner, *_select_both(kernel, x1, x2), diag)
        if values is not None:
            return values * scale
    if type(inner) not in (AdditiveKernel, ProductKernel):
        if diag:  # GPyTorch would take the diagonal of values B x N if B equals N
            least, same = len(kernel.batch_shape) + 2, x1 is x2
            x1, x2 = (x[(None,) * max(0, least - x.dim())] for x in (x1, x2))
            x2 = x1 if same else x2
        other = None if x1 is x2 else x2  # GPyTorch's convention for equal inputs
        with lazily_evaluate_kernels(False), differentiable_distances(kernel, x1, x2):
            shared = any(isinstance(m, _SHARING_KERNELS) for m in kernel.modules())
            differentiated = x1 is not x2 and (x1.requires_grad or x2.requires_grad)
            if shared and differentiated and torch.equal(x1, x2):
                longer = torch.cat([x2, x2[..., :1, :]], -2)
                dense = to_dense(kernel(x1, longer, **params))[..., :-1]
                return dense.diagonal(dim1=-2, dim2=-1) if diag else dense
            return to_dense(kernel(x1, other, diag=diag, **params))
    x1, x2 = _select_both(kernel, x1, x2)
    total, *others = [kernel_values(child, x1, x2, diag, **params) for child in inner.kernels]
    for values in others:
        total = total + values if type(inner) is AdditiveKernel else total * values
    return total * scale


def _select_both(kernel: Kernel, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    left = select_columns(kernel, x1)
    return left, left if x1 is x2 else select_columns(kernel, x2)


def _values_of_formula(kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool) -> Tensor | None:
    """Return values of a GPyTorch kernel by the package's formula, twice differentiable.

    GPyTorch's own second derivatives are wrong, because it clamps distances at zero or evaluates
    only one of two equal inputs.
    """
    if not type(kernel).__module__.startswith("gpytorch.") or is_hooked(kernel):
        return None
    spec = own_spec(kernel)
    formula = None if spec is None else spec.formula_of(kernel)
    if spec is None or formula is None or kernel.ard_num_dims not in (None, x1.size(-1)):
        return None
    parameters = [
        getattr(kernel, name)[(..., *[None] * (2 - dims), *[slice(None)] * dims)]
        for name, dims in spec.layout
    ]
    return formula_values(formula, parameters, x1, x2, diag)


def check_parts(primitives: list[Kernel], layers: list[Layer], skip: bool) -> None:
    """Check the types of the primitives and layers, and the widths of the layers."""
    if not primitives:
        raise ValueError("A network needs at least one primitive kernel, got none.")
    for kernel in primitives:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"Primitives must be gpytorch.kernels.Kernel, got {kernel!r}.")
        inner = next((m for m in kernel.modules() if isinstance(m, _DERIVATIVE_KERNELS)), None)
        if inner is not None:
            raise NotImplementedError(
                f"{type(inner).__name__} models derivatives, which layers do not preserve: use "
                "the network as base kernel of a GradientKernel."
            )
    for layer in layers:
        if not isinstance(layer, Layer):
            raise TypeError(f"Layers must be gpytorch_nkn.layers.Layer, got {layer!r}.")
    check_flags(skip=skip)
    if skip and len(layers) < 2:
        raise ValueError(f"skip=True needs at least two layers, got {len(layers)}.")
    widths = [len(primitives), *(layer.out_features for layer in layers)]
    chain = [f"{type(x).__name__}({x.in_features}, {x.out_features})" for x in layers]
    chain.insert(0, f"{len(primitives)} primitives")
    if skip:
        widths[-2] += len(primitives)
        chain[-2] += f" (+ {len(primitives)} skipped)"
    if widths != [*(layer.in_features for layer in layers), 1]:
        raise ValueError(
            "in_features of a layer must equal the previous width, and the output width must "
            f"be 1, got {' -> '.join(chain)}."
        )
