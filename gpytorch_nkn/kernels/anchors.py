"""Centres of clusters of inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["kmeans_anchors"]

_MAX_ROWS = 20_000  # a random subset of more rows stands for all
_ITERATIONS = 25  # later ones hardly move the centres


def kmeans_anchors(x: Tensor, num_anchors: int, *, seed: int = 0) -> Tensor:
    """Centres of clusters of rows, columns scaled to unit variance.

    Args:
        x: Inputs ``N x D``.
        num_anchors: Number of centres; all distinct rows, if these are not more.
        seed: Determines every draw; the global random state is left alone.

    Returns:
        Centres ``M x D``, of the type and on the device of ``x``.

    Raises:
        ValueError: ``x`` is no finite matrix with rows, or the number of centres is below one.
    """
    if x.dim() != 2 or 0 in x.shape or not bool(x.isfinite().all()):
        raise ValueError(f"Inputs must be a finite matrix N x D, got shape {tuple(x.shape)}.")
    if num_anchors < 1:
        raise ValueError(f"At least one anchor is needed, got num_anchors={num_anchors}.")
    from sklearn.cluster import KMeans  # takes a second to import

    rows, counts = np.unique(x.detach().double().cpu().numpy(), axis=0, return_counts=True)
    if len(rows) > num_anchors:
        limit = max(_MAX_ROWS, num_anchors)
        if len(rows) > limit:
            kept = np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False))
            rows, counts = rows[kept], counts[kept]
        location = np.average(rows, axis=0, weights=counts)
        scale = np.sqrt(np.average((rows - location) ** 2, axis=0, weights=counts))
        # rounding leaves constant columns a scale of their own
        scale[scale <= 1e-9 * np.abs(rows).max(axis=0)] = 1.0
        means = KMeans(num_anchors, n_init=1, max_iter=_ITERATIONS, random_state=seed)
        means.fit((rows - location) / scale, sample_weight=counts)
        rows = means.cluster_centers_ * scale + location
    return torch.from_numpy(rows).to(x)
