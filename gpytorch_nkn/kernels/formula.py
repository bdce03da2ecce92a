"""How the values of a primitive kernel follow from inputs and parameters."""

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
        values: ``values(x1, x2, *parameters)`` gives ``... x m x n`` values, by operations that can
            be differentiated twice, for the columns ``... x m x d`` and ``... x n x d`` that the
            kernel sees and its parameters ``... x 1 x d`` (or ``... x 1 x 1``), in the order of
            its row in the catalogue. On the diagonal of a symmetric matrix ``x1 is x2``.
        fast: The same values in fewer operations, which can be differentiated once.
        code: Number of the formula in ``evaluation/cpp/native_plan.h``; networks with a formula
            that has none are evaluated in Python.
        derived: A number that is computed once per matrix from the first parameter and stands
            behind the parameters.
        derived_slope: Its derivative, from the first parameter and the number itself.
        max_columns: Largest number of columns for which the formula holds.
    """

    values: Callable[..., Tensor]
    fast: Callable[..., Tensor] | None = None
    code: int | None = None
    derived: Callable[[Tensor], Tensor] | None = None
    derived_slope: Callable[[Tensor, Tensor], Tensor] | None = None
    max_columns: int | None = None


Points = tuple[Tensor, Tensor, Sequence[Tensor]]


def _scaled(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Points:
    """Inputs in units of the last parameter, the lengthscale, and the other parameters."""
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
    """The formula of a function of the squared distance.

    Args:
        of_square: ``of_square(square, *others)``, entry by entry, of squared distances in units
            of the lengthscale (the last parameter) and the parameters before it.
        with_slope: The value and its derivative at squared distances, which it may overwrite; in
            place of autograd where a first derivative is enough.
        values: What takes its place where a second derivative may be wanted.
        points: The points whose distances count, and the other parameters.
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
    """Squared distances ``... x m x n`` in one product, differentiable once."""

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
    """A function of the squared distances whose slope is written out."""

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
    """Inputs less the mean, for differences of squares are exact near zero only."""
    center = x1.mean(-2, keepdim=True)
    left = x1 - center
    return left, left if x1 is x2 else x2 - center


def _square(x1: Tensor, x2: Tensor) -> Tensor:
    if x1.size(-1) == 1:
        return (x1 - x2.mT).square_()
    # |a|^2 - 2 a b + |b|^2, with ones beside the squares
    norms1 = x1.square().sum(-1, keepdim=True)
    norms2 = norms1 if x1 is x2 else x2.square().sum(-1, keepdim=True)
    left = torch.cat([-2 * x1, norms1, torch.ones_like(norms1)], -1)
    right = torch.cat([x2, torch.ones_like(norms2), norms2], -1)
    square = (left @ right.mT).clamp_min_(0.0)
    if x1 is x2:  # rounding there would be magnified by a square root
        square.diagonal(dim1=-2, dim2=-1).zero_()
    return square


def _square_gradients(x1: Tensor, x2: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the weighted sum of squared distances; weights may be overwritten."""
    if x1 is x2:  # no distance: what is left of it would be rounding
        weights.diagonal(dim1=-2, dim2=-1).zero_()
    with_ones1, with_ones2 = (torch.cat([x, torch.ones_like(x[..., :1])], -1) for x in (x1, x2))
    of_rows, of_columns = weights @ with_ones2, weights.mT @ with_ones1
    return (
        2 * (x1 * of_rows[..., -1:] - of_rows[..., :-1]),
        2 * (x2 * of_columns[..., -1:] - of_columns[..., :-1]),
    )
