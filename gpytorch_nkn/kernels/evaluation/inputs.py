"""The inputs of a matrix, and sums over its entries that are products with them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Inputs", "Moments"]


class Inputs:
    """Inputs ``N x D`` and ``M x D``, with what is made of them once for all tiles."""

    def __init__(self, x1: Tensor, x2: Tensor, with_gradients: bool):
        self.x1, self.x2 = x1, x2
        self._columns = list(zip(x1.split(1, 1), x2.mT.contiguous().split(1), strict=True))
        self.symmetric = x1 is x2
        self.with_gradients = with_gradients
        self._centered: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self._square_factors: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self._square_moments: dict[tuple[int, ...], Moments] = {}

    def column(self, dim: int) -> tuple[Tensor, Tensor]:
        """One column, ``N x 1`` and ``1 x M``."""
        return self._columns[dim]

    def columns(self, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The columns ``dims``."""
        if dims == tuple(range(self.x1.size(-1))):
            return self.x1, self.x2
        columns = list(dims)
        x1 = self.x1[:, columns]
        return x1, x1 if self.symmetric else self.x2[:, columns]

    def centered(self, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The columns less their mean, for differences of squares are exact near zero only."""
        if dims not in self._centered:
            x1, x2 = self.columns(dims)
            center = x1.mean(0)
            left = x1 - center
            self._centered[dims] = left, left if self.symmetric else x2 - center
        return self._centered[dims]

    def square_factors(self, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Matrices ``N x K`` and ``K x M`` whose product are squared distances."""
        if dims not in self._square_factors:
            one = self.x1.new_ones(1, 1)
            left, right = self.scaled_square_factors(dims, one)
            self._square_factors[dims] = left[0], right[0]
        return self._square_factors[dims]

    def scaled_square_factors(
        self, dims: tuple[int, ...], coefficient: Tensor, offset: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Matrices whose products are sums of squared distances times coefficients, and an offset.

        ``G x N x (d + 2)`` and ``G x (d + 2) x M`` for ``d`` columns and coefficients ``G x d``.
        """
        x1, x2 = self.centered(dims)
        left = x1 * coefficient.unsqueeze(1)  # G x N x d
        norms1 = norms2 = (left * x1).sum(-1, keepdim=True)
        if not self.symmetric:
            norms2 = x2.square() @ coefficient.expand(-1, x2.size(-1)).unsqueeze(-1)
        ones = norms1.new_ones(())
        # c |a|^2 - 2 c a b + c |b|^2, with ones beside the squares.
        return (
            torch.cat([-2.0 * left, norms1 + offset, ones.expand_as(norms1)], -1),
            torch.cat([x2.expand(len(left), -1, -1), ones.expand_as(norms2), norms2], -1).mT,
        )

    def square_moments(self, dims: tuple[int, ...]) -> Moments:
        """Sums from which gradients through squared distances over the columns are made."""
        if dims not in self._square_moments:
            self._square_moments[dims] = Moments(self, *self.centered(dims), with_squares=True)
        return self._square_moments[dims]


class Moments:
    """Products of weights with functions of the inputs, summed over tiles.

    All gradients through squared distances and inner products are made of them. They are summed
    for each row ``i`` (with gradients of the inputs for each column, too), and what depends on
    ``i`` alone comes in at the end, once for all tiles.

    Args:
        inputs: The inputs.
        x1, x2: Their columns ``... x N x d`` and ``... x M x d``, shifted in any way.
        with_squares: Whether the weights are those of squared distances.
    """

    def __init__(self, inputs: Inputs, x1: Tensor, x2: Tensor, with_squares: bool):
        self._x1, self._x2 = x1, x2
        self._with_gradients = inputs.with_gradients
        if self._with_gradients:
            self._left = torch.cat([x1, torch.ones_like(x1[..., :1])], -1)
        right = [x2, torch.ones_like(x2[..., :1])]
        self._right = torch.cat([*right, x2.square()] if with_squares else right, -1)

    def zeros(self, size: int) -> list[Tensor]:
        """Zeros for the sums of ``size`` matrices of weights."""
        of_rows = self._x1.new_zeros(size, self._x1.size(-2), self._right.size(-1))
        if not self._with_gradients:
            return [of_rows]
        return [of_rows, self._x1.new_zeros(size, self._x2.size(-2), self._left.size(-1))]

    def add(self, rows: slice, columns: slice, weights: Tensor, sums: list[Tensor]) -> None:
        """Add a tile's weights ``G x m x n`` times inputs, one and squared inputs."""
        size = weights.size(0)
        right = self._right[..., columns, :].expand(size, -1, -1)
        sums[0][:, rows].baddbmm_(weights, right)
        if self._with_gradients:
            left = self._left[..., rows, :].expand(size, -1, -1)
            sums[1][:, columns].baddbmm_(weights.mT, left)

    def of_squares(self, sums: list[Tensor]) -> Tensor:
        """Sums ``G x d`` of the weights times the squared differences in each column."""
        dims = self._x1.size(-1)
        across, totals, squares = sums[0].split([dims, 1, dims], -1)
        return (self._x1 * (self._x1 * totals - 2 * across) + squares).sum(-2)

    def of_differences(self, sums: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Sums ``G x N x d`` and ``G x M x d`` of the weights times the differences."""
        dims = self._x1.size(-1)
        return (
            self._x1 * sums[0][..., dims : dims + 1] - sums[0][..., :dims],
            self._x2 * sums[1][..., dims:] - sums[1][..., :dims],
        )
