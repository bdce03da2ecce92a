"""Predictions of exact GPs with any batch shape."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import DiagLinearOperator, MatmulLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from gpytorch_nkn.linalg import DelayedMatrix, solve_lower

__all__ = ["BatchPredictionStrategy", "noise_variances"]


def noise_variances(likelihood: Likelihood, targets: Tensor, inputs: Any) -> Tensor:
    """Return the likelihood's noise variances ``... x n``, for targets of this shape."""
    exact = MultivariateNormal(targets, DiagLinearOperator(torch.zeros_like(targets)))
    return likelihood(exact, inputs).variance.detach()


class BatchPredictionStrategy(DefaultPredictionStrategy):
    """Prediction strategy of exact GPs with any batch shape, also with fantasies."""

    likelihood: Any

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, Any]:
        """Return mean and covariance as in GPyTorch, but leave a delayed covariance lazy."""
        if isinstance(test_test_covar, DelayedMatrix):  # GPyTorch would evaluate it
            covariance = self.exact_predictive_covar(test_test_covar, test_train_covar)
            return self.exact_predictive_mean(test_mean, test_train_covar), covariance
        return super().exact_prediction(test_mean, test_test_covar, test_train_covar)

    def exact_predictive_mean(self, test_mean: Tensor, test_train_covar: Any) -> Tensor:
        """Return the mean ``... x q`` for covariances ``... x q x n`` with the training inputs."""
        cache = self.mean_cache  # GPyTorch would squeeze the middle dimension of a batch f x 1 x b
        if cache.dim() != 4 or settings.observation_nan_policy.value() != "ignore":
            return super().exact_predictive_mean(test_mean, test_train_covar)
        return test_mean + (test_train_covar @ cache.unsqueeze(-1)).squeeze(-1)

    def get_fantasy_strategy(
        self, inputs: Any, targets: Tensor, *full: Any, noise: Tensor | None = None
    ) -> Any:
        """Return a strategy with fantasies that uses ``noise`` even if the likelihood learns noise.

        The fantasy model then has a fixed-noise likelihood, whose attribute ``learned`` is the
        original one. GPyTorch ignores ``noise`` in this case.
        """
        likelihood = self.likelihood
        if noise is None and hasattr(likelihood, "learned"):
            noise = noise_variances(likelihood.learned, targets, inputs)
        options = {} if noise is None else {"noise": noise}
        if options and not isinstance(likelihood, FixedNoiseGaussianLikelihood):
            fixed = noise_variances(likelihood, self.train_prior_dist.mean, self.train_inputs)
            fixed_noise = FixedNoiseGaussianLikelihood(fixed, batch_shape=fixed.shape[:-1])
            self.likelihood = fixed_noise.eval()
            vars(self.likelihood)["learned"] = likelihood  # a submodule would be trained
        try:
            return super().get_fantasy_strategy(inputs, targets, *full, **options)
        finally:
            self.likelihood = likelihood

    def exact_predictive_covar(self, test_test_covar: Any, test_train_covar: Any) -> Any:
        """Return the covariance given the observed targets; GPyTorch conditions on all rows."""
        policy, missing = settings.observation_nan_policy.value(), self.train_labels.isnan()
        if policy == "ignore" or settings.skip_posterior_variances.on() or not missing.any():
            return super().exact_predictive_covar(test_test_covar, test_train_covar)
        if policy == "mask":  # a row missing in one batch entry is dropped in all
            missing = missing.view(-1, missing.size(-1)).any(0)
        covariance = self.lik_train_train_covar.to_dense()
        covariance = covariance.masked_fill(missing.unsqueeze(-1) | missing.unsqueeze(-2), 0.0)
        factor = psd_safe_cholesky(covariance + torch.diag_embed(missing.to(covariance)))
        cross = to_dense(test_train_covar).masked_fill(missing.unsqueeze(-2), 0.0)
        white = solve_lower(factor, cross.mT)
        return to_linear_operator(test_test_covar) + MatmulLinearOperator(white.mT, -white)

    def _exact_predictive_covar_inv_quad_form_root(
        self, precomputed_cache: Any, test_train_covar: Any
    ) -> Any:
        """Multiply covariances ``t x b x q x n`` by a root ``b x n x n``, which is not expanded."""
        if precomputed_cache.dim() != 3 or test_train_covar.dim() != 4:
            return super()._exact_predictive_covar_inv_quad_form_root(
                precomputed_cache, test_train_covar
            )
        root, cross = to_dense(precomputed_cache), to_dense(test_train_covar)
        return torch.einsum("tbqn,bnm->tbqm", cross, root)
