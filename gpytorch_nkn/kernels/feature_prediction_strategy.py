"""Predictions of exact GPs in the feature space of their kernel."""

from __future__ import annotations

from collections.abc import Callable
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
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator, MatmulLinearOperator, RootLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from gpytorch_nkn.kernels.batch_prediction_strategy import BatchPredictionStrategy
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.linalg import low_rank_posterior

__all__ = ["FeaturePredictionStrategy", "feature_function", "residual_map"]


def feature_function(kernel: Kernel) -> Callable[[Tensor], Tensor] | None:
    """Return the features of a :class:`FeatureKernel`, scaled or not; None for other kernels."""
    inner, scales = unwrap_scales(kernel)
    if not hasattr(inner, "feature_dim"):
        return None

    def features(x: Tensor) -> Tensor:
        values = inner.features(x, selected=True)
        for scale in scales:
            values = values * scale.outputscale.sqrt()[..., None, None]
        return values

    return features


def residual_map(kernel: Kernel, *, diag: bool) -> Callable[[Tensor], Tensor] | None:
    """Return a function that computes residual covariances (``diag``: variances), or ``None``."""
    inner, scales = unwrap_scales(kernel)
    if not inner.has_residual:
        return None

    def residual(x: Tensor) -> Tensor:
        values = inner.residual(x, diag=diag)
        for scale in scales:
            factor = scale.outputscale
            values = values * (factor.unsqueeze(-1) if diag else factor[..., None, None])
        return values

    return residual


class FeaturePredictionStrategy(BatchPredictionStrategy, LinearPredictionStrategy):
    """Prediction from features, as GPyTorch does for linear kernels, in chunks of rows.

    Without ``gpytorch.settings.detach_test_caches``, and for fantasies whose data require
    gradients, all rows are evaluated at once. Missing observations
    (``gpytorch.settings.observation_nan_policy``) affect neither means nor variances.
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

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Any, test_train_covar: Any
    ) -> tuple[Tensor, LinearOperator]:
        """Return mean and covariance, including the residual covariance."""
        mean, covariance = super().exact_prediction(test_mean, test_test_covar, test_train_covar)
        if isinstance(test_test_covar, LazyEvaluatedKernelTensor):
            omitted = residual_map(test_test_covar.kernel, diag=False)
            if omitted is not None:
                covariance = covariance + to_linear_operator(omitted(test_test_covar.x1))
        small = covariance.size(-1) <= settings.max_cholesky_size.value()
        if small and isinstance(covariance, RootLinearOperator):
            # BoTorch assumes that the root of an operator is square
            root = covariance.root.to_dense()
            covariance = MatmulLinearOperator(root, root.mT)
        return mean, covariance

    @property
    @cached(name="mean_covar_cache")
    def mean_covar_cache(self) -> tuple[Tensor, Tensor]:
        """Posterior mean ``... x P x 1`` of the weights, and Cholesky factor of their precision."""
        operator: Any = self.train_prior_dist.lazy_covariance_matrix
        assert isinstance(operator, LazyEvaluatedKernelTensor)
        features = feature_function(operator.kernel)
        assert features is not None
        residual = self.train_labels - self.train_prior_dist.mean
        noise = self.lik_train_train_covar._diag_tensor.diagonal(dim1=-1, dim2=-2)
        if settings.observation_nan_policy.value() != "ignore":
            missing = self.train_labels.isnan()
            residual = residual.masked_fill(missing, 0.0)
            noise = noise.masked_fill(missing, torch.inf)
        # fantasies read this cache, and their data may need gradients for the candidates
        fantasies = operator.x1.requires_grad or self.train_labels.requires_grad
        if settings.detach_test_caches.on() and not fantasies:
            mean, factor = low_rank_posterior(features, operator.x1, residual, noise)
            return mean.unsqueeze(-1).to(residual), factor.to(residual)
        phi = features(operator.x1) / noise.sqrt().unsqueeze(-1)
        eye = torch.eye(phi.size(-1), dtype=phi.dtype, device=phi.device)
        factor = psd_safe_cholesky(eye + phi.mT @ phi)
        weighted = phi.mT @ (residual / noise.sqrt()).unsqueeze(-1)
        return torch.cholesky_solve(weighted, factor), factor
