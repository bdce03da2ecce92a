"""Predictions of exact GPs in batches of any shape."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.utils.memoize import cached
from linear_operator import to_dense, to_linear_operator
from torch import Tensor

from gpytorch_nkn.linalg import DelayedMatrix

__all__ = ["BatchPredictionStrategy"]


class BatchPredictionStrategy(DefaultPredictionStrategy):
    """Prediction strategy for batches of GPs that computes equal entries once.

    Attributes:
        first: Indices ``K`` of the distinct batch entries; None if all are distinct.
        inverse: Index in ``first`` of each batch entry ``B``.
    """

    first: Tensor | None = None
    inverse: Tensor | None = None

    def find_duplicates(self, members: Tensor) -> None:
        """Find batch entries with equal data and equal kernel numbers ``members`` ``B``."""
        if members.dim() != 1:
            return
        numbers, inverse = members.unique(return_inverse=True)
        if len(numbers) == len(members):
            return
        indices = torch.arange(len(members), device=members.device)
        first = indices.new_full((len(numbers),), len(members))
        first = first.scatter_reduce(0, inverse, indices, "amin")
        parts = self.train_labels, self.train_prior_dist.mean, self.likelihood.noise
        if all(
            part.dim() == 2 and len(part) == len(members) and part.equal(part[first[inverse]])
            for part in parts
        ):
            self.first, self.inverse = first, inverse

    @property
    @cached(name="roots")
    def _roots(self) -> Tensor:
        """Roots ``K x n x n`` of the inverse covariances of the distinct entries."""
        return to_dense(self.covar_cache)[self.first]

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, Any]:
        """Return means ``... x B x q`` and covariances ``... x B x q x q``.

        Args:
            test_mean: Prior means ``... x B x q``.
            test_test_covar: Prior covariances ``... x K x q x q`` of the distinct or all entries.
            test_train_covar: Covariances with the training inputs, ``... x K x q x n``.
        """
        first, inverse = self.first, self.inverse
        if isinstance(test_test_covar, DelayedMatrix):  # GPyTorch evaluates it up to 4,096 rows
            covariance = self.exact_predictive_covar(test_test_covar, test_train_covar)
            return self.exact_predictive_mean(test_mean, test_train_covar), covariance
        if first is None or inverse is None or test_train_covar.size(-3) != len(first):
            return super().exact_prediction(test_mean, test_test_covar, test_train_covar)
        own, cross = to_dense(test_test_covar), to_dense(test_train_covar)
        if settings.fast_pred_var.off() or settings.skip_posterior_variances.on():
            every = (to_linear_operator(part.index_select(-3, inverse)) for part in (own, cross))
            return super().exact_prediction(test_mean, *every)
        means = (cross @ self.mean_cache[first].unsqueeze(-1))[..., 0]
        half = self._exact_predictive_covar_inv_quad_form_root(self._roots, cross)
        covariance = (own - half @ half.mT).index_select(-3, inverse)
        return test_mean + means.index_select(-2, inverse), to_linear_operator(covariance)

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
