"""Gaussian log likelihood with its gradient in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gpytorch_nkn.linalg.cholesky import JITTERS, factorize
from gpytorch_nkn.linalg.entrywise import EntrywiseMatrix, broadcast_batches, elements, gathered
from gpytorch_nkn.linalg.known_gradients import any_needed, with_gradients

__all__ = [
    "entrywise_negative_log_likelihood",
    "gaussian_negative_log_likelihood",
    "solve_in_place",
    "with_less_noise",
]


def gaussian_negative_log_likelihood(covariance: Tensor, residual: Tensor) -> Tensor:
    r"""Return the negative log densities ``...`` of zero-mean Gaussian vectors ``... x N``.

    .. math:: \tfrac12 r^\top K^{-1} r + \tfrac12 \log|K| + \tfrac n2 \log 2\pi

    The gradient with respect to K, :math:`\tfrac12 (K^{-1} - K^{-1} r r^\top K^{-1})`, is computed
    with the value; the result is differentiable once. Matrices that are not finite, or not positive
    definite with a jitter of 1e-6 of the mean diagonal, give infinity and a gradient of zero. The
    covariance is ``... x N x N``, with noise.

    Reference: Rasmussen and Williams (2006), equations 2.30 and 5.9.
    """
    with torch.no_grad():
        factor, failed = factorize(covariance)
        batch_shape = broadcast_batches(factor.shape[:-2], residual.shape[:-1])
        right = residual.expand(*batch_shape, -1).unsqueeze(-1)
        solution = torch.cholesky_solve(right, factor.expand(*batch_shape, -1, -1)).squeeze(-1)
        value = (
            0.5 * (residual * solution).sum(-1)
            + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            + 0.5 * residual.size(-1) * math.log(2 * math.pi)
        )
        failed = failed | ~value.isfinite()
        value = value.masked_fill(failed, math.inf)
    inputs = covariance, residual
    if not any_needed(inputs):
        return value
    with torch.no_grad():
        outer = solution.unsqueeze(-1) * solution.unsqueeze(-2)
        gradient = (torch.cholesky_inverse(factor) - outer).mul_(0.5)
        gradient.masked_fill_(failed[..., None, None], 0.0)
        solution = solution.masked_fill(failed.unsqueeze(-1), 0.0)
    return with_gradients(value, inputs, (gradient, solution))


def entrywise_negative_log_likelihood(
    matrix: EntrywiseMatrix, residual: Tensor, noise: Tensor
) -> Tensor:
    """Return :func:`gaussian_negative_log_likelihood` for the covariance ``matrix`` plus ``noise``.

    The covariance, its Cholesky factor and its inverse share the memory of one matrix. Residuals
    and noise variances are ``... x N``.
    """
    inputs = (residual, noise, *matrix.tensors)
    differentiate = any_needed(inputs)
    needed = [differentiate and tensor.requires_grad for tensor in matrix.tensors]
    with torch.no_grad():
        batch_shape, n = matrix.shape[:-2], matrix.shape[-1]
        value = residual.new_empty(batch_shape)
        grad_residual = residual.new_zeros(*batch_shape, n)
        grad_noise = torch.zeros_like(grad_residual)
        buffer = residual.new_empty(n, n)
        residuals, noises = residual.expand_as(grad_residual), noise.expand_as(grad_residual)
        grads = []
        for index, element in elements(matrix, matrix.tensors):
            evaluator = matrix.bind(element, needed)

            def fill(out: Tensor, noise: Tensor = noises[index], evaluator=evaluator) -> None:
                evaluator.fill(out)
                out.diagonal().add_(noise)

            value[index], solution = solve_in_place(fill, residuals[index], buffer, differentiate)
            if solution is not None and differentiate:
                grad_residual[index] = solution
                grad_noise[index] = 0.5 * (buffer.diagonal() - solution.square())
            if solution is not None and any(needed):
                grads.append(evaluator.vjp(buffer, solution))
            else:
                zeros = zip(element, needed, strict=True)
                grads.append([torch.zeros_like(t) if need else None for t, need in zeros])
        if not differentiate:
            return value
        grad_tensors = gathered(grads, batch_shape)
    return with_gradients(value, inputs, (grad_residual, grad_noise, *grad_tensors))


def solve_in_place(
    fill: Callable[[Tensor], None], vector: Tensor, buffer: Tensor, invert: bool
) -> tuple[float, Tensor | None]:
    """Return the negative log density of a vector r under covariance K, and ``K^-1 r``.

    Return infinity and None if K is not positive definite. ``fill`` writes the lower triangle of K
    into the buffer. The inverse of K then overwrites the buffer; without ``invert``, the Cholesky
    factor overwrites its lower triangle.
    """
    transposed = buffer.mT  # column-major, so that LAPACK needs no copy
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


def with_less_noise(
    inverse: Tensor, reductions: Tensor, vectors: Tensor, normaliser: float
) -> tuple[float, Tensor | None]:
    r"""Return negative log density and solutions for vectors whose covariances differ in noise.

    Vector ``c`` has the covariance :math:`K_c = P^{-1} - D_c`, so that, for the rows R where
    :math:`D_c = \operatorname{diag}(d_c)` is positive,

    .. math:: K_c^{-1} = P + P_R (D_R^{-1} - P_{RR})^{-1} P_R^\top

    Args:
        inverse: P, ``N x N``. It is overwritten by the gradient of the result with respect to K.
        reductions, vectors: Diagonals :math:`d_c`, non-negative, and vectors, ``C x N`` each.
        normaliser: Negative log density of zero under the covariance :math:`P^{-1}`.

    Returns:
        The sum over the vectors, and solutions ``C x N``; infinity and None if a matrix is
            not positive definite.
    """
    solutions, value, roots = vectors @ inverse, len(vectors) * normaliser, reductions.sqrt()
    updates = []
    for number, root in enumerate(roots):
        rows = root.nonzero().squeeze(-1)
        half = root[rows].unsqueeze(-1) * inverse[rows]  # R x N
        system = torch.eye(len(rows)).to(half) - half[:, rows] * root[rows]
        factor, info = torch.linalg.cholesky_ex(system)
        if info.item():
            return math.inf, None
        half = torch.linalg.solve_triangular(factor, half, upper=False)
        solutions[number] += (half @ vectors[number]) @ half
        value += factor.diagonal().log().sum().item()
        updates.append(half)
    value += 0.5 * (vectors * solutions).sum().item()
    update = torch.cat(updates)
    inverse.mul_(len(vectors)).addmm_(update.mT, update).addmm_(solutions.mT, solutions, alpha=-1)
    inverse.mul_(0.5)
    return value, solutions
