"""The partitions that a Markov chain visited, kept with a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from gpytorch_nkn.models.partitions.partitions import Partition, co_occurrence, partition_of

__all__ = ["PartitionSample"]


class PartitionSample(nn.Module):
    """States of a chain of partitions, in order.

    Args:
        num_columns: Number of input columns, ``D``.

    Attributes:
        labels: Group numbers ``T x D`` of ``T`` states; none before sampling.
        num_steps: Steps that the chain has taken since its start, over all continuations.
    """

    labels: Tensor
    num_steps: Tensor

    def __init__(self, num_columns: int):
        super().__init__()
        self.register_buffer("labels", torch.zeros(0, num_columns, dtype=torch.long))
        self.register_buffer("num_steps", torch.tensor(0))

    def states(self) -> list[Partition]:
        """Return the states in order."""
        return [partition_of(labels) for labels in self.labels.tolist()]

    def counts(self) -> dict[Partition, int]:
        """Return how often each partition was visited, most often first."""
        return dict(Counter(self.states()).most_common())

    def co_occurrence(self) -> Tensor:
        """Return the share of states in which two columns are in one group, ``D x D``."""
        if len(self.labels) == 0:
            raise RuntimeError(
                "No partitions have been sampled: call fit_additive_partition_gp(model) first."
            )
        return co_occurrence(self.labels)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        labels = state_dict.get(f"{prefix}labels")
        if labels is not None and labels.shape[1:] == self.labels.shape[1:]:
            self.labels = self.labels.new_zeros(labels.shape)  # chains differ in their lengths
        super()._load_from_state_dict(state_dict, prefix, *args)
