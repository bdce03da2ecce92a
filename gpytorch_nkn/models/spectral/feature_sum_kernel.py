"""Sums of kernels with finitely many features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels import FeatureKernel
from gpytorch_nkn.linalg import Features

__all__ = ["FeatureSumKernel"]


class FeatureSumKernel(FeatureKernel):
    """Sum of kernels with finitely many features, which are concatenated."""

    kernels: Any

    def __init__(self, *kernels: FeatureKernel):
        shapes = [kernel.batch_shape for kernel in kernels]
        super().__init__(batch_shape=torch.broadcast_shapes(*shapes))
        self.kernels = nn.ModuleList(kernels)

    @property
    def feature_dim(self) -> int:  # type: ignore[override]
        """Number of features of all kernels."""
        return sum(kernel.feature_dim for kernel in self.kernels)

    @property
    def has_residual(self) -> bool:  # type: ignore[override]
        """Whether a kernel has a residual covariance."""
        return any(kernel.has_residual for kernel in self.kernels)

    def low_rank_map(self) -> Features:
        """Return a function from inputs to features and residual variances."""
        maps = [kernel.low_rank_map() for kernel in self.kernels]

        def features(x: Tensor) -> tuple[Tensor, Tensor | None]:
            values, omitted = zip(*(feature_map(x) for feature_map in maps), strict=True)
            shape = torch.broadcast_shapes(*(value.shape[:-1] for value in values))
            rests = [rest for rest in omitted if rest is not None]
            together = torch.cat([value.expand(*shape, -1) for value in values], -1)
            return together, sum(rests[1:], rests[0]) if rests else None

        return features

    def prior_values(self, x: Tensor) -> Tensor:
        """Return the sum of the prior covariances; see :class:`FeatureKernel`."""
        return sum(kernel.prior_values(x) for kernel in self.kernels)

    def _features(self, x: Tensor) -> Tensor:
        return self.low_rank_map()(x)[0].to(x)
