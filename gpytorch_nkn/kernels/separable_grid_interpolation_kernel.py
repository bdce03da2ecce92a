"""Product of one kernel per column, interpolated from a grid (KISS-GP)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import (
    InterpolatedLinearOperator,
    KroneckerProductLinearOperator,
    LinearOperator,
)
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.factors import check_factors, is_small
from gpytorch_nkn.kernels.network import kernel_values

__all__ = ["SeparableGridInterpolationKernel"]

_MIN_SIZE = 4  # points that cubic interpolation uses per axis


class SeparableGridInterpolationKernel(BatchKernel):
    r"""Product of one kernel per input column, interpolated between the points of a grid.

    .. math:: k(x, x') \approx w(x)^\top (K_1 \otimes \dots \otimes K_D)\, w(x')

    :math:`K_d` is the matrix of the d-th kernel at the points of the d-th axis, and :math:`w(x)`
    has the :math:`4^D` weights of cubic convolution around x. A product with :math:`W K W^\top`
    takes time linear in the number of inputs. The error is of third order in the spacing: for an
    RBF kernel at most 0.1 if the spacing is one lengthscale, 0.012 if half, 0.0011 if a quarter.
    Kernels, sizes and bounds may differ between axes;
    :class:`gpytorch.kernels.GridInterpolationKernel` is wrong for different axes.

    Up to ``gpytorch.settings.max_cholesky_size`` inputs the values are a tensor, beyond that an
    InterpolatedLinearOperator. Its predictions by conjugate gradients need a smaller
    ``eval_cg_tolerance`` than GPyTorch's default of 0.01.

    Args:
        kernels: One kernel per column, each for inputs ``... x n x 1``.
        grid_sizes: Number of points on each axis, at least 4; one number for all axes.
        grid_bounds: First and last point of each axis. See :meth:`from_data`.
        active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Attributes:
        grid: The evenly spaced points of each axis.

    Raises:
        TypeError: An entry of ``kernels`` is not a kernel.
        ValueError: The numbers of kernels, sizes and bounds differ, or a size or bound is wrong.
            On evaluation: inputs are outside of the grid or NaN, or have a wrong number of columns.

    Reference: Wilson and Nickisch (2015), Kernel Interpolation for Scalable Structured Gaussian
    Processes (KISS-GP). Keys (1981), Cubic Convolution Interpolation for Digital Image Processing.

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, RBFKernel
        >>> x = torch.rand(5, 2)
        >>> kernel = SeparableGridInterpolationKernel(
        ...     [RBFKernel(), PeriodicKernel()], [20, 30], [(0.0, 1.0), (0.0, 1.0)]
        ... )
        >>> kernel(x).shape
        torch.Size([5, 5])
    """

    is_stationary = False  # the interpolation error depends on the input

    def __init__(
        self,
        kernels: Sequence[Kernel],
        grid_sizes: Sequence[int] | int,
        grid_bounds: Sequence[tuple[float, float]],
        *,
        active_dims: tuple[int, ...] | None = None,
    ):
        super().__init__(active_dims=active_dims)
        bounds = [(float(low), float(high)) for low, high in grid_bounds]
        sizes = [grid_sizes] * len(bounds) if isinstance(grid_sizes, int) else list(grid_sizes)
        if len(sizes) != len(bounds) or not bounds:
            raise ValueError(
                f"grid_sizes must have one entry per axis, got {sizes} for grid_bounds={bounds}."
            )
        if any(int(size) != size or size < _MIN_SIZE for size in sizes):
            raise ValueError(f"grid_sizes must be integers of at least {_MIN_SIZE}, got {sizes}.")
        for low, high in bounds:
            if not low < high or low == -float("inf") or high == float("inf"):
                raise ValueError(f"grid_bounds must be finite and increase, got {bounds}.")
        self._axes = _Axes(bounds, [int(size) for size in sizes])
        self.kernels = nn.ModuleList(check_factors(kernels, self.grid_columns()))

    @classmethod
    def from_data(
        cls,
        kernels: Sequence[Kernel],
        x: Tensor,
        *,
        grid_sizes: Sequence[int] | int | None = None,
        margin: float = 0.1,
        active_dims: tuple[int, ...] | None = None,
    ) -> SeparableGridInterpolationKernel:
        """Create a kernel with a grid that contains the given inputs.

        Args:
            kernels, active_dims: As in the constructor.
            x: Inputs ``... x N x D``: training and test inputs, or training inputs with a margin.
            grid_sizes: As in the constructor; ``None`` for about as many grid points as inputs,
                between 8 and 512 on each axis. The spacing should be at most half of the
                lengthscale, with little noise a quarter.
            margin: Fraction of the range of each column by which the grid extends it on each side.

        Raises:
            ValueError: Inputs are not finite, ``margin`` is negative, or as in the constructor.
        """
        if x.dim() < 2 or x.numel() == 0 or not x.isfinite().all():
            raise ValueError(f"x must be finite inputs ... x N x D, got shape {tuple(x.shape)}.")
        if not margin >= 0:
            raise ValueError(f"margin must not be negative, got {margin}.")
        rows = x.detach().double().flatten(0, -2)
        if active_dims is not None:
            rows = rows[:, list(active_dims)]
        low, high = rows.amin(0), rows.amax(0)
        width = torch.where(high > low, high - low, torch.ones_like(low))
        bounds = torch.stack([low - margin * width, high + margin * width], -1)
        # constant columns
        bounds = torch.where((high > low)[:, None], bounds, torch.stack([low - 0.5, low + 0.5], -1))
        if grid_sizes is None:
            grid_sizes = min(512, max(8, round(len(rows) ** (1 / rows.size(-1)))))
        pairs = [(low, high) for low, high in bounds.tolist()]
        return cls(kernels, grid_sizes, pairs, active_dims=active_dims)

    @property
    def grid(self) -> tuple[Tensor, ...]:
        """Return the points of each axis, ``n_d``."""
        return tuple(axis.squeeze(-1) for axis in self.grid_columns())

    def grid_columns(self) -> list[Tensor]:
        """Return the points of each axis as inputs of its kernel, ``n_d x 1``."""
        bounds = self._axes.bounds
        return [
            torch.linspace(low, high, size, dtype=bounds.dtype, device=bounds.device)[:, None]
            for (low, high), size in zip(bounds.tolist(), self._axes.sizes.tolist(), strict=True)
        ]

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """Return values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        if x1.size(-1) != len(self.kernels):
            raise ValueError(
                f"Inputs must have {len(self.kernels)} column(s), one per kernel, got "
                f"{x1.size(-1)}."
            )
        weights1 = self._weights(x1)
        weights2 = weights1 if are_same(x1, x2) else self._weights(x2)
        factors = [
            kernel_values(kernel, axis.to(x1), axis.to(x1), **params)
            for kernel, axis in zip(self.kernels, self.grid_columns(), strict=True)
        ]
        # linear operators cannot be traced
        if not (diag or torch.jit.is_tracing() or self._is_small(x1.size(-2), x2.size(-2))):
            return _interpolated(factors, weights1, weights2)
        values = _diagonal if diag else _values
        return reduce(torch.mul, map(values, factors, weights1, weights2))

    def _is_small(self, num_rows: int, num_columns: int) -> bool:
        sizes = self._axes.sizes.tolist()
        work = 4 ** len(sizes) * (num_rows + num_columns) + math.prod(sizes) * sum(sizes)
        return is_small(num_rows * num_columns, work)

    def _weights(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return indices of the points around each coordinate, ``... x N x 4``, and weights."""
        result: list[tuple[Tensor, Tensor]] = []
        bounds, sizes = self._axes.bounds.tolist(), self._axes.sizes.tolist()
        for column, (low, high), size in zip(x.unbind(-1), bounds, sizes, strict=True):
            slack = 1e-3 * (high - low) / (size - 1)  # for rounding errors
            if not ((column >= low - slack) & (column <= high + slack)).all():
                number = len(result)
                raise ValueError(
                    f"Inputs must be on the grid: column {number} has values from "
                    f"{column.min().item():.6g} to {column.max().item():.6g}, and its axis goes "
                    f"from {low:.6g} to {high:.6g}. Use wider grid_bounds or a larger margin."
                )
            result.append(_cubic_weights(column, low, high, size))
        return result


class _Axes(nn.Module):
    """Bounds and sizes of the axes, in a separate module because they have no batch."""

    bounds: Tensor
    sizes: Tensor

    def __init__(self, bounds: list[tuple[float, float]], sizes: list[int]):
        super().__init__()
        self.register_buffer("bounds", torch.tensor(bounds, dtype=torch.float64))
        self.register_buffer("sizes", torch.tensor(sizes))


def _cubic_weights(x: Tensor, low: float, high: float, size: int) -> tuple[Tensor, Tensor]:
    """Return the four points around coordinates, ``... x 4``, and their interpolation weights."""
    position = (x - low) * ((size - 1) / (high - low))
    cell = position.detach().floor().clamp(0, size - 2)
    t = position - cell
    before = ((2 - t) * t - 1) * t / 2
    left = ((3 * t - 5) * t * t + 2) / 2
    right = ((4 - 3 * t) * t + 1) * t / 2
    after = (t - 1) * t * t / 2
    # the cubic f(-1) = 4 f(0) - 6 f(1) + 4 f(2) - f(3) extrapolates beyond the ends
    inner = torch.stack([before, left, right, after], -1)
    first = torch.stack([left + 4 * before, right - 6 * before, after + 4 * before, -before], -1)
    last = torch.stack([-after, before + 4 * after, left - 6 * after, right + 4 * after], -1)
    weights = torch.where((cell == 0).unsqueeze(-1), first, inner)
    weights = torch.where((cell == size - 2).unsqueeze(-1), last, weights)
    start = (cell - 1).clamp(0, size - 4).long()
    return start.unsqueeze(-1) + torch.arange(4, device=x.device), weights


def _values(factor: Tensor, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """Return interpolated values of one factor, ``... x N x M``."""
    left_matrix, right_matrix = (
        weights.new_zeros(*weights.shape[:-1], factor.size(-1)).scatter_add(-1, indices, weights)
        for indices, weights in (left, right)
    )
    return left_matrix @ factor @ right_matrix.mT


def _diagonal(factor: Tensor, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """Return interpolated values of one factor at pairs of inputs, ``... x N``."""
    rows, columns = left[0].unsqueeze(-1), right[0].unsqueeze(-2)  # ... x N x 4 x 1, ... x 1 x 4
    weights = left[1].unsqueeze(-1) * right[1].unsqueeze(-2)
    entries = rows * factor.size(-1) + columns
    batch_shape = torch.broadcast_shapes(factor.shape[:-2], entries.shape[:-3])
    entries = entries.expand(*batch_shape, *entries.shape[-3:])
    source = factor.flatten(-2).expand(*batch_shape, -1)
    values = source.gather(-1, entries.flatten(-3)).view(entries.shape)
    return (values * weights).sum((-2, -1))


def _interpolated(
    factors: list[Tensor],
    left: list[tuple[Tensor, Tensor]],
    right: list[tuple[Tensor, Tensor]],
) -> InterpolatedLinearOperator:
    """Return the operator for a grid in C order (the last axis varies fastest)."""
    operators = [to_linear_operator(factor) for factor in factors]
    base = KroneckerProductLinearOperator(*operators) if len(factors) > 1 else operators[0]
    sizes = [factor.size(-1) for factor in factors]
    sides = []
    for side in (left, right) if right is not left else (left,):
        indices, weights = side[0]
        for size, (new_indices, new_weights) in zip(sizes[1:], side[1:], strict=True):
            indices = (indices.unsqueeze(-1) * size + new_indices.unsqueeze(-2)).flatten(-2)
            weights = (weights.unsqueeze(-1) * new_weights.unsqueeze(-2)).flatten(-2)
        sides.append((indices, weights))
    batch_shape = torch.broadcast_shapes(base.batch_shape, *(i.shape[:-2] for i, _ in sides))
    args = [
        tensor.expand(*batch_shape, *tensor.shape[-2:])
        for indices, weights in (sides[0], sides[-1])
        for tensor in (indices, weights)
    ]
    return InterpolatedLinearOperator(base.expand(*batch_shape, *base.matrix_shape), *args)
