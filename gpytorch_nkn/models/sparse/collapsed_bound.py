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
from linear_operator.operators import MatmulLinearOperator
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import factorize_inducing

__all__ = ["CollapsedGP", "Statistics", "WhitenedPosterior"]

_DENSE = 512  # largest number of points with a dense joint covariance
# kernel values of a chunk: 16 MB, several times that in plain evaluation
_CHUNK_ENTRIES = 2_000_000


@dataclass
class WhitenedPosterior:
    r"""Distribution :math:`v \sim N(\mu, C C^\top)` where inducing values are :math:`u = L v`.

    With :math:`r = L^{-1} k_u(x)` the mean of the function is :math:`m(x) + r^\top \mu` and its
    variance :math:`k(x, x) - r^\top r + \lVert C^\top r \rVert^2`.
    """

    factor: Tensor  # L, the Cholesky factor of the inducing covariance, ... x m x m
    mean: Tensor  # mu, ... x m
    root: Tensor  # C, ... x m x m

    def joint(self, kernel: Kernel, mean: Mean, points: Tensor, x: Tensor) -> MultivariateNormal:
        """Return the distribution of the function at ``x`` ``... x q x d``.

        For many points the covariance is lazy, so that its diagonal needs no q x q matrix.
        """
        x, half, shape = self._half(kernel, points, x)
        means = mean(x) + self._unfolded(self.mean.unsqueeze(-2) @ half, shape).squeeze(-2).to(x)
        after = self.root @ (self.root.mT @ half) - half
        half, after = (self._unfolded(part, shape) for part in (half, after))
        if x.size(-2) <= _DENSE:
            single = x.size(-2) == 1  # a diagonal is much cheaper than many 1 x 1 matrices
            dense = kernel_values(kernel, x, x, diag=single)
            dense = dense.unsqueeze(-1) if single else dense
            change = half.mT @ after
            covariance = dense.double() + 0.5 * (change + change.mT)
            return MultivariateNormal(means, to_linear_operator(covariance.to(dense)))
        change = MatmulLinearOperator(half.mT.to(x), after.to(x))
        return MultivariateNormal(means, kernel(x) + change)

    def mean_at(self, kernel: Kernel, mean: Mean, points: Tensor, x: Tensor) -> Tensor:
        """Return means ``... x q`` of the function at ``x`` ``... x q x d``."""
        weights = torch.linalg.solve_triangular(self.factor.mT, self.mean.unsqueeze(-1), upper=True)
        return mean(x) + (_values(kernel, x, points).double() @ weights).squeeze(-1).to(x)

    def _half(self, kernel: Kernel, points: Tensor, x: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
        """Return inputs with the full batch shape, r as columns ``... x m x (t q)``, the shape.

        Test batches ``t`` are columns, because expanding the factor to ``t`` would copy it.
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
        columns = kernel_values(kernel, flat, points).double().mT
        factor = self.factor.expand(*shape[extra:], *self.factor.shape[-2:])
        half = torch.linalg.solve_triangular(factor, columns, upper=False)
        return x, half, x.shape[:-1]

    def _unfolded(self, columns: Tensor, shape: torch.Size) -> Tensor:
        """Reshape ``... x k x (t q)`` to ``t x ... x k x q``, for a shape ``t x ... x q``."""
        extra = len(shape) - columns.dim() + 1
        if extra <= 0:
            return columns
        columns = columns.unflatten(-1, (*shape[:extra], shape[-1]))
        return columns.movedim(tuple(range(-1 - extra, -1)), tuple(range(extra)))


@dataclass
class Statistics:
    r"""Sufficient statistics of the data, for :math:`A = L^{-1} K_{uf}`.

    Rows with known noise are divided by its standard deviation.
    """

    factor: Tensor  # L, with L L' = K_uu, ... x m x m
    gram: Tensor  # A A'
    cross: Tensor  # A r, ... x m, for the residuals r of the targets
    residual: Tensor  # r' r, ...
    variance: Tensor  # sum of the rows' prior variances ...
    log_noise: Tensor  # sum ... of the logarithms of known noise variances
    num_data: int  # number of rows

    def solve(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return a root of :math:`B = I + A A^\top / \sigma^2`, and :math:`B^{-1} A r`."""
        eye = torch.eye(self.gram.size(-1), dtype=self.gram.dtype, device=self.gram.device)
        factor, info = torch.linalg.cholesky_ex(eye + self.gram / noise[..., None, None])
        if bool(info.any()) or not bool(factor.isfinite().all()):
            raise NotPSDError("The posterior precision of the inducing values is not finite.")
        return factor, torch.cholesky_solve(self.cross.unsqueeze(-1), factor).squeeze(-1)

    def bound(self, noise: Tensor) -> Tensor:
        """Return the lower bound ``...`` of the log marginal likelihood, for noise ``...``."""
        factor, solution = self.solve(noise)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        fit = self.residual - (self.cross * solution).sum(-1) / noise
        rest = self.variance - self.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        constant = self.num_data * (math.log(2 * math.pi) + noise.log()) + self.log_noise
        return -0.5 * (constant + log_det + fit / noise + rest / noise)

    def posterior(self, noise: Tensor) -> WhitenedPosterior:
        """Return the optimal distribution of the inducing values, which attains the bound."""
        factor, solution = self.solve(noise)
        eye = torch.eye(factor.size(-1), dtype=factor.dtype, device=factor.device)
        root = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).mT
        return WhitenedPosterior(self.factor, solution / noise.unsqueeze(-1), root)


