"""Exact GPs of a subset of rows, and densities of held-out rows."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor

from gpytorch_nkn.fit import Rows
from gpytorch_nkn.kernels import feature_function, residual_map
from gpytorch_nkn.linalg import ExactPosterior, low_rank_posterior
from gpytorch_nkn.models.common import PartsGP

__all__ = ["RowsGP"]


class RowsGP(PartsGP):
    """Exact GP of a subset of rows that shares kernel, mean and likelihood with a model."""

    def __init__(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood):
        super().__init__(rows.x, rows.y, kernel, mean, rows.likelihood(likelihood))
        self.rows = rows

    def noise_of(self, rows: Rows) -> Tensor:
        """Return noise variances ``... x n`` of rows."""
        if rows.noise is not None:
            return rows.noise + self.likelihood.second_noise
        assert isinstance(self.likelihood, GaussianLikelihood)
        return self.likelihood.noise.expand(rows.y.shape)

    @torch.no_grad()
    def log_density(self, rows: Rows) -> Tensor:
        """Return log densities ``... x v`` of single held-out rows."""
        features = feature_function(self.covar_module)
        center = self.mean_module(rows.x)
        if features is None or features(rows.x[..., :1, :]).size(-1) >= len(self.rows):
            mean, variance = self._dense(rows)
        else:
            residual = self.rows.y - self.mean_module(self.rows.x)
            noise = self.noise_of(self.rows)
            weights, factor = low_rank_posterior(features, self.rows.x, residual, noise)
            phi = features(rows.x).double()
            mean = (phi @ weights.unsqueeze(-1)).squeeze(-1)
            white = torch.linalg.solve_triangular(factor, phi.mT, upper=False)
            variance = white.square().sum(-2)
        omitted = None if features is None else residual_map(self.covar_module, diag=True)
        if omitted is not None:
            variance = variance + omitted(rows.x)
        variance = variance + self.noise_of(rows)
        error = rows.y - center - mean
        return -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))

    def _dense(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return posterior minus prior means, and variances ``... x v``."""
        own = self.covar_module(self.rows.x).to_dense()
        between = self.covar_module(rows.x, self.rows.x).to_dense()
        prior = self.covar_module(rows.x, diag=True)
        noisy = own + torch.diag_embed(self.noise_of(self.rows))
        posterior = ExactPosterior(noisy, self.rows.y - self.mean_module(self.rows.x))
        return posterior.mean(between), prior - posterior.reduction(between)
