"""Covariance matrices over the coordinates of one dimension of a grid."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import (
    describe,
    is_compiled,
    program_matrix,
    unwrap_scales,
)
from gpytorch_nkn.linalg import to_dense

__all__ = ["factor_diagonal", "factor_matrix", "toeplitz"]


def factor_matrix(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the covariance ``... x n x n`` of coordinates ``n x c``, differentiable.

    For a stationary kernel and one column of equal steps the matrix is built from its first row.
    The middle row checks this, because GPyTorch calls every kernel with a lengthscale stationary.
    """
    if kernel.is_stationary and _is_regular(x):
        middle = x.size(0) // 2
        rows = kernel(x[[0, middle]], x).to_dense()
        lags = (torch.arange(x.size(0), device=x.device) - middle).abs()
        with torch.no_grad():
            difference = (rows[..., 1, :] - rows[..., 0, lags]).abs().amax()
            tolerance = 1e4 * torch.finfo(x.dtype).eps * rows[..., 0, 0].abs().amax()
        if bool(difference <= tolerance):
            return toeplitz(rows[..., 0, :])
    compiled = _compiled_matrix(kernel, x)
    return kernel(x).to_dense() if compiled is None else compiled


def factor_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """Compute the variances ``... x n`` of coordinates ``n x c``."""
    # GPyTorch mistakes B x n variances for a matrix where B is n, unless x has the batch, too.
    shape: torch.Size = kernel.batch_shape
    return kernel(x[(None,) * len(shape)], diag=True)


def toeplitz(row: Tensor) -> Tensor:
    """Return symmetric Toeplitz matrices ``... x n x n`` given their first rows ``... x n``."""
    n = row.size(-1)
    both = torch.cat([row.flip(-1), row[..., 1:]], -1)  # lags n - 1 to 0 to n - 1
    index = torch.arange(n - 1, 2 * n - 1, device=row.device)
    index = index.unsqueeze(0) - torch.arange(n, device=row.device).unsqueeze(-1)
    return both[..., index]


def _is_regular(coordinates: Tensor) -> bool:
    """Whether coordinates ``n x c`` are one column of equal steps."""
    if coordinates.size(-1) != 1 or coordinates.size(0) < 3:
        return False
    x = coordinates[:, 0]
    rounding = 16 * torch.finfo(x.dtype).eps * x.abs().max()
    return bool((x.diff() - (x[-1] - x[0]) / (len(x) - 1)).abs().max() <= rounding)


def _compiled_matrix(kernel: Kernel, x: Tensor) -> Tensor | None:
    """Compute a network's float32 matrix in float64 by compiled code; None if that cannot."""
    network, scales = unwrap_scales(kernel)
    if (
        x.dtype != torch.float32
        or x.device.type != "cpu"
        or type(network) is not NeuralKernelNetwork
        or kernel.active_dims is not None
        or network.active_dims is not None
        or not is_compiled()
    ):
        return None
    described = describe(network, x.size(-1), scales)
    theta = None if described is None else described[1].values()
    if described is None or theta is None or theta.dtype != x.dtype:
        return None
    matrix = program_matrix(described[0], theta.double(), (x.double(),))
    return None if matrix is None else to_dense(matrix).to(x.dtype)
