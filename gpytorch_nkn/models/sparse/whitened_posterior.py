"""Predictions from a Gaussian distribution of the values at inducing points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator import to_linear_operator
from linear_operator.operators import MatmulLinearOperator
from torch import Tensor

__all__ = ["WhitenedPosterior"]

_DENSE = 512  # rows up to which a joint distribution is made of dense matrices


@dataclass
class WhitenedPosterior:
    r"""Distribution :math:`v \sim N(\mu, C C^\top)` where inducing values are :math:`u = L v`.

    With :math:`r = L^{-1} k_u(x)` the mean of the function is :math:`m(x) + r^\top \mu` and its
    variance :math:`k(x, x) - r^\top r + \lVert C^\top r \rVert^2`.

    Attributes:
        factor: :math:`L`, the Cholesky factor of the inducing covariance, ``... x m x m``.
        mean: :math:`\mu` ``... x m``.
        root: :math:`C` ``... x m x m``.
    """

    factor: Tensor
    mean: Tensor
    root: Tensor

    def joint(self, kernel: Kernel, mean: Mean, points: Tensor, x: Tensor) -> MultivariateNormal:
        """Distribution of the function at ``x`` ``... x q x d``.

        Its covariance stays a sum of the prior's and a product of q x m matrices where there are
        many rows, so that its diagonal does not take a q x q matrix.
        """
        x, half, shape = self._half(kernel, points, x)
        means = mean(x) + self._unfolded(self.mean.unsqueeze(-2) @ half, shape).squeeze(-2).to(x)
        after = self.root @ (self.root.mT @ half) - half
        half, after = (self._unfolded(part, shape) for part in (half, after))
        if x.size(-2) <= _DENSE:
            single = x.size(-2) == 1  # a diagonal is far cheaper than many matrices of one entry
            dense = kernel(x, diag=True).unsqueeze(-1) if single else kernel(x).to_dense()
            change = half.mT @ after
            covariance = dense.double() + 0.5 * (change + change.mT)
            return MultivariateNormal(means, to_linear_operator(covariance.to(dense)))
        change = MatmulLinearOperator(half.mT.to(x), after.to(x))
        return MultivariateNormal(means, kernel(x) + change)

    def _half(self, kernel: Kernel, points: Tensor, x: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
        """Inputs with the whole batch shape, r as columns ``... x m x (t q)``, and the shape.

        Test batches ``t`` go into the columns: expanded to them, the factor would be copied.
        """
        own = self.factor.shape[:-2]
        shape = torch.broadcast_shapes(x.shape[:-2], own)
        x = x.expand(*shape, *x.shape[-2:])
        extra = len(shape) - len(own)
        flat = x
        if extra:
            flat = x.movedim(tuple(range(extra)), tuple(range(-2 - extra, -2)))
            flat = flat.flatten(-2 - extra, -2)  # ... x (t q) x d
        points = points.expand(*shape[extra:], *points.shape[-2:])
        columns = kernel(flat, points).to_dense().double().mT
        factor = self.factor.expand(*shape[extra:], *self.factor.shape[-2:])
        half = torch.linalg.solve_triangular(factor, columns, upper=False)
        return x, half, x.shape[:-1]

    def _unfolded(self, columns: Tensor, shape: torch.Size) -> Tensor:
        """Columns ``... x k x (t q)`` as ``t x ... x k x q``, for a shape ``t x ... x q``."""
        extra = len(shape) - columns.dim() + 1
        if extra <= 0:
            return columns
        columns = columns.unflatten(-1, (*shape[:extra], shape[-1]))
        return columns.movedim(tuple(range(-1 - extra, -1)), tuple(range(extra)))
