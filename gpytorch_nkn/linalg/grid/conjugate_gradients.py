"""Preconditioned conjugate gradients with warm starts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["conjugate_gradients"]


def conjugate_gradients(
    matrix: Callable[[Tensor], Tensor],
    target: Tensor,
    *,
    num_dims: int,
    start: Tensor | None = None,
    preconditioner: Callable[[Tensor], Tensor] = lambda array: array,
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, float]:
    """Solve ``matrix(x) = target`` for symmetric positive definite matrices.

    ``linear_operator.utils.linear_cg`` returns no residual and makes at least ten iterations, often
    more than a warm start needs. With it, a training step takes 1.3 to 1.5 times as long.

    Args:
        matrix: Multiplies arrays ``... x n_1 x ... x n_P``.
        target: Right-hand sides ``... x n_1 x ... x n_P``; batch entries are independent systems.
        num_dims: Number ``P`` of trailing dimensions that form a vector.
        start: Initial solution; zero by default.
        preconditioner: Multiplies by an approximate inverse.
        tolerance: Residual, relative to the right-hand side, at which to stop.
        max_iterations: Largest number of products with the matrix.

    Returns:
        Solutions, and the largest norm of a residual relative to its right-hand side.
    """
    axes = tuple(range(-num_dims, 0))

    def dot(left: Tensor, right: Tensor) -> Tensor:
        return (left * right).sum(axes, keepdim=True)

    tiny = torch.finfo(target.dtype).tiny
    scale = dot(target, target).sqrt().clamp_min(tiny)
    value, residual, count = torch.zeros_like(target), target, 0
    if start is not None:
        value, residual, count = start, target - matrix(start), 1
    preconditioned = preconditioner(residual)
    direction = preconditioned
    weight = dot(residual, preconditioned)
    best, best_value = float("inf"), value
    while True:
        relative = float((dot(residual, residual).sqrt() / scale).max())
        if relative < best:  # rounding errors can increase the residual
            best, best_value = relative, value
        if not relative > tolerance or count >= max_iterations or relative > 1e4 * max(best, 1.0):
            return best_value, best
        image = matrix(direction)
        step = weight / dot(direction, image).clamp_min(tiny)
        value = value + step * direction
        residual = residual - step * image
        preconditioned = preconditioner(residual)
        new_weight = dot(residual, preconditioned)
        direction = preconditioned + (new_weight / weight.clamp_min(tiny)) * direction
        weight = new_weight
        count += 1
