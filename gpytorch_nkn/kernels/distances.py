"""Distances, and functions of them, that can be differentiated twice where inputs are equal."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "are_same",
    "cosine_of",
    "distances",
    "kink",
    "matern32_of",
    "matern52_of",
    "may_be_differentiated",
    "squared_distances",
]


def squared_distances(x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
    """Squared Euclidean distances ``... x N x M`` (``... x N`` with ``diag``).

    Values below the rounding error of their terms are zero, which does not cut the derivatives:
    these are those of the polynomial everywhere.
    """
    if diag:
        return (x1 - x2).square().sum(-1)
    if x1.size(-1) == 1:
        return (x1 - x2.mT).square()
    center = x1.mean(-2, keepdim=True).detach()  # differences of squares are exact near zero only
    x1, x2 = x1 - center, x2 - center
    norms = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1, keepdim=True).mT
    square = norms - 2 * x1 @ x2.mT
    value, size = square.detach(), norms.detach()
    rounding = 2 * torch.finfo(value.dtype).eps * x1.size(-1) ** 0.5 * size
    return square - value.masked_fill(value >= rounding, 0.0)


def distances(x1: Tensor, x2: Tensor) -> Tensor:
    """Euclidean distances ``... x N x M``, with the slope zero where they are zero.

    The second derivative by the inputs is infinite there.
    """
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    square = difference.square().sum(-1)
    zero = square == 0
    root = square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)
    return root + kink(difference)


def may_be_differentiated(*inputs: Tensor) -> bool:
    """Whether derivatives by the inputs may be wanted, of backward or of forward mode.

    While operations are traced, too: the trace is for other inputs, of which nothing is known.
    """
    return (
        torch.jit.is_tracing()
        or any(x.requires_grad for x in inputs)
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def are_same(x1: Tensor, x2: Tensor) -> bool:
    """Whether inputs are one and the same, so that what is computed of one may stand for both.

    Inputs that are equal but may be differentiated one by one have derivatives of their own.
    """
    return x1 is x2 or (
        x1.shape == x2.shape and not may_be_differentiated(x1, x2) and torch.equal(x1, x2)
    )


def kink(difference: Tensor) -> Tensor:
    r"""The part of :math:`\lVert u \rVert` for ``... x D`` differences that autograd leaves out.

    It is zero, and so is its slope, but its second derivative is infinite where :math:`u = 0`, as
    far as :math:`u` changes; a lengthscale, which does not change a zero, has the derivative zero.
    """
    largest = torch.finfo(difference.dtype).max
    equal = (difference == 0).all(-1, keepdim=True)
    # Two factors whose product overflows: not before the second derivative multiplies them.
    only_equal = torch.where(equal, difference, 0.0) * largest**0.8
    return only_equal.square().sum(-1) * largest**0.5


def matern32_of(square: Tensor) -> Tensor:
    """Matern-3/2 kernel of three times the squared distances."""
    near, small, root = _split(square, 0.5)
    return torch.where(near, 1 - small / 2, (1 + root) * (-root).exp())


def matern52_of(square: Tensor) -> Tensor:
    """Matern-5/2 kernel of five times the squared distances."""
    near, small, root = _split(square, 0.25)
    far = (1 + root + square / 3) * (-root).exp()
    return torch.where(near, 1 - small / 6 + small.square() / 24, far)


def cosine_of(square: Tensor) -> Tensor:
    """Cosine of the roots."""
    near, small, root = _split(square, 0.25)
    return torch.where(near, 1 - small / 2 + small.square() / 24, root.cos())


def _split(square: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor]:
    """Where roots are below a power of the rounding error, the squares there, roots elsewhere.

    There a series takes the place of a function of the root: the derivatives of a root grow
    without bound, and cancel in exact numbers only.
    """
    near = square < torch.finfo(square.dtype).eps ** (2 * power)
    return near, torch.where(near, square, 0.0), torch.where(near, 1.0, square).sqrt()
