"""Gaussian likelihood with its gradient in closed form, and predictions of left-out blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

__all__ = ["block_predictions", "gaussian_negative_log_likelihood"]

_JITTERS = (0.0, 1e-8, 1e-6)  # relative to the mean diagonal


def gaussian_negative_log_likelihood(covariance: Tensor, residual: Tensor) -> Tensor:
    r"""Negative log density of zero-mean Gaussian vectors.

    .. math:: \tfrac12 r^\top K^{-1} r + \tfrac12 \log|K| + \tfrac n2 \log 2\pi

    The gradient :math:`\tfrac12 (K^{-1} - K^{-1} r r^\top K^{-1})` is computed in closed form
    together with the value, which is cheaper than differentiating a Cholesky factor. An element
    of the batch whose matrix is not positive definite, even with a jitter of a millionth of its
    mean diagonal, or whose entries are not finite, gets infinity and a gradient of zeros; it
    does not disturb the others. The gradient is not differentiable again.

    Args:
        covariance: Symmetric matrices ``... x N x N``, noise included.
        residual: Vectors ``... x N``.

    Returns:
        Values ``...``.

    Reference: Rasmussen and Williams (2006), equations 2.30 and 5.9.
    """
    return _GaussianNegativeLogLikelihood.apply(covariance, residual)


class _GaussianNegativeLogLikelihood(Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, residual: Tensor) -> Tensor:
        batch_shape = torch.broadcast_shapes(covariance.shape[:-2], residual.shape[:-1])
        n = residual.size(-1)
        matrices = covariance.expand(*batch_shape, n, n)
        vectors = residual.expand(*batch_shape, n)
        factor, failed = _factorize(matrices)
        solution = torch.cholesky_solve(vectors.unsqueeze(-1), factor).squeeze(-1)
        value = (
            0.5 * (vectors * solution).sum(-1)
            + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            + 0.5 * n * math.log(2 * math.pi)
        )
        failed = failed | ~value.isfinite()
        if any(ctx.needs_input_grad):
            gradient = torch.cholesky_inverse(factor)
            gradient = gradient - solution.unsqueeze(-1) * solution.unsqueeze(-2)
            gradient = gradient.mul_(0.5)
            if bool(failed.any()):
                gradient[failed] = 0
                solution[failed] = 0
            ctx.save_for_backward(gradient, solution, failed)
            ctx.shapes = covariance.shape, residual.shape
        return torch.where(failed, math.inf, value)

    @staticmethod
    def backward(ctx, *outer: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gradient, solution, failed = ctx.saved_tensors
        scale = outer[0].masked_fill(failed, 0.0)
        covariance_shape, residual_shape = ctx.shapes
        # An infinite value must not turn the zeros of its gradient into NaN.
        return (
            (gradient * scale[..., None, None]).sum_to_size(covariance_shape),
            (solution * scale[..., None]).sum_to_size(residual_shape),
        )


def _factorize(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors, and which of them failed (those are identities)."""
    scale = matrices.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(matrices.size(-1), dtype=matrices.dtype, device=matrices.device)
    bad = ~scale.isfinite() | ~matrices.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    matrices = torch.where(bad, eye, matrices)
    factor, failed = torch.linalg.cholesky_ex(matrices)
    for jitter in _JITTERS[1:]:
        if not bool(failed.any()):
            break
        again, still = torch.linalg.cholesky_ex(matrices + jitter * scale * eye)
        repaired = (failed > 0) & (still == 0)
        factor = torch.where(repaired[..., None, None], again, factor)
        failed = torch.where(repaired, 0, failed)
    lost = (failed > 0) | bad[..., 0, 0]
    return torch.where(lost[..., None, None], eye, factor), lost


def block_predictions(
    covariance: Tensor, residual: Tensor, blocks: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    r"""Mean and variance of each block given all the other entries, from one inverse.

    .. math::
        \mu_b = r_b - \Lambda_{bb}^{-1} (\Lambda r)_b, \qquad
        \Sigma_b = \Lambda_{bb}^{-1}, \qquad \Lambda = K^{-1}

    Args:
        covariance: Symmetric matrix ``N x N``, noise included.
        residual: Vector ``N`` of zero prior mean.
        blocks: Index vectors.

    Returns:
        For each block the mean and the variance (noise included) of its entries.

    Raises:
        torch.linalg.LinAlgError: The matrix is not positive definite.

    Reference: Rasmussen and Williams (2006), equations 5.12 for blocks of one.
    """
    factor, failed = _factorize(covariance)
    if bool(failed.any()):
        raise torch.linalg.LinAlgError("The covariance matrix is not positive definite.")
    precision = torch.cholesky_inverse(factor)
    weighted = precision @ residual
    predictions = []
    for block in blocks:
        inner = torch.linalg.cholesky(precision[block][:, block])
        mean = residual[block] - torch.cholesky_solve(weighted[block, None], inner)[:, 0]
        predictions.append((mean, torch.cholesky_inverse(inner).diagonal()))
    return predictions
