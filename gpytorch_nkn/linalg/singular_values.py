"""Shrinkage of singular values, the proximal map of the trace norm."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["singular_value_threshold"]


@torch.no_grad()
def singular_value_threshold(matrix: Tensor, threshold: float | Tensor) -> Tensor:
    r"""Matrix with every singular value made smaller by a threshold, and zero below it.

    .. math::
        U \operatorname{diag}(\max(\sigma_i - t, 0)) V^\top =
        \operatorname{argmin}_W \tfrac12 \lVert W - Q\rVert_F^2 + t \lVert W\rVert_*,
        \qquad Q = U \operatorname{diag}(\sigma) V^\top

    The error is that of a singular value decomposition, a few units of rounding of the dtype
    times the largest singular value. A float32 matrix takes the eigenvalues of its product with
    its own transpose, on the small side, whose squared singular values are summed up and
    decomposed in float64: in float32 those below 3e-4 of the largest would be lost, and with them
    which ones lie below a small threshold. A float64 matrix is decomposed itself.

    Args:
        matrix: Finite matrices ``... x D x K``, float32 or float64; cheap where ``D`` or ``K`` is
            small, in closed form where it is 1.
        threshold: Non-negative number, or one for each matrix, of shape ``...``.

    Returns:
        Matrices ``... x D x K``, new ones, without gradients.

    Raises:
        TypeError: The matrix is neither float32 nor float64.
        ValueError: It has fewer than two dimensions, or a threshold is negative or no number.
        numpy.linalg.LinAlgError, torch.linalg.LinAlgError: A value is not finite (NaN passes
            through where a side is 1).

    Reference: Cai, Candes and Shen (2010), theorem 2.1.
    """
    if matrix.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"The matrix must be float32 or float64, got {matrix.dtype}.")
    if matrix.dim() < 2:
        raise ValueError(f"The matrix must have two dimensions or more, got {tuple(matrix.shape)}.")
    limit = np.asarray(threshold.cpu() if isinstance(threshold, Tensor) else threshold, np.float64)
    if not (limit >= 0).all():
        raise ValueError(f"The threshold must not be negative, got {threshold}.")
    if matrix.numel() == 0:
        return matrix.clone()
    rows, columns = matrix.shape[-2:]
    if rows == 1 or columns == 1:
        norm = torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True, dtype=torch.float64)
        parts = torch.from_numpy(limit).to(norm.device)[..., None, None] / norm
        return matrix * (1 - parts).clamp_min_(0).masked_fill_(norm == 0, 0.0).to(matrix.dtype)
    if matrix.dtype == torch.float64:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        values = values - torch.from_numpy(limit).to(values.device)[..., None]
        return (left * values.clamp_min_(0).unsqueeze(-2)) @ right
    double = matrix.double()
    if rows < columns:
        return _shrinkage(double @ double.mT, limit).to(matrix) @ matrix
    return matrix @ _shrinkage(double.mT @ double, limit).to(matrix)


def _shrinkage(squares: Tensor, limit: np.ndarray) -> Tensor:
    """What to multiply by, ``... x K x K``, from the products of all columns, on the host.

    (These matrices are so small that calls take the time: NumPy's take a third of torch's, and a
    device would wait.)
    """
    values, vectors = np.linalg.eigh(squares.cpu().numpy())
    values = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    shares = np.maximum(1 - limit[..., None] / values, 0)
    return torch.from_numpy((vectors * shares[..., None, :]) @ vectors.swapaxes(-1, -2))
