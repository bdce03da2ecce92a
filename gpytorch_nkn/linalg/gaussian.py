"""Gaussian likelihood with its gradient in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function

from gpytorch_nkn.linalg.cholesky import JITTERS, factorize
from gpytorch_nkn.linalg.entrywise import EntrywiseMatrix, GradientSum, elements

__all__ = [
    "entrywise_negative_log_likelihood",
    "gaussian_negative_log_likelihood",
    "solve_in_place",
]


def gaussian_negative_log_likelihood(covariance: Tensor, residual: Tensor) -> Tensor:
    r"""Negative log density of zero-mean Gaussian vectors.

    .. math:: \tfrac12 r^\top K^{-1} r + \tfrac12 \log|K| + \tfrac n2 \log 2\pi

    The gradient :math:`\tfrac12 (K^{-1} - K^{-1} r r^\top K^{-1})` is computed with the value
    and is not differentiable again. If a matrix is not finite, or not positive definite even with
    a jitter of a millionth of its mean diagonal, its value is infinity and its gradient zero.

    Args:
        covariance: Symmetric matrices ``... x N x N``, noise included.
        residual: Vectors ``... x N``.

    Returns:
        Values ``...``.

    Reference: Rasmussen and Williams (2006), equations 2.30 and 5.9.
    """
    return _DenseLikelihood.apply(covariance, residual)


def entrywise_negative_log_likelihood(
    matrix: EntrywiseMatrix, residual: Tensor, noise: Tensor
) -> Tensor:
    """Negative log density of zero-mean Gaussian vectors whose covariance is matrix plus noise.

    As :func:`gaussian_negative_log_likelihood`, in the memory of one matrix: the covariance, its
    Cholesky factor and its inverse share one buffer.

    Args:
        matrix: Symmetric matrices ``... x N x N``.
        residual: Vectors ``... x N``.
        noise: Variances ``... x N``.

    Returns:
        Values ``...``.
    """
    return _EntrywiseLikelihood.apply(matrix, residual, noise, *matrix.tensors)


class _DenseLikelihood(Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, residual: Tensor) -> Tensor:
        factor, failed = factorize(covariance)
        batch_shape = torch.broadcast_shapes(factor.shape[:-2], residual.shape[:-1])
        right = residual.expand(*batch_shape, -1).unsqueeze(-1)
        solution = torch.cholesky_solve(right, factor.expand(*batch_shape, -1, -1)).squeeze(-1)
        value = (
            0.5 * (residual * solution).sum(-1)
            + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            + 0.5 * residual.size(-1) * math.log(2 * math.pi)
        )
        failed = failed | ~value.isfinite()
        if any(ctx.needs_input_grad):
            outer = solution.unsqueeze(-1) * solution.unsqueeze(-2)
            gradient = (torch.cholesky_inverse(factor) - outer).mul_(0.5)
            gradient.masked_fill_(failed[..., None, None], 0.0)
            solution = solution.masked_fill(failed.unsqueeze(-1), 0.0)
            ctx.save_for_backward(gradient, solution, failed)
            ctx.shapes = covariance.shape, residual.shape
        return value.masked_fill(failed, math.inf)

    @staticmethod
    def backward(ctx, *outer: Tensor) -> tuple[Tensor | None, Tensor | None]:
        _reject_second_derivative()
        gradient, solution, failed = ctx.saved_tensors
        # An infinite value must not turn the zeros of its gradient into NaN.
        scale = torch.where(failed, 0.0, outer[0])
        covariance_shape, residual_shape = ctx.shapes
        return (
            (gradient * scale[..., None, None]).sum_to_size(covariance_shape),
            (solution * scale[..., None]).sum_to_size(residual_shape),
        )


class _EntrywiseLikelihood(Function):
    @staticmethod
    def forward(
        ctx, matrix: EntrywiseMatrix, residual: Tensor, noise: Tensor, *tensors: Tensor
    ) -> Tensor:
        batch_shape, n = matrix.shape[:-2], matrix.shape[-1]
        needed = ctx.needs_input_grad[3:]
        ctx.needed = any(ctx.needs_input_grad)
        value = residual.new_empty(batch_shape)
        of_residual = residual.new_zeros(*batch_shape, n)
        of_noise = torch.zeros_like(of_residual)
        buffer = residual.new_empty(n, n)
        residuals, noises = residual.expand_as(of_residual), noise.expand_as(of_residual)
        gradients = []
        for index, own in elements(matrix, tensors):
            evaluator = matrix.bind(own, needed)

            def fill(out: Tensor, own_noise: Tensor = noises[index], evaluator=evaluator) -> None:
                evaluator.fill(out)
                out.diagonal().add_(own_noise)

            value[index], solution = solve_in_place(fill, residuals[index], buffer, ctx.needed)
            if solution is not None and ctx.needed:
                of_residual[index] = solution
                of_noise[index] = 0.5 * (buffer.diagonal() - solution.square())
                if any(needed):
                    gradients.append((index, evaluator.vjp(buffer, solution)))
        if ctx.needed:
            ctx.matrix, ctx.gradients = matrix, gradients
            ctx.shapes = residual.shape, noise.shape
            ctx.save_for_backward(of_residual, of_noise, value.isinf(), *tensors)
        return value

    @staticmethod
    def backward(ctx, *outer: Tensor):
        _reject_second_derivative()
        of_residual, of_noise, failed, *tensors = ctx.saved_tensors
        scale = torch.where(failed, 0.0, outer[0])
        total = GradientSum(ctx.matrix, tensors, ctx.needs_input_grad[3:])
        for index, gradients in ctx.gradients:
            total.add(index, gradients, scale[index] if index else scale)
        residual_shape, noise_shape = ctx.shapes
        return (
            None,
            (of_residual * scale[..., None]).sum_to_size(residual_shape),
            (of_noise * scale[..., None]).sum_to_size(noise_shape),
            *total.gradients,
        )


def _reject_second_derivative() -> None:
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "The gradient of this likelihood cannot be differentiated again; use "
            "gpytorch.mlls.ExactMarginalLogLikelihood for second derivatives."
        )


def solve_in_place(
    fill: Callable[[Tensor], None], vector: Tensor, buffer: Tensor, invert: bool
) -> tuple[float, Tensor | None]:
    """Negative log density and ``K^-1 r``, infinity and None where K is not positive definite.

    ``fill`` writes the lower triangle of K into the buffer, which ends as the inverse of K (its
    lower triangle counts) or, unless ``invert``, as its factor.
    """
    transposed = buffer.mT  # LAPACK works on columns: this one it takes as it is, without a copy
    info = torch.empty((), dtype=torch.int32, device=buffer.device)
    for jitter in JITTERS:
        fill(buffer)
        if jitter:
            diagonal = buffer.diagonal()
            diagonal += jitter * diagonal.mean()
        torch.linalg.cholesky_ex(transposed, upper=True, out=(transposed, info))
        if not info.item():
            break
    else:
        return math.inf, None
    half = torch.linalg.solve_triangular(buffer, vector.unsqueeze(-1), upper=False)
    solution = torch.linalg.solve_triangular(transposed, half, upper=True).squeeze(-1)
    log_determinant = buffer.diagonal().log().sum()
    constant = 0.5 * vector.numel() * math.log(2 * math.pi)
    value = (0.5 * half.square().sum() + log_determinant).item() + constant
    if not math.isfinite(value):
        return math.inf, None
    if invert:
        torch.cholesky_inverse(transposed, upper=True, out=transposed)
    return value, solution
