"""Formulas of primitive kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

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
        code: Number of the formula in ``evaluation/cpp/native_plan.h``; PyTorch evaluates networks
            that contain a formula without code.
        derived: Computes a further parameter from the first one, once per matrix.
        derived_slope: Derivative of ``derived``, given the first and the derived parameter.
        max_columns: Largest number of columns for which the formula is valid.
    """

    values: Callable[..., Tensor]
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
    of_square: Callable[..., Tensor], *, points: Callable[..., Points] = _scaled, **options: Any
) -> Formula:
    """Create the formula of a kernel that is a function of the squared distance.

    Args:
        of_square: ``of_square(square, *others)`` returns values at squared distances in units of
            the lengthscale (the last parameter), given the other parameters.
        points: Maps inputs and parameters to two sets of points, whose distances are computed, and
            the other parameters.
        options: Further fields of :class:`Formula`.
    """

    def values(x1: Tensor, x2: Tensor, *parameters: Tensor) -> Tensor:
        left, right, others = points(x1, x2, *parameters)
        return of_square(squared_distances(left, right), *others)

    return Formula(values, **options)
