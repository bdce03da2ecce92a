"""Sums of kernels of finitely many features, one of which may be at inducing points."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.kernels import FeatureKernel
from gpytorch_nkn.linalg import factorize_inducing

__all__ = ["FeatureSumKernel", "InducingFeatureKernel"]


class InducingFeatureKernel(FeatureKernel):
    r"""Features :math:`L^{-1} k(Z, x)` of a kernel at inducing points, :math:`k(Z, Z) = L L^\top`.

    Args:
        base_kernel: The kernel.
        inducing_points: Z, ``... x m x d``, which stay.

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes.
    """

    leaves_rest = True
    inducing_points: Tensor

    def __init__(self, base_kernel: Kernel, inducing_points: Tensor):
        super().__init__(batch_shape=base_kernel.batch_shape)
        self.base_kernel = base_kernel
        # A parameter, although it stays: a buffer would not say where its batch ends.
        points = inducing_points.expand(*self.batch_shape, *inducing_points.shape[-2:]).clone()
        self.register_parameter("inducing_points", nn.Parameter(points, requires_grad=False))

    @property
    def feature_dim(self) -> int:  # type: ignore[override]
        """Number of inducing points."""
        return self.inducing_points.size(-2)

    @property
    def is_stationary(self) -> bool:
        """False: an approximation depends on the place."""
        return False

    def rest(self, x: Tensor, *, diag: bool) -> Tensor:
        """The prior covariance less that of the features; see :class:`FeatureKernel`."""
        features = self._features(x, False)
        if diag:
            left = self.base_kernel(x, diag=True) - features.square().sum(-1)
            return left.clamp_min(0.0)
        return self.base_kernel(x).to_dense() - features @ features.mT

    def _features(self, x: Tensor, last_dim_is_batch: bool) -> Tensor:
        if last_dim_is_batch:
            raise NotImplementedError("last_dim_is_batch=True is not supported.")
        points = self.inducing_points
        shape = torch.broadcast_shapes(x.shape[:-2], points.shape[:-2])
        between = self.base_kernel(points.expand(*shape, -1, -1), x.expand(*shape, -1, -1))
        factor, _ = factorize_inducing(self.base_kernel(points).to_dense())
        values = torch.linalg.solve_triangular(factor, between.to_dense().double(), upper=False)
        return values.mT.to(x)


class FeatureSumKernel(FeatureKernel):
    """The sum of kernels of finitely many features, which are put side by side.

    Args:
        *kernels: The kernels.
    """

    def __init__(self, *kernels: FeatureKernel):
        shapes = [kernel.batch_shape for kernel in kernels]
        super().__init__(batch_shape=torch.broadcast_shapes(*shapes))
        self.kernels = nn.ModuleList(kernels)

    @property
    def feature_dim(self) -> int:  # type: ignore[override]
        """Number of features of all."""
        return sum(kernel.feature_dim for kernel in self._parts)

    @property
    def leaves_rest(self) -> bool:  # type: ignore[override]
        """Whether one of them does."""
        return any(kernel.leaves_rest for kernel in self._parts)

    @property
    def is_stationary(self) -> bool:
        """Whether all are."""
        return all(kernel.is_stationary for kernel in self._parts)

    def rest(self, x: Tensor, *, diag: bool) -> Tensor:
        """Sum of what they leave out; see :class:`FeatureKernel`."""
        rests = [kernel.rest(x, diag=diag) for kernel in self._parts if kernel.leaves_rest]
        total = rests[0]
        for rest in rests[1:]:
            total = total + rest
        return total

    def _features(self, x: Tensor, last_dim_is_batch: bool) -> Tensor:
        values = [kernel._features(x, last_dim_is_batch) for kernel in self._parts]
        shape = torch.broadcast_shapes(*(value.shape[:-1] for value in values))
        return torch.cat([value.expand(*shape, -1) for value in values], -1)

    @property
    def _parts(self) -> Sequence[FeatureKernel]:
        return list(self.kernels)  # type: ignore[arg-type]
