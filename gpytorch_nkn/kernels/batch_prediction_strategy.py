"""Predictions of exact GPs in batches of any shape."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import to_dense
from torch import Tensor

__all__ = ["BatchPredictionStrategy"]


class BatchPredictionStrategy(DefaultPredictionStrategy):
    """GPyTorch's for batches of GPs, also ``f x 1 x b`` of them.

    Attributes:
        frozen: The model's kernels with the values of their parameters, once asked for.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.frozen: dict[int, Any] = {}

    def exact_predictive_mean(self, test_mean: Tensor, test_train_covar: Any) -> Tensor:
        """Mean ``... x q`` for covariances ``... x q x n`` with the training inputs."""
        cache = self.mean_cache  # GPyTorch drops the middle dimension of f x 1 x b
        if cache.dim() != 4 or settings.observation_nan_policy.value() != "ignore":
            return super().exact_predictive_mean(test_mean, test_train_covar)
        return test_mean + (test_train_covar @ cache.unsqueeze(-1)).squeeze(-1)

    def _exact_predictive_covar_inv_quad_form_root(
        self, precomputed_cache: Any, test_train_covar: Any
    ) -> Any:
        """Covariances ``... x q x n`` times a root ``b x n x n`` of the training precision.

        A product of broadcast batches would copy the root for each of many single points.
        """
        if precomputed_cache.dim() != 3 or test_train_covar.dim() != 4:
            return super()._exact_predictive_covar_inv_quad_form_root(
                precomputed_cache, test_train_covar
            )
        root, cross = to_dense(precomputed_cache), to_dense(test_train_covar)
        return torch.einsum("tbqn,bnm->tbqm", cross, root)
