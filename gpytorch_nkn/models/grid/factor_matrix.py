"""Covariance matrices over the coordinates of one dimension of a grid."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import describe, is_compiled, program_matrix, unwrap_scales
from gpytorch_nkn.linalg import to_dense

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
    compiled = _compiled_matrix(kernel, x)
    return kernel(x).to_dense() if compiled is None else compiled


def _is_small(difference: Tensor, scale: Tensor) -> bool:
    return bool(difference.detach().abs().max() <= scale.detach().abs().max())


def factor_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the variances ``... x n`` of coordinates ``n x c``."""
    # x has batch dimensions, or GPyTorch reads variances B x n as a matrix if B equals n
    shape: torch.Size = kernel.batch_shape
    return kernel(x[(None,) * len(shape)], diag=True)


def _compiled_matrix(kernel: Kernel, x: Tensor) -> Tensor | None:
    """Compute a network's float32 matrix in float64 by compiled code; None if unsupported."""
    network, scales = unwrap_scales(kernel)
    ordinary = type(network) is NeuralKernelNetwork and x.device.type == "cpu" and is_compiled()
    if not ordinary or x.dtype != torch.float32:
        return None
    if kernel.active_dims is not None or network.active_dims is not None:
        return None
    described = describe(network, x.size(-1), scales)
    theta = None if described is None else described[1].values()
    if described is None or theta is None:
        return None
    matrix = program_matrix(described[0], theta.double(), (x.double(),))
    return None if matrix is None else to_dense(matrix).to(x.dtype)
