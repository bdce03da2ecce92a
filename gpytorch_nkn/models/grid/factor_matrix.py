"""Covariance matrices over the coordinates of one dimension of a grid."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = ["factor_diagonal", "factor_matrix"]


def factor_matrix(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the covariance ``... x n x n`` of coordinates ``n x c``, differentiable.

    For a stationary kernel and one column of equal steps, the first row determines the matrix. The
    middle row is compared, because GPyTorch treats every kernel with a lengthscale as stationary.
    """
    n, eps, steps = x.size(0), torch.finfo(x.dtype).eps, x.diff(dim=0)
    regular = x.size(-1) == 1 and n > 2
    if kernel.is_stationary and regular and _is_small(steps - steps.mean(), 16 * eps * x):
        rows = kernel(x[[0, n // 2]], x).to_dense()
        index = torch.arange(n, device=x.device)
        lags = (index.unsqueeze(-1) - index).abs()
        difference = rows[..., 1, :] - rows[..., 0, lags[n // 2]]
        if _is_small(difference, 1e4 * eps * rows[..., 0, 0]):
            return rows[..., 0, :][..., lags]
    return kernel(x).to_dense()


def _is_small(difference: Tensor, scale: Tensor) -> bool:
    return bool(difference.detach().abs().max() <= scale.detach().abs().max())


def factor_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the variances ``... x n`` of coordinates ``n x c``."""
    # x has batch dimensions, or GPyTorch reads variances B x n as a matrix if B equals n
    shape: torch.Size = kernel.batch_shape
    return kernel(x[(None,) * len(shape)], diag=True)
