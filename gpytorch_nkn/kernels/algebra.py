"""Exact products and sums of two kernels of the same class, and conversions to GPyTorch kernels."""

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
    "columns_of",
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
    "unit_linear",
    "unit_variance",
]


def unit_linear(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Return variance ``...`` and unit-variance copy of a linear kernel; None for many columns."""
    if not _is_single(kernel, kernel.variance):
        return None
    unit = _with_positive_constraints(kernel)
    unit.variance = torch.ones_like(kernel.variance)
    return kernel.variance.detach()[..., 0, 0], unit


def unit_variance(kernel: Kernel) -> tuple[Tensor, Kernel]:
    """Return a variance of 1 and the kernel itself, for kernels without a variance parameter."""
    like = next(kernel.parameters())
    return like.new_ones(kernel.batch_shape), kernel


def periodic_terms(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Return the constant ``...`` in a periodic kernel, and the zero-mean periodic kernel.

    MacKay's periodic kernel is c + (1 - c) k with the zero-mean periodic kernel k. The constant is
    c = exp(-z) I0(z) with z = 1 / lengthscale (Lloyd et al. 2014, appendix A). None for several
    columns.
    """
    if not _is_single(kernel, kernel.lengthscale):
        return None
    zero_mean = ZeroMeanPeriodicKernel(
        batch_shape=kernel.batch_shape, active_dims=columns_of(kernel)
    )
    zero_mean.to(kernel.lengthscale)
    zero_mean.lengthscale = kernel.lengthscale.detach()
    zero_mean.period_length = kernel.period_length.detach()
    return torch.special.i0e(1 / kernel.lengthscale.detach())[..., 0, 0], zero_mean


def linear_per_column(kernel: Kernel) -> list[Kernel] | None:
    """Return one linear kernel per column, whose sum is ``kernel``; None for a single column."""
    columns = columns_of(kernel)
    if columns is None or len(columns) == 1:
        return None
    parts = []
    for index, column in enumerate(columns):
        linear = type(kernel)(batch_shape=kernel.batch_shape, active_dims=(column,))
        linear.to(kernel.variance)
        linear.variance = _entry(kernel.variance, index)
        if hasattr(kernel, "center"):
            linear.initialize(center=_entry(kernel.center, index))
        parts.append(linear)
    return parts


def multiply_rbf(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply RBF kernels by adding their inverse squared lengthscales in each column."""
    columns = columns_of(first), columns_of(second)
    if columns[0] == columns[1]:
        merged = columns[0]
        inverse_squares = _inverse_squares(first) + _inverse_squares(second)
    elif None in columns:
        return None
    else:
        assert columns[0] is not None and columns[1] is not None
        merged = tuple(sorted({*columns[0], *columns[1]}))
        inverse_squares = _scatter(_inverse_squares(first), columns[0], merged)
        inverse_squares = inverse_squares + _scatter(_inverse_squares(second), columns[1], merged)
    width = inverse_squares.size(-1)
    batch_shape = inverse_squares.shape[:-2]
    kernel = RBFKernel(
        ard_num_dims=width if width > 1 else None, batch_shape=batch_shape, active_dims=merged
    )
    kernel.to(inverse_squares)
    kernel.lengthscale = inverse_squares.rsqrt()
    return kernel


def _with_positive_constraints(kernel: Kernel) -> Kernel:
    """Return a copy with equal values, in which ``Positive`` replaces other constraints."""
    copy = deepcopy(kernel)
    for name, _, constraint in kernel.named_parameters_and_constraints():
        if constraint is not None and type(constraint) is not Positive:
            value = constraint.transform(getattr(kernel, name).detach())
            positive = Positive().to(value)
            copy.register_constraint(name, positive)
            copy.initialize(**{name: positive.inverse_transform(value)})
    return copy


def _inverse_squares(kernel: Kernel) -> Tensor:
    columns = columns_of(kernel)
    value = kernel.lengthscale.detach().square().reciprocal()
    return value if columns is None else value.expand(*value.shape[:-1], len(columns))


def _scatter(inverse_squares: Tensor, dims: tuple[int, ...], merged: tuple[int, ...]) -> Tensor:
    result = inverse_squares.new_zeros(*inverse_squares.shape[:-1], len(merged))
    indices = torch.tensor([merged.index(column) for column in dims], device=inverse_squares.device)
    return result.index_add_(-1, indices, inverse_squares)  # active_dims may repeat a column


def multiply_periodic(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply kernels exp(-2 sin^2(pi d / p) / l) with equal periods by adding 1 / l."""
    if not _same_columns(first, second) or not _equal(first.period_length, second.period_length):
        return None
    return _with_added_rates(first, second)


def _with_added_rates(first: Kernel, second: Kernel) -> Kernel:
    merged = _with_positive_constraints(first)
    merged.lengthscale = 1 / (1 / first.lengthscale.detach() + 1 / second.lengthscale.detach())
    return merged


def multiply_matern(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply one-dimensional kernels exp(-d / l) by adding 1 / l; None unless nu is 1/2."""
    single = _is_single(first, first.lengthscale) and _is_single(second, second.lengthscale)
    if not (first.nu == second.nu == 0.5 and single and _same_columns(first, second)):
        return None
    return _with_added_rates(first, second)


def multiply_rational_quadratic(first: Kernel, second: Kernel) -> Kernel | None:
    """Multiply kernels (1 + d^2 / 2 a l^2)^-a with equal a l^2 by adding the exponents."""
    if not _same_columns(first, second):
        return None
    tails = [k.alpha.detach()[..., None] * k.lengthscale.detach().square() for k in (first, second)]
    if not _equal(*tails):
        return None
    merged = _with_positive_constraints(first)
    merged.alpha = first.alpha.detach() + second.alpha.detach()
    merged.lengthscale = (tails[0] / merged.alpha.detach()[..., None]).sqrt()
    return merged


def _same_columns(first: Kernel, second: Kernel) -> bool:
    """Return whether two kernels have equal ``active_dims`` and parameter shapes."""
    shapes = [[tuple(p.shape) for p in kernel.parameters()] for kernel in (first, second)]
    return columns_of(first) == columns_of(second) and shapes[0] == shapes[1]


def _equal(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal up to the rounding errors of constraint transforms."""
    return torch.allclose(first, second, rtol=32 * torch.finfo(first.dtype).eps, atol=0.0)


def _is_single(kernel: Kernel, parameter: Tensor) -> bool:
    """Return whether the kernel has one active column and one value of the parameter."""
    columns = columns_of(kernel)
    return parameter.size(-1) == 1 and columns is not None and len(columns) == 1


def _entry(parameter: Tensor, index: int) -> Tensor:
    """Return the parameter's value for a column; all columns may share one value."""
    return parameter.detach()[..., [index if parameter.size(-1) > 1 else 0]]


def columns_of(kernel: Kernel) -> tuple[int, ...] | None:
    """Return the input columns of a kernel, None for all."""
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
    """Return the equivalent GPyTorch cosine kernel; None if there are several frequencies."""
    if kernel.frequency.numel() > 1:
        return None
    result = CosineKernel().to(kernel.frequency)
    result.period_length = math.pi / kernel.frequency.detach().abs().clamp_min(1e-6)
    return result


def rbf_for_rational_quadratic(kernel: Any) -> list[Kernel]:
    """Return two RBF kernels, with the lengthscale of ``kernel`` and with a fifth of it."""
    kernels = []
    for length in (1.0, 0.2):
        smooth = RBFKernel(ard_num_dims=kernel.ard_num_dims).to(kernel.lengthscale)
        smooth.active_dims = kernel.active_dims
        smooth.lengthscale = length * kernel.lengthscale.detach()
        kernels.append(smooth)
    return kernels