@dataclass
class CollapsedGP:
    r"""Sparse GP whose inducing values are integrated out.

    .. math:: \log p(y) \ge \log N(y \mid m, Q_{ff} + \sigma^2 I)
        - \frac{1}{2 \sigma^2} \operatorname{tr}(K_{ff} - Q_{ff}),
        \quad Q_{ff} = K_{fu} K_{uu}^{-1} K_{uf}

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes, equation 9.
    """

    kernel: Kernel  # with batch shape ...
    mean: Mean
    points: Tensor  # inducing points ... x m x d
    inputs: Callable[[], Tensor]  # ... x n x d, called once per pass; may depend on parameters
    targets: Tensor  # ... x n
    noise: Callable[[], Tensor]  # variances ... x 1, or known variances ... x n

    def bound(self) -> Tensor:
        """Return the lower bound ``...`` of the log marginal likelihood, in float64.

        This takes :math:`O(n m^2)` time, and memory for m x m matrices and a chunk of rows.
        """
        return self.statistics().bound(self.noise_variance())

    def statistics(self) -> Statistics:
        """Compute the statistics of the data.

        The result is differentiable; to save memory, the backward pass recomputes each chunk.

        Raises:
            NotPSDError: The covariance of the inducing points is not positive definite.
        """
        factor, _ = factorize_inducing(_values(self.kernel, self.points, self.points))
        size = factor.size(-1)
        sums = [factor.new_zeros(factor.shape[:-2] + shape) for shape in ((size, size), (size,))]
        sums += [factor.new_zeros(factor.shape[:-2])] * 3
        inputs, values = self.inputs(), (self.targets, *self.known_noise())
        for rows in self.chunks(self.num_data):
            own = inputs[..., rows, :], factor, *(one[..., rows] for one in values)
            part: Any = checkpoint(self.sums, *own, use_reentrant=False, preserve_rng_state=False)
            sums = [total + one for total, one in zip(sums, part, strict=True)]
        gram, cross, residual, variance, log_noise = sums
        return Statistics(factor, gram, cross, residual, variance, log_noise, self.num_data)

    def sums(
        self, x: Tensor, factor: Tensor, y: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return sums of :class:`Statistics` for inputs ``... x c x d`` and targets ``... x c``."""
        between, prior = _values(self.kernel, x, self.points), self.kernel(x, diag=True)
        half = torch.linalg.solve_triangular(factor, between.mT.double(), upper=False)
        errors, prior = (y - self.mean(x)).double(), prior.double()
        log_noise = torch.zeros_like(errors[..., 0])
        if noise is not None:
            weight = noise.double().reciprocal()
            half, errors = half * weight.sqrt().unsqueeze(-2), errors * weight.sqrt()
            prior, log_noise = prior * weight, -weight.log().sum(-1)
        cross = (half @ errors.unsqueeze(-1)).squeeze(-1)
        return half @ half.mT, cross, errors.square().sum(-1), prior.sum(-1), log_noise

    def chunks(self, num_rows: int) -> Iterator[slice]:
        """Yield chunks of rows whose kernel values fit into memory."""
        shape = torch.broadcast_shapes(self.points.shape[:-2], self.kernel.batch_shape)
        size = max(1, _CHUNK_ENTRIES // (self.points.size(-2) * max(1, shape.numel())))
        for start in range(0, num_rows, size):
            yield slice(start, min(start + size, num_rows))

    @property
    def num_data(self) -> int:
        """Number of rows."""
        return self.targets.size(-1)

    def noise_variance(self) -> Tensor:
        """Return noise variances ``...`` in float64; ones if known for each row."""
        noise = self.noise()
        if self.known_noise():
            noise = torch.ones_like(noise[..., :1])
        return noise.squeeze(-1).double()

    def known_noise(self) -> tuple[Tensor, ...]:
        """Return a tuple with the known noise variances ``... x n``; empty if noise is inferred."""
        noise = self.noise()
        return (noise.detach(),) if noise.size(-1) > 1 else ()


def _values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """Evaluate the kernel, ``... x n x m``, at inputs with batch shapes that broadcast."""
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if x1 is x2:
        return kernel_values(kernel, x1, x1)
    return kernel_values(kernel, x1.expand(*shape, -1, -1), x2.expand(*shape, -1, -1))
