"""Titsias' variational bound and its optimal posterior, computed in chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator import to_linear_operator
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import DelayedMatrix, factorize_inducing
from gpytorch_nkn.models.base_gp import FEW_POINTS

__all__ = ["CollapsedGP", "Statistics", "WhitenedPosterior"]

# kernel values of a chunk: 16 MB, several times that in plain evaluation
_CHUNK_ENTRIES = 2_000_000


@dataclass
class WhitenedPosterior:
    r"""Distribution :math:`v \sim N(\mu, C C^\top)` where inducing values are :math:`u = L v`.

    With :math:`r = L^{-1} k_u(x)` the mean of the function is :math:`m(x) + r^\top \mu` and its
    variance :math:`k(x, x) - r^\top r + \lVert C^\top r \rVert^2`.
    """

    kernel: Kernel
    mean_module: Mean
    points: Tensor  # inducing points ... x m x d
    factor: Tensor  # L, the Cholesky factor of the inducing covariance, ... x m x m
    mean: Tensor  # mu, ... x m
    root: Tensor  # C, ... x m x m

    def joint(self, x: Tensor) -> MultivariateNormal:
        """Return the distribution of the function at ``x`` ``... x q x d``.

        For many points the covariance is lazy, so that its diagonal needs no q x q matrix.
        """
        x, half = self._half(x)
        means = self._unfolded(self.mean.unsqueeze(-2) @ half, x.shape[:-1]).squeeze(-2)
        means = self.mean_module(x) + means.to(x)
        after = self.root @ (self.root.mT @ half) - half
        half, after = (self._unfolded(columns, x.shape[:-1]) for columns in (half, after))

        def dense() -> Tensor:
            change = half.mT @ after
            prior = kernel_values(self.kernel, x, x)
            return (prior.double() + 0.5 * (change + change.mT)).to(prior)

        if 1 < x.size(-2) <= FEW_POINTS:
            return MultivariateNormal(means, to_linear_operator(dense()))
        prior = kernel_values(self.kernel, x, x, diag=True)
        variance = (prior.double() + (half * after).sum(-2)).to(prior)
        if x.size(-2) == 1:  # a diagonal is much cheaper than many 1 x 1 matrices
            return MultivariateNormal(means, to_linear_operator(variance.unsqueeze(-1)))
        return MultivariateNormal(means, DelayedMatrix(variance, dense))

    def mean_at(self, x: Tensor) -> Tensor:
        """Return means ``... x q`` of the function at ``x`` ``... x q x d``."""
        weights = torch.linalg.solve_triangular(self.factor.mT, self.mean.unsqueeze(-1), upper=True)
        between = _values(self.kernel, x, self.points).double()
        return self.mean_module(x) + (between @ weights).squeeze(-1).to(x)

    def learned_variance(self, x: Tensor) -> Tensor:
        """Return variances ``... x q`` of the function at ``x`` due to the inducing values."""
        x, half = self._half(x)
        return self._unfolded((self.root.mT @ half).square(), x.shape[:-1]).sum(-2).to(x)

    def _half(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs with the full batch shape, and r as columns ``... x m x (t q)``.

        Test batches ``t`` are columns, because expanding the factor to ``t`` would copy it.
        """
        batch = self.factor.shape[:-2]
        shape = torch.broadcast_shapes(x.shape[:-2], batch)
        x = x.expand(*shape, *x.shape[-2:])
        extra = len(shape) - len(batch)
        flat = x
        if extra:
            flat = x.movedim(tuple(range(extra)), tuple(range(-2 - extra, -2)))
            flat = flat.flatten(-2 - extra, -2)  # ... x (t q) x d
        points, factor = (
            t.expand(*shape[extra:], *t.shape[-2:]) for t in (self.points, self.factor)
        )
        columns = kernel_values(self.kernel, flat, points).double().mT
        return x, torch.linalg.solve_triangular(factor, columns, upper=False)

    def _unfolded(self, columns: Tensor, shape: torch.Size) -> Tensor:
        """Reshape ``... x k x (t q)`` to ``t x ... x k x q``, for a shape ``t x ... x q``."""
        extra = len(shape) - columns.dim() + 1
        if extra <= 0:
            return columns
        columns = columns.unflatten(-1, (*shape[:extra], shape[-1]))
        return columns.movedim(tuple(range(-1 - extra, -1)), tuple(range(extra)))


