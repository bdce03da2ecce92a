"""Rows at the ends of a table, by which it is judged how well others are extrapolated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["end_rows"]

_DIRECTIONS = 3  # principal ones, at most
_SHARE = 0.1  # of the rows, at each end of a direction
_NEGLIGIBLE = 1e-6  # of the largest spread: what has less is a copy of other columns


def end_rows(x: Tensor, cat_dims: Sequence[int] = ()) -> list[Tensor]:
    """Rows at both ends of the first principal directions, for one direction after another.

    Args:
        x: Rows ``N x D``, standardised.
        cat_dims: Columns of codes, which have no ends; not all of them.

    Returns:
        Index vectors: a tenth of the rows (one at least) at each of both ends.
    """
    numbers = [place for place in range(x.size(-1)) if place not in set(cat_dims)]
    centred = x[:, numbers] - x[:, numbers].mean(0)
    spreads, directions = torch.linalg.eigh(centred.mT @ centred)
    kept = spreads > _NEGLIGIBLE * spreads[-1]
    count = max(1, int(_SHARE * len(x)))
    ends = []
    for direction in directions.mT[kept].flip(0)[:_DIRECTIONS]:
        order = (centred @ direction).argsort(stable=True)
        ends.append(torch.cat([order[:count], order[-count:]]))
    return ends
