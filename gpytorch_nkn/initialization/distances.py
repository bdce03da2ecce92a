"""Typical distances between inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_nkn.linalg import check_tensors

__all__ = ["median_distances"]

_MAX_POINTS = 1000  # points whose pairs determine a median accurately enough


def median_distances(x: Tensor) -> Tensor:
    """Return the median distance ``D`` between two inputs in each column, in units of the input.

    Pairs of equal values do not count; a constant column has distance 1. Of more than 1,000 points,
    a deterministic subset of each sorted column is used.

    Args:
        x: Inputs ``N x D``.

    Raises:
        ValueError: ``x`` is not a finite matrix.

    Reference: Sun et al. (2018), section 5 (start values from the median of the data).
    """
    check_tensors(x=x)
    if x.dim() != 2 or not bool(x.isfinite().all()):
        raise ValueError(f"x must be a finite N x D matrix, got shape {tuple(x.shape)}.")
    medians = []
    for column in x.detach().unbind(-1):
        values = column.sort().values
        if values.numel() > _MAX_POINTS:
            picks = torch.linspace(
                0, values.numel() - 1, _MAX_POINTS, dtype=torch.float64, device=x.device
            )
            values = values[picks.round().long()]
        distances = torch.pdist(values.unsqueeze(-1))
        distances = distances[distances > 0]
        medians.append(distances.median() if distances.numel() else values.new_ones(()))
    return torch.stack(medians)
