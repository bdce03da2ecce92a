"""Assignment of start values."""

from __future__ import annotations

import torch
from gpytorch import Module
from torch import Tensor

from gpytorch_nkn.layers import Linear

__all__ = ["assign", "assign_weight"]


def assign(module: Module, name: str, value: Tensor) -> None:
    """Set a parameter to a value, clamped to the inside of its bounds."""
    constraint = module.constraint_for_parameter_name(f"raw_{name}")
    if constraint is None:
        module.initialize(**{name: value})
        return
    low, high = constraint.lower_bound.to(value), constraint.upper_bound.to(value)
    # Raw values are infinite at bounds. The margin is a thousandth of the width between two bounds,
    # a single positive lower bound, or a thousandth of another single bound.
    width = high - low
    inside = 1e-3 * torch.where(width.isfinite(), width, 0.0)
    above = torch.where(low.isfinite() & high.isinf(), low.maximum(-1e-3 * low), inside)
    below = torch.where(high.isfinite() & low.isinf(), 1e-3 * high.abs(), inside)
    setattr(module, name, value.clamp(low + above, high - below))


def assign_weight(layer: Linear, value: Tensor | torch.Generator) -> None:
    """Set a layer's weights, or draw weights and biases; frozen raw values do not change."""
    frozen = [
        (raw, raw.detach().clone())
        for raw in (layer.raw_weight, layer.raw_bias)
        if raw is not None and not raw.requires_grad
    ]
    if isinstance(value, torch.Generator):
        layer.reset_parameters(value)
    else:
        layer.weight = value
    for raw, saved in frozen:
        raw.data.copy_(saved)
