"""Sums of kernels of finitely many features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.kernels import FeatureKernel

__all__ = ["FeatureSumKernel"]


class FeatureSumKernel(FeatureKernel):
    """Sum of kernels of finitely many features, with concatenated features."""

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

    @property
    def is_stationary(self) -> bool:
        """Whether all kernels are stationary."""
        return all(kernel.is_stationary for kernel in self.kernels)

    def residual(self, x: Tensor, *, diag: bool) -> Tensor:
        """Return the sum of residual covariances; see :class:`FeatureKernel`."""
        rests = [kernel.residual(x, diag=diag) for kernel in self.kernels if kernel.has_residual]
        return sum(rests[1:], rests[0])

    def _features(self, x: Tensor) -> Tensor:
        values = [kernel._features(x) for kernel in self.kernels]
        shape = torch.broadcast_shapes(*(value.shape[:-1] for value in values))
        return torch.cat([value.expand(*shape, -1) for value in values], -1)
