"""Means and variances of a BoTorch model at very many points."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

__all__ = ["predict_in_chunks"]

_CHUNK_ENTRIES = 4_000_000  # covariances with inducing points: 32 MB, several times that in all


@torch.no_grad()
def predict_in_chunks(
    model: Model, X: Tensor, num_points: int, observation_noise: bool, chunk_size: int | None
) -> tuple[Tensor, Tensor]:
    """Mean and variance ``... x q x m`` at inputs ``... x q x d``, a chunk of rows at a time.

    Raises:
        ValueError: ``chunk_size`` is below 1.
    """
    if chunk_size is None:
        chunk_size = max(1, _CHUNK_ENTRIES // num_points)
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
    model.eval()
    means, variances = [], []
    for part in X.split(chunk_size, dim=-2):
        # q x ... x 1 x d, a batch of single points: there are no covariances then
        single = part.movedim(-2, 0).unsqueeze(-2)
        posterior: Any = model.posterior(single, observation_noise=observation_noise)
        means.append(posterior.mean.squeeze(-2).movedim(0, -2))
        variances.append(posterior.variance.squeeze(-2).movedim(0, -2))
    return torch.cat(means, -2), torch.cat(variances, -2)
