"""Products of groups of kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_nkn.layers.layer import Layer

__all__ = ["Product"]


class Product(Layer):
    r"""Products of neighbouring groups of the incoming kernels.

    .. math:: k_o = \prod_{i = o g}^{(o + 1) g - 1} k_i, \qquad g = C / O

    The entry-wise product of positive semi-definite matrices is positive semi-definite (Schur),
    for complex Hermitian ones too. The layer has no parameters.

    Args:
        in_features: Number of units that come in, ``C``.
        out_features: Number of units that go out, ``O``; it must divide ``C``.

    Raises:
        ValueError: ``out_features`` does not divide ``in_features``.

    Reference: Sun et al. (2018), section 3.1; groups of two as in its figure 2 and appendix J.
    """

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features)
        if in_features % out_features:
            raise ValueError(
                "Product multiplies groups of equal size: out_features must divide in_features, "
                f"got in_features={in_features} and out_features={out_features}."
            )

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to ``... x O x E``."""
        groups = values.unflatten(-2, (self.out_features, -1))  # ... x O x g x E
        product, *others = torch.unbind(groups, -2)
        # One by one rather than torch.prod, whose gradient at zeros has no second derivative.
        for factor in others:
            product = product * factor
        return product
