"""How a primitive kernel is evaluated in closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Formula"]


@dataclass(frozen=True, eq=False)
class Formula:
    """Values of a kernel as a function of inputs and parameters, and their gradient.

    ``values`` alone makes a kernel part of the closed form of networks: its gradient is found by
    autograd, tile by tile. ``pull_back`` writes it out, ``group`` is a faster way to do both for
    several primitives at once, and ``code`` the fastest, compiled one.

    Args:
        values: ``values(x1, x2, *parameters)`` gives ``m x n`` values, by operations that can be
            differentiated twice, for the columns ``m x d`` and ``n x d`` that the kernel sees and
            its parameters in the order of its row in the catalogue, each with ``d`` numbers or one
            for all. On the diagonal of a symmetric matrix ``x1 is x2``.
        pull_back: ``pull_back(weights, x1, x2, *parameters)`` gives the gradients of the sum of
            ``weights`` ``m x n`` times the values, by each of the other arguments and in its shape.
        group: A subclass of :class:`gpytorch_nkn.kernels.evaluation.Group`.
        code: Number of the formula in ``evaluation/cpp/native_plan.h``; networks with a formula
            that has none are evaluated in Python.
        derived: A number that is computed once per matrix from the first parameter and stands
            behind the parameters.
        derived_slope: Its derivative, from the first parameter and the number itself.
        max_columns: Largest number of columns for which the formula holds.
    """

    values: Callable[..., Tensor]
    pull_back: Callable[..., Sequence[Tensor]] | None = None
    group: Callable[..., Any] | None = None
    code: int | None = None
    derived: Callable[[Tensor], Tensor] | None = None
    derived_slope: Callable[[Tensor, Tensor], Tensor] | None = None
    max_columns: int | None = None
