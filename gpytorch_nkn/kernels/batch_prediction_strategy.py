"""Predictions of exact GPs in batches of any shape."""

from __future__ import annotations

from typing import Any

from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from torch import Tensor

__all__ = ["BatchPredictionStrategy"]


class BatchPredictionStrategy(DefaultPredictionStrategy):
    """Means of batches ``f x 1 x b``, whose middle dimension GPyTorch drops."""

    def exact_predictive_mean(self, test_mean: Tensor, test_train_covar: Any) -> Tensor:
        """Mean ``... x q`` for covariances ``... x q x n`` with the training inputs."""
        cache = self.mean_cache
        if cache.dim() != 4 or settings.observation_nan_policy.value() != "ignore":
            return super().exact_predictive_mean(test_mean, test_train_covar)
        return test_mean + (test_train_covar @ cache.unsqueeze(-1)).squeeze(-1)
