"""Shapes of batches."""

from __future__ import annotations

import torch

__all__ = ["broadcast_batch_shapes"]


def broadcast_batch_shapes(*shapes: torch.Size) -> torch.Size:
    """``torch.broadcast_shapes``, which takes longer than evaluating a small network.

    Raises:
        RuntimeError: The shapes do not broadcast.
    """
    distinct = set(filter(None, shapes))
    if not distinct:
        return torch.Size()
    return distinct.pop() if len(distinct) == 1 else torch.broadcast_shapes(*distinct)
