"""Titsias' variational bound and its optimal posterior, computed in chunks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from gpytorch_nkn.kernels.network import kernel_values
from gpytorch_nkn.linalg import DelayedMatrix, LowRankSums
from gpytorch_nkn.models.inducing_points import inducing_features, whitened_features

__all__ = ["CollapsedGP", "WhitenedPosterior"]


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
        """Return the distribution of the function at ``x`` ``... x q x d``, lazily evaluated."""
        values, omitted = self._features(x)
        means = torch.einsum("...qm,...m->...q", values, self.mean)
        is_batch = self.root.dim() > 2  # of latent functions l
        root = torch.einsum(
            "...lqm,lmk->...lqk" if is_batch else "...qm,mk->...qk", values, self.root
        )

        def dense() -> Tensor:
            prior = kernel_values(self.kernel, x, x)
            return (prior.double() + root @ root.mT - values @ values.mT).to(prior)

        variance = (omitted + root.square().sum(-1)).to(x)
        return MultivariateNormal(self.mean_module(x) + means.to(x), DelayedMatrix(variance, dense))

    def mean_at(self, x: Tensor) -> Tensor:
        """Return means ``q`` of the function at ``x`` ``q x d``, for a model without a batch."""
        weights = torch.linalg.solve_triangular(self.factor.mT, self.mean.unsqueeze(-1), upper=True)
        between = kernel_values(self.kernel, x, self.points).double()
        return self.mean_module(x) + (between @ weights).squeeze(-1).to(x)

    def learned_variance(self, x: Tensor) -> Tensor:
        """Return variances ``q`` at ``q x d`` due to the inducing values, without a batch."""
        return (self._features(x)[0] @ self.root).square().sum(-1).to(x)

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return whitened_features(self.kernel, self.points, self.factor, x)


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
        return self.sums()[0].log_density()

    def posterior(self) -> WhitenedPosterior:
        """Return the optimal distribution of the inducing values, which attains the bound."""
        sums, factor = self.sums()
        mean, root = sums.checked_solve()
        eye = torch.eye(root.size(-1), dtype=root.dtype, device=root.device)
        root = torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False).mT
        return WhitenedPosterior(self.kernel, self.mean_module, self.points, factor, mean, root)

    def sums(self) -> tuple[LowRankSums, Tensor]:
        """Return differentiable sums over the rows, and the Cholesky factor of ``K_uu``."""
        inputs, noise = self.inputs(), self.noise()
        features, factor = inducing_features(self.kernel, self.points)
        residual = self.targets - self.mean_module(inputs)
        noise = noise.expand(*noise.shape[:-1], self.num_data)
        return LowRankSums.over(features, inputs, residual, noise), factor

    @property
    def num_data(self) -> int:
        """Number of rows."""
        return self.targets.size(-1)
