"""Products of groups of kernels."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn.layers.layer import Layer

__all__ = ["Product"]


class Product(Layer):
    r"""Products of adjacent groups of input kernels.

    .. math:: k_o = \prod_{i = G_o}^{G_o + g_o - 1} k_i, \qquad G_o = \sum_{p < o} g_p

    The elementwise product of positive semi-definite matrices, real or complex, is positive
    semi-definite (Schur). The layer has no parameters.

    Args:
        in_features: Number of input units, ``C``.
        out_features: Number of output units, ``O``.
        groups: Sizes :math:`g_o` of the groups, ``O`` positive integers with sum ``C``. ``None``
            for equal sizes, where ``O`` must divide ``C``.

    Raises:
        TypeError: A width or the size of a group is not an integer.
        ValueError: ``out_features`` does not divide ``in_features``, or the number or sum of
            ``groups`` is wrong.

    Reference: Sun et al. (2018), section 3.1, figure 2 and appendix J (groups of two). Groups of
    different sizes, for sums of given products, are not in the paper.
    """

    def __init__(self, in_features: int, out_features: int, *, groups: Sequence[int] | None = None):
        super().__init__(in_features, out_features)
        if groups is None and in_features % out_features:
            raise ValueError(
                "out_features must divide in_features unless groups are given, got "
                f"in_features={in_features} and out_features={out_features}."
            )
        if groups is None:
            groups = (in_features // out_features,) * out_features
        try:
            self.groups = tuple(operator.index(size) for size in groups)
        except TypeError:
            raise TypeError(f"groups must be integers, got {groups!r}.") from None
        wrong = len(self.groups) != out_features or sum(self.groups) != in_features
        if wrong or min(self.groups) < 1:
            raise ValueError(
                f"groups must be {out_features} positive sizes that add up to {in_features}, "
                f"got {self.groups}."
            )

    def forward(self, values: Tensor) -> Tensor:
        """Map values ``... x C x E``, real or complex, to ``... x O x E``."""
        if len(set(self.groups)) == 1:
            return _product(values.unflatten(-2, (self.out_features, -1)))  # ... x O x g x E
        return torch.stack([_product(group) for group in values.split(self.groups, -2)], -2)

    def extra_repr(self) -> str:
        equal = len(set(self.groups)) == 1
        return super().extra_repr() + ("" if equal else f", groups={self.groups}")


def _product(factors: Tensor) -> Tensor:
    """Return products ``... x E`` of factors ``... x g x E``."""
    product, *others = torch.unbind(factors, -2)
    # torch.prod has no second derivative at zeros.
    for factor in others:
        product = product * factor
    return product
