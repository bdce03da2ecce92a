"""Several models of one structure stacked into one model with a batch dimension."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from gpytorch.module import Module

from gpytorch_nkn.layers import Layer

__all__ = ["can_stack", "stack_models", "unstack_model"]

# Restarts x N^2 up to which a batch is faster than one restart after another (measured).
MAX_BATCHED_ENTRIES = 80_000


def can_stack(models: Sequence[ExactGP]) -> bool:
    """Whether a batch of these models pays and is possible.

    Possible means: one output, no input transform (which may hold parameters that know nothing
    of the batch), and equal structure.
    """
    if len(models) < 2:
        return False
    first = models[0]
    transformed = getattr(first, "input_transform", None) is not None
    if first.train_targets.dim() != 1 or transformed:
        return False
    if any(isinstance(m, Module) and m._added_loss_terms for m in first.modules()):
        return False
    shapes = [[(n, p.shape) for n, p in model.named_parameters()] for model in models]
    if any(other != shapes[0] for other in shapes[1:]):
        return False
    return len(models) * first.train_targets.numel() ** 2 <= MAX_BATCHED_ENTRIES


def stack_models(models: Sequence[ExactGP]) -> ExactGP:
    """Return a copy of the first model whose parameters lead with a restart dimension ``R``."""
    stacked = deepcopy(models[0])
    others = [dict(model.named_parameters()) for model in models]
    for name, parameter in stacked.named_parameters():
        parameter.data = torch.stack([other[name].data for other in others])
    for module in stacked.modules():
        if isinstance(module, Kernel | Layer):
            module._batch_shape = torch.Size([len(models)]) + module._batch_shape
        elif isinstance(module, Mean) and hasattr(module, "batch_shape"):
            module.batch_shape = torch.Size([len(models)]) + module.batch_shape
    return stacked


def unstack_model(stacked: ExactGP, models: Sequence[ExactGP]) -> None:
    """Write the parameters of each restart of ``stacked`` back into its model."""
    for name, parameter in stacked.named_parameters():
        for restart, model in enumerate(models):
            model.get_parameter(name).data.copy_(parameter.data[restart])
