"""Predictions of a batch of GPs of which many are the same."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.utils.memoize import cached
from linear_operator import to_dense, to_linear_operator
from torch import Tensor

from gpytorch_nkn.kernels import BatchPredictionStrategy

__all__ = ["StructurePredictionStrategy"]


class StructurePredictionStrategy(BatchPredictionStrategy):
    """That of GPyTorch, which predicts once for all entries of the batch that are the same.

    Attributes:
        first: Places ``K`` of entries that differ; None where all are predicted by themselves.
            Where it is set, covariances that come in may be of these entries only.
        inverse: Which of them each entry ``B`` of the batch equals.
    """

    first: Tensor | None = None
    inverse: Tensor | None = None

    def look_for_copies(self, members: Tensor) -> None:
        """Find entries of the batch with the same kernel, numbered by ``members`` ``B``, and data.

        Noise and means may have been set apart by hand, and targets by fantasies.
        """
        if members.dim() != 1:
            return
        numbers, inverse = members.unique(return_inverse=True)
        if len(numbers) == len(members):
            return
        places = torch.arange(len(members), device=members.device)
        first = places.new_full((len(numbers),), len(members))
        first = first.scatter_reduce(0, inverse, places, "amin")
        parts = self.train_labels, self.train_prior_dist.mean, self.likelihood.noise
        if all(
            part.dim() == 2 and len(part) == len(members) and part.equal(part[first[inverse]])
            for part in parts
        ):
            self.first, self.inverse = first, inverse

    @property
    @cached(name="roots")
    def _roots(self) -> Tensor:
        """Roots ``K x n x n`` of the inverses of entries that differ; asked for often, a copy."""
        return to_dense(self.covar_cache)[self.first]

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, Any]:
        """Means ``... x B x q`` and covariances ``... x B x q x q``.

        Args:
            test_mean: Prior means ``... x B x q``.
            test_test_covar: Prior covariances ``... x K x q x q``.
            test_train_covar: Those with the training inputs, ``... x K x q x n``.
        """
        first, inverse = self.first, self.inverse
        if first is None or inverse is None or test_train_covar.size(-3) != len(first):
            return super().exact_prediction(test_mean, test_test_covar, test_train_covar)
        cross = to_dense(test_train_covar)
        alpha = self.mean_cache[first].unsqueeze(-1)
        mean = test_mean + (cross @ alpha)[..., 0].index_select(-2, inverse)
        if settings.fast_pred_var.off() or settings.skip_posterior_variances.on():
            every = (to_dense(part).index_select(-3, inverse) for part in (test_test_covar, cross))
            return mean, self.exact_predictive_covar(*map(to_linear_operator, every))
        root = self._roots
        if cross.size(-2) > 1:
            half = cross @ root
        else:  # where a product of broadcast batches would copy the root for each of many points
            half = torch.einsum("...kqn,knm->...kqm", cross, root)
        covariance = to_dense(test_test_covar) - half @ half.mT
        return mean, to_linear_operator(covariance.index_select(-3, inverse))
