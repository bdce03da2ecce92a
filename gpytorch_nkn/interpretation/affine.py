"""Offsets and scales of a model's input and outcome transforms."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.models import ExactGP
from torch import Tensor

__all__ = ["affine_inputs", "affine_outcome", "raw_inputs"]


def raw_inputs(model: ExactGP) -> Tensor:
    """Return untransformed training inputs in float64, and set the model to eval mode."""
    model.train()  # BoTorch's models hold untransformed inputs in train mode
    assert model.train_inputs is not None
    inputs = model.train_inputs[0].detach().double().clone()
    model.eval()
    return inputs


def affine_inputs(model: ExactGP, input_dim: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return offset and scale ``D`` that undo the input transform, and whether it is affine."""
    plain = np.zeros(input_dim), np.ones(input_dim), False
    if getattr(model, "input_transform", None) is None:
        return *plain[:2], True
    raw = raw_inputs(model)
    if raw.size(-1) != input_dim:
        return plain
    raw = raw.reshape(-1, input_dim)
    first, last = raw.amin(0), raw.amax(0)
    last = torch.where(last > first, last, first + 1)
    points = torch.stack([first, (first + last) / 2, last])
    transform = deepcopy(model.input_transform).double().preprocess_transform
    low, middle, high = transform(points).reshape(-1, 3, input_dim)[0]
    slope = (high - low) / (last - first)
    curvature = (middle - (low + high) / 2).abs()
    if bool((slope == 0).any()) or bool((curvature > 1e-6 * (high - low).abs()).any()):
        return plain
    offset = first - low / slope
    undone = offset + transform(raw).reshape(-1, *raw.shape)[0] / slope
    if not bool(((undone - raw).abs() <= 1e-6 * (last - first)).all()):  # columns are mixed
        return plain
    return offset.cpu().numpy(), (1 / slope).cpu().numpy(), True


def affine_outcome(model: Any, X: Tensor | None = None) -> tuple[Any, Any]:
    """Return offset and scale of the targets, as numbers or arrays with one entry per output.

    For a multitask model, ``X`` has raw inputs ``T x d``, one point per task.
    """
    transform = getattr(model, "outcome_transform", None)
    transform = getattr(model, "common_transform", transform)  # shared by all members
    if transform is None:
        return (0.0, 1.0) if X is None else (np.zeros(len(X)), np.ones(len(X)))
    # float64, because a large offset would hide the scale
    points = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64, device=model.train_targets.device)
    if X is None:
        outputs = model.num_outputs
        values = transform.untransform(points.unsqueeze(-1).expand(3, outputs))[0]  # ... x 3 x m
        low, middle, high = (values.squeeze(-1) if outputs == 1 else values.mT).unbind(-1)
    else:
        columns = [transform.untransform(p.expand(len(X), 1), X=X)[0].squeeze(-1) for p in points]
        low, middle, high = columns
    if not torch.allclose(high - middle, middle - low, rtol=1e-6, atol=0.0):
        raise ValueError(
            f"The outcome transform {type(transform).__name__} is not affine, so components add up "
            "only on the scale of the transformed targets. Transform the targets yourself "
            "(train_Y.log() for Log()), and pass a model without that transform."
        )
    offset, scale = low.double().cpu().numpy(), (middle - low).double().cpu().numpy()
    return (float(offset), float(scale)) if offset.ndim == 0 else (offset, scale)
