"""Autograd function of values whose gradients are already known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import Function

__all__ = ["any_needed", "with_gradients"]

Map = Callable[[Tensor], Tensor]


def any_needed(inputs: Sequence[Tensor]) -> bool:
    """Return whether gradients are enabled and an input requires them."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in inputs)


def with_gradients(
    value: Tensor,
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    maps: Sequence[Map | None] | None = None,
) -> Tensor:
    """Return values ``...`` that are differentiable once; infinite values have zero gradients.

    Args:
        value: Values ``...``, computed without autograd.
        inputs: Inputs of the values; each broadcasts to ``... x E`` with its own ``E``.
        gradients: Gradients ``... x E`` with respect to each input; ``None`` if not needed.
        maps: For each input a linear map, applied to its gradient in the backward pass; ``None``
            for the identity.
    """
    return _Known.apply(value, gradients, maps or [None] * len(inputs), *inputs)


class _Known(Function):
    @staticmethod
    def forward(ctx, value: Tensor, gradients, maps, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(value, *gradients)
        ctx.maps, ctx.shapes = maps, [x.shape for x in inputs]
        return value.clone()

    @staticmethod
    def backward(ctx, *outer: Tensor):
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "This loss has no second derivatives; for an exact GP with a dense covariance, use "
                "gpytorch.mlls.ExactMarginalLogLikelihood."
            )
        value, *gradients = ctx.saved_tensors
        scale = torch.where(value.isfinite(), outer[0], 0.0)  # infinity times zero is NaN
        scaled = []
        for gradient, function, shape in zip(gradients, ctx.maps, ctx.shapes, strict=True):
            if gradient is not None:
                gradient = gradient * scale[(..., *[None] * (gradient.dim() - value.dim()))]
                gradient = gradient if function is None else function(gradient)
                gradient = gradient.sum_to_size(shape)
            scaled.append(gradient)
        return None, None, None, *scaled
