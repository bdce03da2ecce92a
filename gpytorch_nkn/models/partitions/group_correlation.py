"""Correlation within a group of columns as a function of its squared scaled distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["KERNELS", "correlation", "num_shape_parameters", "shape_center"]

KERNELS = ("matern", "nkn", "rbf")

# Start values of the network: its first product is near the first RBF, its second near the
# product of both, and the first one counts more. A symmetric start would never break its symmetry.
_FIRST_LAYER = ((2.0, 0.0, 0.0), (0.0, 0.0, 2.0), (0.0, 2.0, 0.0), (2.0, 0.0, 0.0))
_LAST_LAYER = (1.0, 0.0)


def num_shape_parameters(kernel: str) -> int:
    """Number of unconstrained shape parameters per group."""
    return len(shape_center(kernel))


def shape_center(kernel: str) -> tuple[float, ...]:
    """Start values of the shape parameters, the centre of their prior."""
    if kernel != "nkn":
        return ()
    return (math.log(2.0), *(logit for unit in _FIRST_LAYER for logit in unit), *_LAST_LAYER)


def correlation(kernel: str, sq_dist: Tensor, shape: Tensor) -> Tensor:
    r"""Correlation of a group, one at distance zero.

    With :math:`r^2 = \sum_d (x_d - x_d')^2 / \ell_d^2` over the columns of the group, ``"rbf"``
    is :math:`\exp(-r^2 / 2)` and ``"matern"`` the Matern kernel with :math:`\nu = 5/2`. ``"nkn"``
    is the network Linear4-Product2-Linear1 over two RBFs, of lengthscales :math:`\ell_d` and
    :math:`(1 + e^a) \ell_d`. The weights of its units, and the biases of the first layer, are
    shares that add up to one, so that it stays one at distance zero.

    Args:
        kernel: One of ``KERNELS``.
        sq_dist: Squared scaled distances ``... x E`` of any entries ``E``.
        shape: Shape parameters ``... x num_shape_parameters(kernel)``: for ``"nkn"``, :math:`a`,
            four times the logits of two weights and a bias, and the logits of two weights.
    """
    if kernel == "rbf":
        return (-0.5 * sq_dist).exp()
    if kernel == "matern":
        scaled = (5 * sq_dist.clamp_min(1e-20)).sqrt()  # a root of zero has no gradient
        return (1 + scaled + scaled.square() / 3) * (-scaled).exp()
    if kernel != "nkn":
        raise ValueError(f"kernel must be one of {KERNELS}, got {kernel!r}.")
    ratio = 1 + shape[..., :1].exp()
    first = (-0.5 * sq_dist).exp()
    second = (-0.5 * sq_dist / ratio.square()).exp()
    inputs = torch.stack([first, second, torch.ones_like(first)], -2)  # ... x 3 x E
    units = shape[..., 1:13].unflatten(-1, (4, 3)).softmax(-1) @ inputs  # ... x 4 x E
    products = units[..., 0::2, :] * units[..., 1::2, :]
    return (shape[..., 13:].softmax(-1).unsqueeze(-2) @ products).squeeze(-2)
