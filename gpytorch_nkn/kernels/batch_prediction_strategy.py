"""Predictions of exact GPs in batches of any shape."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.kernels.fantasy_noise import FantasyNoise
from gpytorch_nkn.linalg import DelayedMatrix

__all__ = ["BatchPredictionStrategy"]


class BatchPredictionStrategy(FantasyNoise, DefaultPredictionStrategy):
    """Prediction strategy for batches of GPs of any shape, fantasies included."""

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, Any]:
        """Return mean and covariance as in GPyTorch; covariances of many points are lazy."""
        if isinstance(test_test_covar, DelayedMatrix):  # GPyTorch evaluates it up to 4,096 rows
            covariance = self.exact_predictive_covar(test_test_covar, test_train_covar)
            return self.exact_predictive_mean(test_mean, test_train_covar), covariance
        return super().exact_prediction(test_mean, test_test_covar, test_train_covar)

    def exact_predictive_mean(self, test_mean: Tensor, test_train_covar: Any) -> Tensor:
        """Return the mean ``... x q`` for covariances ``... x q x n`` with the training inputs."""
        cache = self.mean_cache  # GPyTorch drops the middle dimension of f x 1 x b
        if cache.dim() != 4 or settings.observation_nan_policy.value() != "ignore":
            return super().exact_predictive_mean(test_mean, test_train_covar)
        return test_mean + (test_train_covar @ cache.unsqueeze(-1)).squeeze(-1)

    def _exact_predictive_covar_inv_quad_form_root(
        self, precomputed_cache: Any, test_train_covar: Any
    ) -> Any:
        """Multiply covariances ``... x q x n`` by a root ``b x n x n`` without copying the root."""
        if precomputed_cache.dim() != 3 or test_train_covar.dim() != 4:
            return super()._exact_predictive_covar_inv_quad_form_root(
                precomputed_cache, test_train_covar
            )
        root, cross = to_dense(precomputed_cache), to_dense(test_train_covar)
        return torch.einsum("tbqn,bnm->tbqm", cross, root)
