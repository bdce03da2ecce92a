"""Exact products and sums of kernels of one class, and conversion to GPyTorch kernels."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import CosineKernel, Kernel, LinearKernel, PeriodicKernel, RBFKernel
from torch import Tensor

from gpytorch_nkn.kernels.zero_mean_periodic_kernel import ZeroMeanPeriodicKernel

__all__ = [
    "cosine_of_exponential",
    "gpytorch_linear",
    "gpytorch_periodic",
    "linear_per_column",
    "multiply_matern",
    "multiply_periodic",
    "multiply_rational_quadratic",
    "multiply_rbf",
    "periodic_terms",
    "rbf_for_rational_quadratic",
    "same_columns",
    "unit_linear",
    "unit_variance",
]


def unit_linear(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Return the variance ``...`` of a linear kernel over one column, and a unit-variance copy."""
    if not _is_single(kernel, kernel.variance):
        return None
    unit = _unconstrained(kernel)
    unit.variance = torch.ones_like(kernel.variance)
    return kernel.variance.detach()[..., 0, 0], unit


def unit_variance(kernel: Kernel) -> tuple[Tensor, Kernel]:
    """Return a variance of 1 and the kernel itself, for kernels without a variance parameter."""
    like = next(kernel.parameters())
    return like.new_ones(kernel.batch_shape), kernel


