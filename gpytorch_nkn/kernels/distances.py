"""Distances, and functions of distances, that are twice differentiable at equal inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = [
    "are_same",
    "center_of",
    "cosine_of",
    "differentiable_distances",
    "distances",
    "kink",
    "matern32_of",
    "matern52_of",
    "may_be_differentiated",
    "squared_distances",
]


def squared_distances(x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
    """Return squared Euclidean distances ``... x N x M`` (``... x N`` with ``diag``).

    Values below their rounding error are set to zero; their derivatives are kept.
    """
    if diag:
        return (x1 - x2).square().sum(-1)
    if x1.size(-1) == 1:
        return (x1 - x2.mT).square()
    center = center_of(x1)  # avoids cancellation between large squares
    x1, x2 = x1 - center, x2 - center
    norms = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1, keepdim=True).mT
    square = norms - 2 * x1 @ x2.mT
    value, size = square.detach(), norms.detach()
    rounding = 2 * torch.finfo(value.dtype).eps * x1.size(-1) ** 0.5 * size
    return square - value.masked_fill(value >= rounding, 0.0)


def center_of(x: Tensor) -> Tensor:
    """Return the medians ``... x 1 x D`` of the columns over at most 31 rows.

    With a mean, one outlier or NaN would spoil all distances in float32.
    """
    rows = x.detach()[..., :: max(1, x.size(-2) // 16), :]
    if rows.size(-2) < 2:
        return rows.sum(-2, keepdim=True)
    ordered = rows.sort(-2).values
    return ordered[..., ordered.size(-2) // 2, None, :]


def distances(x1: Tensor, x2: Tensor) -> Tensor:
    """Return Euclidean distances ``... x N x M``.

    At equal inputs, gradients are zero and second derivatives with respect to inputs infinite.
    """
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    square = difference.square().sum(-1)
    zero = square == 0
    root = square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)
    return root + kink(difference)


@contextmanager
def differentiable_distances(kernel: Kernel, *inputs: Tensor) -> Iterator[None]:
    """Replace GPyTorch's distances in a kernel, if autograd may differentiate its inputs.

    At equal inputs, GPyTorch's distances have second derivatives of zero. Here, squared distances
    have correct second derivatives, and distances raise a RuntimeError.
    """
    differentiated = may_be_differentiated(*inputs)
    parts = [vars(m) for m in kernel.modules() if differentiated and hasattr(m, "covar_dist")]
    for part in parts:
        part["covar_dist"] = _covar_dist
    try:
        yield
    finally:
        for part in parts:
            part.pop("covar_dist", None)


def _covar_dist(
    x1: Tensor,
    x2: Tensor,
    diag: bool = False,
    last_dim_is_batch: bool = False,
    square_dist: bool = False,
    **params: Any,
) -> Tensor:
    if last_dim_is_batch:
        x1, x2 = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1)
    square = squared_distances(x1, x2, diag)
    return square if square_dist else _Root.apply(square)


class _Root(torch.autograd.Function):
    """Square root with a gradient of zero at zero, and without second derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(square: Tensor) -> Tensor:
        return square.clamp_min(0.0).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Slope.apply(gradient, *ctx.saved_tensors)


class _Slope(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(lambda ctx, inputs, output: None)

    @staticmethod
    def forward(gradient: Tensor, root: Tensor) -> Tensor:
        return torch.where(root > 0, gradient / (2 * root), 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("a distance has no second derivative at equal inputs.")


def may_be_differentiated(*inputs: Tensor) -> bool:
    """Return whether reverse or forward mode may differentiate with respect to the inputs.

    The answer is True during tracing, because a trace must be valid for any inputs.
    """
    return (
        torch.jit.is_tracing()
        or any(x.requires_grad for x in inputs)
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def are_same(x1: Tensor, x2: Tensor) -> bool:
    """Return whether a result for one input can be reused for the other.

    Equal tensors are not the same if autograd may differentiate with respect to each of them.
    """
    return x1 is x2 or (
        x1.shape == x2.shape and not may_be_differentiated(x1, x2) and torch.equal(x1, x2)
    )


def kink(difference: Tensor) -> Tensor:
    r"""Return zeros ``...`` with the infinite second derivative of :math:`\lVert u \rVert` at zero.

    The argument is the difference :math:`u`, ``... x D``. Values, gradients and derivatives with
    respect to a lengthscale are zero, because a lengthscale does not change a zero difference.
    """
    largest = torch.finfo(difference.dtype).max
    equal = (difference == 0).all(-1, keepdim=True)
    # the product of the powers overflows to infinity, and occurs in the second derivative only
    only_equal = torch.where(equal, difference, 0.0) * largest**0.8
    return only_equal.square().sum(-1) * largest**0.5


def matern32_of(square: Tensor) -> Tensor:
    """Return values of the Matern-3/2 kernel, given three times the squared distances."""
    near, small, root = _split(square, 0.5)
    return torch.where(near, 1 - small / 2, (1 + root) * (-root).exp())


def matern52_of(square: Tensor) -> Tensor:
    """Return values of the Matern-5/2 kernel, given five times the squared distances."""
    near, small, root = _split(square, 0.25)
    far = (1 + root + square / 3) * (-root).exp()
    return torch.where(near, 1 - small / 6 + small.square() / 24, far)


def cosine_of(square: Tensor) -> Tensor:
    """Return the cosine of the square root, twice differentiable at zero."""
    near, small, root = _split(square, 0.25)
    return torch.where(near, 1 - small / 2 + small.square() / 24, root.cos())


def _split(square: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return a mask of values near zero, squares inside the mask, and roots outside it.

    Roots below ``eps ** power`` are near zero. A series replaces functions of the root there,
    because the root has unbounded derivatives.
    """
    near = square < torch.finfo(square.dtype).eps ** (2 * power)
    return near, torch.where(near, square, 0.0), torch.where(near, 1.0, square).sqrt()
