"""Formulas of primitive kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gpytorch_nkn.kernels.distances import squared_distances

__all__ = ["Formula", "stationary"]


@dataclass(frozen=True, eq=False)
class Formula:
    """Values of a kernel as a function of inputs and parameters.

    Args:
        values: ``values(x1, x2, *parameters)`` returns ``... x m x n`` values by twice
            differentiable operations. Inputs ``... x m x d`` and ``... x n x d`` have the kernel's
            columns. Parameters ``... x 1 x d`` or ``... x 1 x 1`` are in the order of the kernel's
            spec. For diagonal blocks of a symmetric matrix, ``x1 is x2``.
        fast: Returns the same values in fewer operations, which are differentiable once.
        code: Number of the formula in ``evaluation/cpp/native_plan.h``; PyTorch evaluates networks
            that contain a formula without code.
        derived: Computes a further parameter from the first one, once per matrix.
        derived_slope: Derivative of ``derived``, given the first and the derived parameter.
        max_columns: Largest number of columns for which the formula is valid.
    """

    values: Callable[..., Tensor]
    fast: Callable[..., Tensor] | None = None
    code: int | None = None
    derived: Callable[[Tensor], Tensor] | None = None
    derived_slope: Callable[[Tensor, Tensor], Tensor] | None = None
    max_columns: int | None = None


Points = tuple[Tensor, Tensor, Sequence[Tensor]]


def _scaled(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Points:
    """Return inputs divided by the last parameter (the lengthscale), and the other parameters."""
    *others, lengthscale = parameters
    left = x1 / lengthscale
    return left, left if x1 is x2 else x2 / lengthscale, others


def stationary(
    of_square: Callable[..., Tensor],
    *,
    with_slope: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
    values: Callable[..., Tensor] | None = None,
    points: Callable[..., Points] = _scaled,
    **options: Any,
) -> Formula:
    """Create the formula of a kernel that is a function of the squared distance.

    Args:
        of_square: ``of_square(square, *others)`` returns values at squared distances in units of
            the lengthscale (the last parameter), given the other parameters.
        with_slope: Returns values and their derivatives with respect to squared distances, and may
            overwrite the distances. Replaces autograd for first derivatives.
        values: Twice differentiable values, if ``of_square`` is differentiable only once.
        points: Maps inputs and parameters to two sets of points, whose distances are computed, and
            the other parameters.
        options: Further fields of :class:`Formula`.
    """

    def exact(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Tensor:
        left, right, others = points(x1, x2, *parameters)
        return of_square(squared_distances(left, right), *others)

    def fast(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Tensor:
        left, right, others = points(x1, x2, *parameters)
        if with_slope is not None:
            return _Stationary.apply(left, right, with_slope)
        return of_square(_Square.apply(left, right), *others)

    return Formula(values or exact, fast, **options)


class _Square(Function):
    """Squared distances ``... x m x n`` by one matrix product, differentiable once."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor) -> Tensor:
        x1, x2 = _centered(x1, x2)
        ctx.save_for_backward(x1, x2)
        return _square(x1, x2)

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, Tensor]:
        x1, x2 = ctx.saved_tensors
        return _square_gradients(x1, x2, weights[0].clone())


class _Stationary(Function):
    """Function of squared distances with an explicit derivative."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor, with_slope: Callable) -> Tensor:
        x1, x2 = _centered(x1, x2)
        value, slope = with_slope(_square(x1, x2))
        ctx.save_for_backward(x1, x2, slope)
        return value

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        x1, x2, slope = ctx.saved_tensors
        return *_square_gradients(x1, x2, slope * weights[0]), None


def _centered(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the mean from inputs, to avoid cancellation between large squares."""
    center = x1.mean(-2, keepdim=True)
    left = x1 - center
    return left, left if x1 is x2 else x2 - center


def _square(x1: Tensor, x2: Tensor) -> Tensor:
    if x1.size(-1) == 1:
        return (x1 - x2.mT).square_()
    # |a|^2 - 2 a b + |b|^2 as one product
    norms1 = x1.square().sum(-1, keepdim=True)
    norms2 = norms1 if x1 is x2 else x2.square().sum(-1, keepdim=True)
    left = torch.cat([-2 * x1, norms1, torch.ones_like(norms1)], -1)
    right = torch.cat([x2, torch.ones_like(norms2), norms2], -1)
    square = (left @ right.mT).clamp_min_(0.0)
    if x1 is x2:  # exact zeros, because a square root would magnify rounding errors
        square.diagonal(dim1=-2, dim2=-1).zero_()
    return square


def _square_gradients(x1: Tensor, x2: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients of a weighted sum of squared distances; overwrites the weights."""
    if x1 is x2:  # distances on the diagonal are constant
        weights.diagonal(dim1=-2, dim2=-1).zero_()
    with_ones1, with_ones2 = (torch.cat([x, torch.ones_like(x[..., :1])], -1) for x in (x1, x2))
    sums1, sums2 = weights @ with_ones2, weights.mT @ with_ones1
    return (
        2 * (x1 * sums1[..., -1:] - sums1[..., :-1]),
        2 * (x2 * sums2[..., -1:] - sums2[..., :-1]),
    )
