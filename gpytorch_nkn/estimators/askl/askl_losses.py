"""Losses of a batch and their gradients by the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["LIPSCHITZ", "LOSSES", "Loss"]

# Takes outputs M x K, which it overwrites by the gradient of the sum of the losses, and labels
# M x 1 or targets M x K; returns that sum.
Loss = Callable[[Tensor, Tensor], Tensor]


def _log_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the softmax."""
    logs = torch.log_softmax(outputs, 1)
    total = logs.gather(1, labels).sum().neg_()
    torch.exp(logs, out=outputs)
    outputs.scatter_add_(1, labels, torch.full_like(logs[:, :1], -1.0))
    return total


def _hinge_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Crammer and Singer's: one minus the lead of the right class, clamped at zero."""
    right = outputs.gather(1, labels)
    best, rival = outputs.scatter_(1, labels, -math.inf).max(1, keepdim=True)
    excess = best.sub_(right).add_(1.0)
    active = (excess > 0).to(outputs.dtype)
    outputs.zero_().scatter_(1, rival, active)
    outputs.scatter_(1, labels, active.neg_())
    return excess.clamp_min_(0.0).sum()


def _squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared distance, summed over the outputs."""
    outputs.sub_(targets)
    total = outputs.square().sum()
    outputs.mul_(2.0)
    return total


LOSSES: dict[str, Loss] = {
    "hinge": _hinge_loss,
    "log_loss": _log_loss,
    "squared_error": _squared_loss,
}

# Largest norm of a gradient: e' - e for the hinge loss, p - e for the log loss.
LIPSCHITZ = {"hinge": math.sqrt(2.0), "log_loss": math.sqrt(2.0), "squared_error": math.inf}