def periodic_terms(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Return the constant part ``...`` of a periodic kernel, and the zero-mean periodic kernel.

    MacKay's kernel is c + (1 - c) k with c = exp(-z) I0(z), z = 1 / lengthscale, and the zero-mean
    kernel k (Lloyd et al. 2014, appendix A).
    """
    if not _is_single(kernel, kernel.lengthscale):
        return None
    rest = ZeroMeanPeriodicKernel(batch_shape=kernel.batch_shape, active_dims=_columns(kernel))
    rest.to(kernel.lengthscale)
    rest.lengthscale = kernel.lengthscale.detach()
    rest.period_length = kernel.period_length.detach()
    return torch.special.i0e(1 / kernel.lengthscale.detach())[..., 0, 0], rest


def linear_per_column(kernel: Kernel) -> list[Kernel] | None:
    """Return linear kernels of one column each whose sum equals ``kernel``; None for one column."""
    columns = _columns(kernel)
    if columns is None or len(columns) == 1:
        return None
    parts = []
    for index, column in enumerate(columns):
        part = type(kernel)(batch_shape=kernel.batch_shape, active_dims=(column,))
        part.to(kernel.variance)
        part.variance = _entry(kernel.variance, index)
        if hasattr(kernel, "center"):
            part.initialize(center=_entry(kernel.center, index))
        parts.append(part)
    return parts


def multiply_rbf(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply kernels exp(-d^2 / 2 l^2) by adding their precisions per column."""
    columns = _columns(first), _columns(second)
    if columns[0] == columns[1]:
        merged = columns[0]
        precision = _precision(first) + _precision(second)
    elif None in columns:
        return None
    else:
        assert columns[0] is not None and columns[1] is not None
        merged = tuple(sorted({*columns[0], *columns[1]}))
        precision = _scatter(_precision(first), columns[0], merged)
        precision = precision + _scatter(_precision(second), columns[1], merged)
    width = precision.size(-1)
    batch_shape = precision.shape[:-2]
    kernel = RBFKernel(
        ard_num_dims=width if width > 1 else None, batch_shape=batch_shape, active_dims=merged
    )
    kernel.to(precision)
    kernel.lengthscale = precision.rsqrt()
    return kernel


def _unconstrained(kernel: Kernel) -> Kernel:
    """Return a copy whose parameters may have any positive values."""
    copy = deepcopy(kernel)
    for name, _, constraint in kernel.named_parameters_and_constraints():
        if constraint is not None and type(constraint) is not Positive:
            value = constraint.transform(getattr(kernel, name).detach())
            positive = Positive().to(value)
            copy.register_constraint(name, positive)
            copy.initialize(**{name: positive.inverse_transform(value)})
    return copy


def _precision(kernel: Kernel) -> Tensor:
    columns = _columns(kernel)
    value = kernel.lengthscale.detach().square().reciprocal()
    return value if columns is None else value.expand(*value.shape[:-1], len(columns))


def _scatter(precision: Tensor, own: tuple[int, ...], merged: tuple[int, ...]) -> Tensor:
    result = precision.new_zeros(*precision.shape[:-1], len(merged))
    indices = torch.tensor([merged.index(column) for column in own], device=precision.device)
    return result.index_add_(-1, indices, precision)  # active_dims may repeat a column


def multiply_periodic(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply kernels exp(-2 sin^2(pi d / p) / l) with equal periods by adding 1 / l."""
    if not same_columns(first, second) or not _equal(first.period_length, second.period_length):
        return None
    return _with_added_rates(first, second)


def _with_added_rates(first: Kernel, second: Kernel) -> Kernel:
    merged = _unconstrained(first)
    merged.lengthscale = 1 / (1 / first.lengthscale.detach() + 1 / second.lengthscale.detach())
    return merged


def multiply_matern(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply one-dimensional kernels exp(-d / l) by adding 1 / l; None unless nu is 1/2."""
    single = _is_single(first, first.lengthscale) and _is_single(second, second.lengthscale)
    if not (first.nu == second.nu == 0.5 and single and same_columns(first, second)):
        return None
    return _with_added_rates(first, second)


def multiply_rational_quadratic(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply kernels (1 + d^2 / 2 a l^2)^-a with equal a l^2 by adding the exponents."""
    if not same_columns(first, second):
        return None
    tails = [k.alpha.detach()[..., None] * k.lengthscale.detach().square() for k in (first, second)]
    if not _equal(*tails):
        return None
    merged = _unconstrained(first)
    merged.alpha = first.alpha.detach() + second.alpha.detach()
    merged.lengthscale = (tails[0] / merged.alpha.detach()[..., None]).sqrt()
    return merged


def same_columns(first: Kernel, second: Kernel) -> bool:
    """Return whether kernels of one class have equal ``active_dims`` and parameter shapes."""
    shapes = [[tuple(p.shape) for p in kernel.parameters()] for kernel in (first, second)]
    return _columns(first) == _columns(second) and shapes[0] == shapes[1]


def _equal(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal up to the rounding of constraints."""
    return torch.allclose(first, second, rtol=32 * torch.finfo(first.dtype).eps, atol=0.0)


def _is_single(kernel: Kernel, parameter: Tensor) -> bool:
    """Return whether ``active_dims`` restricts the kernel to one column."""
    columns = _columns(kernel)
    return parameter.size(-1) == 1 and columns is not None and len(columns) == 1


def _entry(parameter: Tensor, index: int) -> Tensor:
    """Return the parameter's value for one column; columns may share it."""
    return parameter.detach()[..., [index if parameter.size(-1) > 1 else 0]]


def _columns(kernel: Kernel) -> tuple[int, ...] | None:
    return None if kernel.active_dims is None else tuple(kernel.active_dims.tolist())


def gpytorch_periodic(kernel: Any, zero_mean: bool) -> Kernel:
    """Return GPyTorch's periodic kernel or, with ``zero_mean``, a zero-mean periodic kernel."""
    cls = ZeroMeanPeriodicKernel if zero_mean else PeriodicKernel
    result = cls(ard_num_dims=kernel.lengthscale.size(-1)).to(kernel.lengthscale)
    result.lengthscale = kernel.lengthscale.detach()
    result.period_length = kernel.period_length.detach()
    return result


def gpytorch_linear(kernel: Any, zero_mean: bool) -> Kernel:
    """Return GPyTorch's linear kernel, with variance fixed at 1 if it has one column."""
    width = kernel.variance.size(-1)
    result = LinearKernel(ard_num_dims=width if width > 1 else None).to(kernel.variance)
    result.variance = kernel.variance.detach() if width > 1 else 1.0
    result.raw_variance.requires_grad_(width > 1)
    return result


def cosine_of_exponential(kernel: Any, zero_mean: bool) -> Kernel | None:
    """Return GPyTorch's cosine kernel; None for several frequencies, which it cannot represent."""
    if kernel.frequency.numel() > 1:
        return None
    result = CosineKernel().to(kernel.frequency)
    result.period_length = math.pi / kernel.frequency.detach().abs().clamp_min(1e-6)
    return result


def rbf_for_rational_quadratic(kernel: Any) -> list[Kernel]:
    """Return RBF kernels with the same and a fifth of the lengthscale."""
    kernels = []
    for length in (1.0, 0.2):
        smooth = RBFKernel(ard_num_dims=kernel.ard_num_dims).to(kernel.lengthscale)
        smooth.active_dims = kernel.active_dims
        smooth.lengthscale = length * kernel.lengthscale.detach()
        kernels.append(smooth)
    return kernels
