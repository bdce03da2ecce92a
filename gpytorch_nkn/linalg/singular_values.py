"""Shrinkage of singular values, the proximal map of the trace norm."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["singular_value_threshold"]


@torch.no_grad()
def singular_value_threshold(matrix: Tensor, threshold: float) -> Tensor:
    r"""Shrink every singular value of matrices ``... x D x K`` by a threshold, at most to zero.

    .. math::
        U \operatorname{diag}(\max(\sigma_i - t, 0)) V^\top =
        \operatorname{argmin}_W \tfrac12 \lVert W - Q\rVert_F^2 + t \lVert W\rVert_*,
        \qquad Q = U \operatorname{diag}(\sigma) V^\top

    The smaller Gram matrix is decomposed in float64, because float32 would lose singular values
    below 3e-4 of the largest. Returns a new matrix of the same dtype.

    Raises:
        ValueError: The threshold is negative or NaN.

    Reference: Cai, Candes and Shen (2010), theorem 2.1.
    """
    if not threshold >= 0:
        raise ValueError(f"threshold must not be negative or NaN, got {threshold}.")
    if matrix.size(-2) < matrix.size(-1):
        return singular_value_threshold(matrix.mT, threshold).mT
    double = matrix.double()
    # NumPy is faster than torch for small matrices
    values, vectors = np.linalg.eigh((double.mT @ double).cpu().numpy())
    values = np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    factors = np.maximum(1 - threshold / values, 0)[..., None, :]
    return matrix @ torch.from_numpy((vectors * factors) @ vectors.swapaxes(-2, -1)).to(matrix)
