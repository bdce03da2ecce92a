"""Weights of a network of convex combinations from which structure is to be learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn._devices import on_cpu, uniform
from gpytorch_nkn.layers import Layer, Linear, Product

__all__ = ["OUTPUT_WEIGHTS", "convex_weights", "set_convex_weights"]

# Total weights of the hidden units, the one-dimensional and the joint primitives in the output; the
# rest is constant. What the prior on the raw weights is centred on, and two places to start from.
# Where there are no joint primitives, hidden units have their part.
OUTPUT_WEIGHTS = {
    "center": (0.2, 0.45, 0.3),
    "additive": (0.2, 0.7, 0.05),
    "joint": (0.2, 0.1, 0.65),
}
_CONSTANT = 0.05  # weight of the constant beside a mixture, and of the mixture beside a constant
_BESIDE = 1 / 3  # of the constant beside each of the mixtures that a product is of


@on_cpu()
def convex_weights(
    layers: Sequence[Layer],
    num_single: int,
    num_joint: int,
    totals: tuple[float, float, float],
    generator: torch.Generator | None = None,
) -> list[Tensor | None]:
    """Weights ``O x C`` of each Linear layer; what is missing to one in a row is the bias.

    Of the units that a product multiplies, the first mixes all that comes in and the others are
    nearly constant: the product is the mixture at first, and grows into a product where a
    constant gives way. Without joint primitives, most of the output being that of hidden units, it
    is one from the beginning. Weights of a mixture are equal, or drawn between half and one and a
    half times their mean.

    Args:
        layers: Layers of a network with a skip connection.
        num_single: Number of one-dimensional primitives, which come first.
        num_joint: Number of primitives over several columns.
        totals: Weights in the output, see ``OUTPUT_WEIGHTS``.
        generator: Draws the weights.
    """
    found: list[Tensor | None] = []
    hidden_total, single_total, joint_total = totals
    if not num_joint:
        hidden_total, joint_total = hidden_total + joint_total, 0.0
    multiplied = not num_joint and hidden_total > single_total
    for number, layer in enumerate(layers):
        if not isinstance(layer, Linear):
            found.append(None)
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
            if hidden > 1:  # of one unit it would change the share of the constant
                weight[:, :hidden] *= jitter[:, :hidden]
        elif multiplied:
            weight = (1 - _BESIDE) * jitter / jitter.sum(-1, keepdim=True)
        else:
            weight = (1 - _CONSTANT) * jitter / jitter.sum(-1, keepdim=True)
            after = layers[number + 1]
            group = after.in_features // after.out_features if isinstance(after, Product) else 1
            constant = torch.arange(layer.out_features) % group != 0
            weight[constant] *= _CONSTANT
        total = weight.sum(-1, keepdim=True)
        found.append(weight / (total / (1 - 1e-3)).clamp_min(1.0))  # some constant everywhere
    return found


def set_convex_weights(layers: Sequence[Layer], weights: Sequence[Tensor | None]) -> None:
    """Give layers the weights of :func:`convex_weights`."""
    for layer, weight in zip(layers, weights, strict=True):
        if isinstance(layer, Linear) and weight is not None:
            layer.weight = weight
