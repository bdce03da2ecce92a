"""Start weights of networks of convex combinations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn._devices import on_cpu, uniform
from gpytorch_nkn.layers import Layer, Linear, Product

__all__ = ["convex_weights"]

# Total output weights of hidden units, of one-dimensional primitives and of joint primitives; the
# constant has the remainder. "center" is the centre of the prior on raw weights, and the others are
# start values. Without joint primitives, their weight is added to the hidden units.
_OUTPUT_WEIGHTS = {
    "center": (0.2, 0.45, 0.3),
    "additive": (0.2, 0.7, 0.05),
    "joint": (0.2, 0.1, 0.65),
}
_MINOR = 0.05  # weight of the constant in a mixture of inputs, and of inputs in a constant unit
_PRODUCT_CONSTANT = 1 / 3  # weight of the constant in each factor of a product of mixtures


@on_cpu()
def convex_weights(
    layers: Sequence[Layer],
    num_single: int,
    num_joint: int,
    near: str,
    generator: torch.Generator | None = None,
) -> list[tuple[Linear, Tensor]]:
    """Return Linear layers with weights ``O x C``; a unit's bias is one minus their sum.

    The first factor of each product mixes all inputs, and the others are nearly constant, so that
    the product starts as a mixture. Without joint primitives, and with most output weight on hidden
    units, all factors are mixtures.

    Args:
        layers: Layers of a network with a skip connection.
        num_single, num_joint: Numbers of one-dimensional primitives, which come first, and of
            others.
        near: Structure ``"additive"`` or ``"joint"``, or ``"center"``, which is between them.
        generator: Draws weights between 0.5 and 1.5 times their mean; ``None`` for equal weights.
    """
    result = []
    hidden_total, single_total, joint_total = _OUTPUT_WEIGHTS[near]
    if not num_joint:
        hidden_total, joint_total = hidden_total + joint_total, 0.0
    all_mixtures = not num_joint and hidden_total > single_total
    for number, layer in enumerate(layers):
        if not isinstance(layer, Linear):
            continue
        shape = (layer.out_features, layer.in_features)
        jitter = torch.ones(shape, dtype=torch.float64)
        if generator is not None:
            jitter = 0.5 + uniform(shape, generator)
        if number == len(layers) - 1:
            hidden = layer.in_features - num_single - num_joint
            counts = (hidden, num_single, num_joint)
            parts = zip((hidden_total, single_total, joint_total), counts, strict=True)
            row = [total / count for total, count in parts for _ in range(count)]
            weight = torch.tensor(row, dtype=torch.float64).expand(shape).clone()
            if hidden > 1:  # for a single unit, jitter would change the constant
                weight[:, :hidden] *= jitter[:, :hidden]
        elif all_mixtures:
            weight = (1 - _PRODUCT_CONSTANT) * jitter / jitter.sum(-1, keepdim=True)
        else:
            weight = (1 - _MINOR) * jitter / jitter.sum(-1, keepdim=True)
            after = layers[number + 1]
            group = after.in_features // after.out_features if isinstance(after, Product) else 1
            is_constant = torch.arange(layer.out_features) % group != 0
            weight[is_constant] *= _MINOR
        total = weight.sum(-1, keepdim=True)
        weight = weight / (total / (1 - 1e-3)).clamp_min(1.0)  # leaves a positive bias
        result.append((layer, weight))
    return result