@dataclass
class Statistics:
    r"""Sufficient statistics of the data, for :math:`A = L^{-1} K_{uf} S^{-1/2}` and noise S."""

    factor: Tensor  # L, with L L' = K_uu, ... x m x m
    gram: Tensor  # A A'
    cross: Tensor  # A r, ... x m, for the residuals r of the targets times S^-1/2
    constant: Tensor  # twice the negative bound, ..., without the terms of gram and cross

    def solve(self) -> tuple[Tensor, Tensor]:
        r"""Return a root of :math:`B = I + A A^\top`, and :math:`B^{-1} A r`."""
        eye = torch.eye(self.gram.size(-1), dtype=self.gram.dtype, device=self.gram.device)
        factor, info = torch.linalg.cholesky_ex(eye + self.gram)
        if bool(info.any()) or not bool(factor.isfinite().all()):
            raise NotPSDError("The posterior precision of the inducing values is not finite.")
        return factor, torch.cholesky_solve(self.cross.unsqueeze(-1), factor).squeeze(-1)

    def bound(self) -> Tensor:
        """Return the lower bound ``...`` of the log marginal likelihood."""
        factor, solution = self.solve()
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        explained = (self.cross * solution).sum(-1) + self.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        return -0.5 * (self.constant + log_det - explained)


@dataclass
class CollapsedGP:
    r"""Sparse GP whose inducing values are integrated out.

    .. math:: \log p(y) \ge \log N(y \mid m, Q_{ff} + S)
        - \tfrac12 \operatorname{tr} S^{-1} (K_{ff} - Q_{ff}),
        \quad Q_{ff} = K_{fu} K_{uu}^{-1} K_{uf}

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes, equation 9.
    """

    kernel: Kernel  # with batch shape ...
    mean_module: Mean
    points: Tensor  # inducing points ... x m x d
    inputs: Callable[[], Tensor]  # ... x n x d, called once per pass; may depend on parameters
    targets: Tensor  # ... x n
    noise: Callable[[], Tensor]  # variances ... x 1, or known variances ... x n

    def bound(self) -> Tensor:
        """Return the lower bound ``...`` of the log marginal likelihood, in float64.

        This takes :math:`O(n m^2)` time, and memory for m x m matrices and a chunk of rows.
        """
        return self.statistics().bound()

    def posterior(self) -> WhitenedPosterior:
        """Return the optimal distribution of the inducing values, which attains the bound."""
        statistics = self.statistics()
        factor, mean = statistics.solve()
        eye = torch.eye(factor.size(-1), dtype=factor.dtype, device=factor.device)
        root = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).mT
        prior = self.kernel, self.mean_module, self.points
        return WhitenedPosterior(*prior, statistics.factor, mean, root)

    def statistics(self) -> Statistics:
        """Compute the statistics of the data.

        The result is differentiable; to save memory, the backward pass recomputes each chunk.
        """
        factor, _ = factorize_inducing(_values(self.kernel, self.points, self.points))
        size = factor.size(-1)
        shapes = (size, size), (size,), ()
        sums = [factor.new_zeros(factor.shape[:-2] + shape) for shape in shapes]
        inputs, noise = self.inputs(), self.noise()
        noise = noise.expand(*noise.shape[:-1], self.num_data)
        for rows in self.chunks():
            args = inputs[..., rows, :], factor, self.targets[..., rows], noise[..., rows]
            new: Any = checkpoint(self.sums, *args, use_reentrant=False, preserve_rng_state=False)
            sums = [total + term for total, term in zip(sums, new, strict=True)]
        return Statistics(factor, *sums)

    def sums(self, x: Tensor, factor: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        """Return sums of :class:`Statistics` for inputs ``... x c x d`` and targets ``... x c``."""
        between, prior = _values(self.kernel, x, self.points), self.kernel(x, diag=True)
        half = torch.linalg.solve_triangular(factor, between.mT.double(), upper=False)
        noise = noise.double()
        half = half / noise.sqrt().unsqueeze(-2)
        errors = (y - self.mean_module(x)).double() / noise.sqrt()
        terms = errors.square() + prior.double() / noise + noise.log() + math.log(2 * math.pi)
        return half @ half.mT, (half @ errors.unsqueeze(-1)).squeeze(-1), terms.sum(-1)

    def chunks(self) -> Iterator[slice]:
        """Yield chunks of rows whose kernel values fit into memory."""
        shape = torch.broadcast_shapes(self.points.shape[:-2], self.kernel.batch_shape)
        size = max(1, _CHUNK_ENTRIES // (self.points.size(-2) * max(1, shape.numel())))
        for start in range(0, self.num_data, size):
            yield slice(start, min(start + size, self.num_data))

    @property
    def num_data(self) -> int:
        """Number of rows."""
        return self.targets.size(-1)


def _values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """Evaluate the kernel, ``... x n x m``, at inputs with batch shapes that broadcast."""
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if x1 is x2:
        return kernel_values(kernel, x1, x1)
    return kernel_values(kernel, x1.expand(*shape, -1, -1), x2.expand(*shape, -1, -1))
