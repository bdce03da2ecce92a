"""Predictions of exact GPs in the feature space of their kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.likelihoods import Likelihood
from gpytorch.models.exact_prediction_strategies import (
    DefaultPredictionStrategy,
    LinearPredictionStrategy,
)
from gpytorch.utils.memoize import cached
from linear_operator.operators import LinearOperator, MatmulLinearOperator, RootLinearOperator
from torch import Tensor

from gpytorch_nkn.kernels.batch_prediction_strategy import BatchPredictionStrategy
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.linalg import DelayedMatrix, Features, low_rank_posterior, solve_lower

__all__ = ["FeaturePredictionStrategy", "feature_function"]


def feature_function(kernel: Kernel) -> Features | None:
    """Return the map of a :class:`FeatureKernel`, scaled or not; None for other kernels."""
    inner, scales = unwrap_scales(kernel)
    if not hasattr(inner, "feature_dim"):
        return None
    feature_map = inner.low_rank_map()

    def features(x: Tensor) -> tuple[Tensor, Tensor | None]:
        values, omitted = feature_map(x)
        for scale in scales:
            factor = scale.outputscale
            values = values * factor.sqrt()[..., None, None]
            omitted = None if omitted is None else omitted * factor.unsqueeze(-1)
        return values, omitted

    return features


class FeaturePredictionStrategy(BatchPredictionStrategy, LinearPredictionStrategy):
    """Prediction in feature space, as in GPyTorch for linear kernels, in chunks of rows.

    Caches have gradients if ``gpytorch.settings.detach_test_caches`` is off, or if the data of a
    fantasy require gradients. Missing observations (``gpytorch.settings.observation_nan_policy``)
    affect neither means nor variances.
    """

    def __init__(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
    ):
        # skip the parent's constructor, which evaluates all features
        DefaultPredictionStrategy.__init__(
            self, train_inputs, train_prior_dist, train_labels, likelihood
        )
        if self.lik_train_train_covar is train_prior_dist.lazy_covariance_matrix:  # without noise
            raise ValueError(
                "Known noise variances must have the shape of the training targets, "
                f"{tuple(train_labels.shape)}, got {tuple(self.likelihood.noise.shape)}."
            )

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, LinearOperator]:
        """Return mean and covariance, including the residual covariance."""
        if not isinstance(test_test_covar, LazyEvaluatedKernelTensor):
            return super().exact_prediction(test_mean, test_test_covar, test_train_covar)
        kernel, x = test_test_covar.kernel, test_test_covar.x1
        values, omitted = self.features(x)
        values = values.to(test_mean)
        mean_cache, factor = self.mean_covar_cache
        root = solve_lower(factor, values.mT).mT
        # BoTorch assumes that the root of a small operator is square
        is_small = root.size(-2) <= settings.max_cholesky_size.value()
        covariance = MatmulLinearOperator(root, root.mT) if is_small else RootLinearOperator(root)
        if omitted is not None:
            inner, scales = unwrap_scales(kernel)
            scale = math.prod(factor.outputscale[..., None, None] for factor in scales)

            def residual() -> Tensor:
                return scale * inner.prior_values(x) - values @ values.mT

            covariance = covariance + DelayedMatrix(omitted.to(test_mean), residual)
        return test_mean + (values @ mean_cache).squeeze(-1), covariance

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memoize_cache": {}}  # caches refer to the original kernel

    @property
    def _records_gradients(self) -> torch.set_grad_enabled:
        # fantasies read the caches, and their data may need gradients for the candidates
        operator: Any = self.train_prior_dist.lazy_covariance_matrix
        fantasies = operator.x1.requires_grad or self.train_labels.requires_grad
        differentiable = settings.detach_test_caches.off() or fantasies
        return torch.set_grad_enabled(differentiable and torch.is_grad_enabled())

    @property
    @cached(name="features")
    def features(self) -> Features:
        """Map of the kernel, whose factorisation at inducing points all predictions share."""
        operator: Any = self.train_prior_dist.lazy_covariance_matrix
        assert isinstance(operator, LazyEvaluatedKernelTensor)
        with self._records_gradients:
            features = feature_function(operator.kernel)
        assert features is not None
        return features

    @property
    @cached(name="mean_covar_cache")
    def mean_covar_cache(self) -> tuple[Tensor, Tensor]:
        """Posterior mean ``... x P x 1`` of the weights, and Cholesky factor of their precision."""
        operator: Any = self.train_prior_dist.lazy_covariance_matrix
        residual = self.train_labels - self.train_prior_dist.mean
        noise = self.lik_train_train_covar._diag_tensor.diagonal(dim1=-1, dim2=-2)
        if settings.observation_nan_policy.value() != "ignore":
            missing = self.train_labels.isnan()
            residual = residual.masked_fill(missing, 0.0)
            noise = noise.masked_fill(missing, torch.inf)
        with self._records_gradients:
            mean, factor = low_rank_posterior(self.features, operator.x1, residual, noise)
        return mean.unsqueeze(-1).to(residual), factor.to(residual)
