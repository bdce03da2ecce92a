"""Base class of kernels with finitely many features."""

from __future__ import annotations

from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import (
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.distances import are_same
from gpytorch_nkn.kernels.feature_prediction_strategy import FeaturePredictionStrategy
from gpytorch_nkn.linalg import Features

__all__ = ["FeatureKernel", "lazy_covariance"]


def lazy_covariance(kernel: Kernel, x: Tensor) -> LazyEvaluatedKernelTensor:
    """Return the lazy prior covariance at inputs ``... x N x D``.

    GPyTorch's setting ``lazily_evaluate_kernels`` is not used, because it acts on all threads.
    """
    if (columns := kernel.active_dims) is not None:
        x = x.index_select(-1, columns)
    return LazyEvaluatedKernelTensor(x, x, kernel=kernel)


class FeatureKernel(BatchKernel):
    r"""Kernel :math:`k(x, x') = \phi(x)^\top \phi(x')`, valid as an inner product.

    The kernel returns low-rank linear operators, so that an exact GP trains, predicts and samples
    in feature space.

    Attributes:
        feature_dim: Number of features.
        has_residual: Whether the prior has a residual covariance in addition to the features.
    """

    feature_dim: int
    has_residual = False

    def features(self, x: Tensor) -> Tensor:
        """Return features ``... x N x feature_dim`` whose inner products are the kernel."""
        if self.active_dims is not None:
            x = x.index_select(-1, self.active_dims)
        return self._features(x)

    def low_rank_map(self) -> Features:
        """Return a function from inputs to features and residual variances, if any.

        The function is valid for the current hyperparameters, and caches what its calls share.
        """
        return lambda x: (self._features(x), None)

    def prior_values(self, x: Tensor) -> Tensor:
        """Return the prior covariance ``... x N x N``, including the residual covariance."""
        features = self._features(x)
        return features @ features.mT

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor | LinearOperator:
        """Return a linear operator ``... x N x M`` (a tensor ``... x N`` with ``diag``)."""
        left = self._features(x1)
        same = are_same(x1, x2)
        right = left if same else self._features(x2)
        if diag:
            return (left * right).sum(-1)
        if not same:
            return MatmulLinearOperator(left, right.mT)
        if left.size(-1) < left.size(-2):
            return LowRankRootLinearOperator(left)
        return RootLinearOperator(left)

    def prediction_strategy(self, train_inputs, train_prior_dist, train_labels, likelihood):
        """Return a strategy that predicts in feature space."""
        if self.has_residual and type(train_prior_dist) is MultivariateNormal:
            # BoTorch's noiseless fantasies use a SingleTaskGP, which omits the residual covariance
            raise NotImplementedError(
                "LogNoisyExpectedImprovement and NoisyExpectedImprovement do not support models "
                "with inducing points: use qLogNoisyExpectedImprovement (qLogNEI)."
            )
        return FeaturePredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _features(self, x: Tensor) -> Tensor:
        raise NotImplementedError
