"""Exact rules for products and sums of kernels of one family, and their simpler counterparts."""

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
    "alone",
    "cosine_of_exponential",
    "linear_per_column",
    "multiply_matern",
    "multiply_periodic",
    "multiply_rational_quadratic",
    "multiply_rbf",
    "period_of_cosine",
    "period_of_exponential",
    "period_of_periodic",
    "periodic_terms",
    "rbf_for_rational_quadratic",
    "same_columns",
    "stock_linear",
    "stock_periodic",
    "unit_linear",
]


def unit_linear(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Variance ``...`` of a linear kernel over one column, and the kernel with variance one."""
    if not _is_single(kernel, kernel.variance):
        return None
    unit = _unconstrained(kernel)
    unit.variance = torch.ones_like(kernel.variance)
    return kernel.variance.detach()[..., 0, 0], unit


def alone(kernel: Kernel) -> tuple[Tensor, Kernel]:
    """One, and the kernel: it has no variance, and those with equal parameters are one kernel."""
    like = next(kernel.parameters())
    return like.new_ones(kernel.batch_shape), kernel


def periodic_terms(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Constant part ``...`` of a periodic kernel, and the kernel of the rest, scaled to one.

    MacKay's kernel is c + (1 - c) k with c = exp(-z) I0(z), z = 1 / lengthscale, and k without
    a mean over a period (Lloyd et al. 2014, appendix A).
    """
    if not _is_single(kernel, kernel.lengthscale):
        return None
    rest = ZeroMeanPeriodicKernel(batch_shape=kernel.batch_shape, active_dims=_columns(kernel))
    rest.to(kernel.lengthscale)
    rest.lengthscale = kernel.lengthscale.detach()
    rest.period_length = kernel.period_length.detach()
    return torch.special.i0e(1 / kernel.lengthscale.detach())[..., 0, 0], rest


def linear_per_column(kernel: Kernel) -> list[Kernel] | None:
    """A linear kernel over several columns as one per column, whose sum it is; None for one."""
    columns = _columns(kernel)
    if columns is None or len(columns) == 1:
        return None
    parts = []
    for place, column in enumerate(columns):
        part = type(kernel)(batch_shape=kernel.batch_shape, active_dims=(column,))
        part.to(kernel.variance)
        part.variance = _entry(kernel.variance, place)
        if hasattr(kernel, "center"):
            part.initialize(center=_entry(kernel.center, place))
        parts.append(part)
    return parts


def multiply_rbf(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-d^2 / 2 l^2): precisions add, column by column."""
    columns = _columns(first), _columns(second)
    if columns[0] == columns[1]:
        merged = columns[0]
        precision = _precision(first) + _precision(second)
    elif None in columns:
        return None
    else:
        assert columns[0] is not None and columns[1] is not None
        merged = tuple(sorted({*columns[0], *columns[1]}))
        precision = _spread(_precision(first), columns[0], merged)
        precision = precision + _spread(_precision(second), columns[1], merged)
    width = precision.size(-1)
    batch_shape = precision.shape[:-2]
    kernel = RBFKernel(
        ard_num_dims=width if width > 1 else None, batch_shape=batch_shape, active_dims=merged
    )
    kernel.to(precision)
    kernel.lengthscale = precision.rsqrt()
    return kernel


def _unconstrained(kernel: Kernel) -> Kernel:
    """A copy that takes any positive parameters; what is derived may leave the bounds."""
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


def _spread(precision: Tensor, own: tuple[int, ...], merged: tuple[int, ...]) -> Tensor:
    result = precision.new_zeros(*precision.shape[:-1], len(merged))
    places = torch.tensor([merged.index(column) for column in own], device=precision.device)
    return result.index_add_(-1, places, precision)  # a column may come twice


def multiply_periodic(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-2 sin^2(pi d / p) / l): for one period, 1 / l adds."""
    if not same_columns(first, second) or not _equal(first.period_length, second.period_length):
        return None
    return _with_added_rates(first, second)


def _with_added_rates(first: Kernel, second: Kernel) -> Kernel:
    merged = _unconstrained(first)
    merged.lengthscale = 1 / (1 / first.lengthscale.detach() + 1 / second.lengthscale.detach())
    return merged


def multiply_matern(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-d / l): 1 / l adds in one dimension; for the other smoothnesses there is no rule."""
    single = _is_single(first, first.lengthscale) and _is_single(second, second.lengthscale)
    if not (first.nu == second.nu == 0.5 and single and same_columns(first, second)):
        return None
    return _with_added_rates(first, second)


def multiply_rational_quadratic(first: Kernel, second: Kernel) -> Kernel | None:
    """(1 + d^2 / 2 a l^2)^-a: exponents add where a l^2 is the same."""
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
    """Whether two kernels of one family see the same columns with as many parameters."""
    shapes = [[tuple(p.shape) for p in kernel.parameters()] for kernel in (first, second)]
    return _columns(first) == _columns(second) and shapes[0] == shapes[1]


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether they differ by rounding only, as what is set and read again does."""
    return torch.allclose(first, second, rtol=32 * torch.finfo(first.dtype).eps, atol=0.0)


def _is_single(kernel: Kernel, parameter: Tensor) -> bool:
    """Whether it sees one column, and is known to."""
    columns = _columns(kernel)
    return parameter.size(-1) == 1 and columns is not None and len(columns) == 1


def _entry(parameter: Tensor, place: int) -> Tensor:
    """One column of a parameter that may be shared by all."""
    return parameter.detach()[..., [place if parameter.size(-1) > 1 else 0]]


def _columns(kernel: Kernel) -> tuple[int, ...] | None:
    return None if kernel.active_dims is None else tuple(kernel.active_dims.tolist())


def period_of_periodic(kernel: Any) -> Tensor:
    return kernel.period_length.detach()


def period_of_cosine(kernel: Any) -> Tensor:
    """cos(pi d / p), whose period is 2 p."""
    return 2 * kernel.period_length.detach()


def period_of_exponential(kernel: Any) -> Tensor:
    return 2 * math.pi / kernel.frequency.detach().abs()


def stock_periodic(kernel: Any, zero_mean: bool) -> Kernel:
    """With its constant part, unless ``zero_mean`` keeps it as it is."""
    made = ZeroMeanPeriodicKernel if zero_mean else PeriodicKernel
    stock = made(ard_num_dims=kernel.lengthscale.size(-1)).to(kernel.lengthscale)
    stock.lengthscale = kernel.lengthscale.detach()
    stock.period_length = kernel.period_length.detach()
    return stock


def stock_linear(kernel: Any, zero_mean: bool) -> Kernel:
    """Of one column with the fixed variance one: the scale is that of the term."""
    width = kernel.variance.size(-1)
    stock = LinearKernel(ard_num_dims=width if width > 1 else None).to(kernel.variance)
    stock.variance = kernel.variance.detach() if width > 1 else 1.0
    stock.raw_variance.requires_grad_(width > 1)
    return stock


def cosine_of_exponential(kernel: Any, zero_mean: bool) -> Kernel | None:
    """The cosine of GPyTorch, which is one of the distance: for one frequency only."""
    if kernel.frequency.numel() > 1:
        return None
    stock = CosineKernel().to(kernel.frequency)
    stock.period_length = math.pi / kernel.frequency.detach().abs().clamp_min(1e-6)
    return stock


def rbf_for_rational_quadratic(kernel: Any) -> list[Kernel]:
    """Of its lengthscale, and of a shorter one: heavy tails fall far within their lengthscale."""
    kernels = []
    for length in (1.0, 0.2):
        smooth = RBFKernel(ard_num_dims=kernel.ard_num_dims).to(kernel.lengthscale)
        smooth.active_dims = kernel.active_dims
        smooth.lengthscale = length * kernel.lengthscale.detach()
        kernels.append(smooth)
    return kernels
