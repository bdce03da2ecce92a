"""Shrinkage of singular values, the proximal map of the trace norm."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["singular_value_threshold"]


@torch.no_grad()
def singular_value_threshold(matrix: Tensor, threshold: float | Tensor) -> Tensor:
    r"""Shrink every singular value by a threshold, at most to zero.

    .. math::
        U \operatorname{diag}(\max(\sigma_i - t, 0)) V^\top =
        \operatorname{argmin}_W \tfrac12 \lVert W - Q\rVert_F^2 + t \lVert W\rVert_*,
        \qquad Q = U \operatorname{diag}(\sigma) V^\top

    The smaller Gram matrix of float32 matrices is decomposed in float64, because float32 would lose
    singular values below 3e-4 of the largest.

    Args:
        matrix: Finite matrices ``... x D x K``, float32 or float64.
        threshold: Non-negative threshold, or one per matrix, ``...``.

    Returns:
        New matrices ``... x D x K``, without gradients.

    Raises:
        ValueError: A threshold is negative or NaN.

    Reference: Cai, Candes and Shen (2010), theorem 2.1.
    """
    limit = np.asarray(threshold.cpu() if isinstance(threshold, Tensor) else threshold, np.float64)
    if not (limit >= 0).all():
        raise ValueError(f"threshold must not be negative or NaN, got {threshold}.")
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
    """Return shrinkage factors ``... x K x K`` of Gram matrices; NumPy is faster than torch."""
    values, vectors = np.linalg.eigh(squares.cpu().numpy())
    values = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    factors = np.maximum(1 - limit[..., None] / values, 0)
    return torch.from_numpy((vectors * factors[..., None, :]) @ vectors.swapaxes(-1, -2))
