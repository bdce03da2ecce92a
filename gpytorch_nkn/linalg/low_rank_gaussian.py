"""Gaussian likelihood of a covariance of low rank plus noise, one chunk of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["low_rank_negative_log_likelihood", "low_rank_posterior"]

# Features in memory at a time: 16 MB, several times as much for autograd.
_CHUNK_ENTRIES = 2_000_000


def low_rank_negative_log_likelihood(
    features: Callable[[Tensor], Tensor],
    inputs: Tensor,
    residual: Tensor,
    noise: Tensor,
    parameters: Sequence[Tensor],
    rest: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Negative log density of zero-mean Gaussian vectors of covariance :math:`\Phi \Phi^\top + S`.

    .. math::
        \tfrac12 \|\tilde r - \tilde\Phi \alpha\|^2 + \tfrac12 \|\alpha\|^2
        + \tfrac12 \log|I + \tilde\Phi^\top \tilde\Phi|
        + \tfrac12 \log|S| + \tfrac n2 \log 2\pi, \qquad
        \alpha = (I + \tilde\Phi^\top \tilde\Phi)^{-1} \tilde\Phi^\top \tilde r

    with features :math:`\tilde\Phi` and residuals :math:`\tilde r` divided by the noise's standard
    deviations. Value and gradient take :math:`O(N P^2)` time and the memory of P x P matrices and
    of a chunk of rows, in float64. The value of a batch element that is not finite is infinity, its
    gradient zero.

    Args:
        features: Maps inputs ``... x C x D`` to features ``... x C x P``, row by row.
        inputs: ``... x N x D``.
        residual: Vectors ``... x N``.
        noise: Variances ``... x N``, diagonal of S.
        parameters: Tensors of the features that need a gradient.
        rest: Maps inputs ``... x C x D`` to variances ``... x C`` that the features omit. Half
            their sum over the noise is added: the bound of Titsias (2009).

    Returns:
        Values ``...``, in the dtype of the residual, differentiable once.

    Reference: Rasmussen and Williams (2006), section 2.1 and equation 2.30, by the matrix
    inversion lemma.
    """
    return _LowRankLikelihood.apply(features, rest, inputs, residual, noise, *parameters)


@torch.no_grad()
def low_rank_posterior(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Posterior of the weights of features, which are standard normal a priori.

    Args:
        features, inputs, residual, noise: As in :func:`low_rank_negative_log_likelihood`; rows of
            infinite noise are ignored.

    Returns:
        Means ``... x P``, and Cholesky factors ``... x P x P`` of the precisions, in float64.

    Raises:
        NotPSDError: Features or residuals are not finite.
    """
    weights, factor = _solve(features, inputs, residual, noise)
    if not bool(weights.isfinite().all() and factor.isfinite().all()):
        raise NotPSDError("The posterior precision of the weights of the features is not finite.")
    return weights.squeeze(-1), factor


class _LowRankLikelihood(Function):
    """The gradient is autograd's, chunk by chunk, with ``alpha`` fixed: it minimises the value."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Callable[[Tensor], Tensor],
        rest: Callable[[Tensor], Tensor] | None,
        inputs: Tensor,
        residual: Tensor,
        noise: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        weights, factor = _solve(features, inputs, residual, noise)
        value = 0.5 * weights.square().sum((-2, -1))
        value = value + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        for rows in _chunks(weights, residual):
            phi, r = _scaled(features, inputs[..., rows, :], residual[..., rows], noise[..., rows])
            error = r - phi @ weights
            value = value + 0.5 * error.square().sum((-2, -1))
            value = value + _terms_of_noise(rest, inputs[..., rows, :], noise[..., rows]).sum(-1)
        value = torch.where(value.isfinite(), value, math.inf)
        ctx.functions = features, rest
        ctx.save_for_backward(inputs, residual, noise, value, factor, weights)
        ctx.parameters = parameters
        return value.to(residual)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        inputs, residual, noise, value, factor, weights = ctx.saved_tensors
        features, rest = ctx.functions
        needed = ctx.needs_input_grad[2:]
        failed = (~value.isfinite()).unsqueeze(-1)
        outer = outer.double().unsqueeze(-1).masked_fill(failed, 0.0)
        inverse = torch.cholesky_inverse(factor).masked_fill(failed.unsqueeze(-1), 0.0)
        weights = weights.masked_fill(failed.unsqueeze(-1), 0.0)
        totals = [torch.zeros_like(one) for one in (inputs, residual, noise, *ctx.parameters)]
        wanted = [place for place, need in enumerate(needed) if need]
        for rows in _chunks(weights, residual):
            x = inputs[..., rows, :].detach().requires_grad_(needed[0])
            r = residual[..., rows].detach().requires_grad_()
            variance = noise[..., rows].detach().requires_grad_()
            sources = [x, r, variance, *ctx.parameters]
            with torch.enable_grad():
                r, variance = r.masked_fill(failed, 0.0), variance.masked_fill(failed, 1.0)
                phi, r = _scaled(features, x, r, variance)
                phi = phi.masked_fill(failed.unsqueeze(-1), 0.0)
                error = (r - phi @ weights).squeeze(-1)
                log_determinant = ((phi.detach() @ inverse) * phi).sum(-1)  # has its gradient
                terms = 0.5 * error.square() + log_determinant + _terms_of_noise(rest, x, variance)
                loss = (outer * terms.masked_fill(failed, 0.0)).sum()
            found = torch.autograd.grad(loss, [sources[n] for n in wanted], allow_unused=True)
            parts = totals[0][..., rows, :], totals[1][..., rows], totals[2][..., rows]
            for n, gradient in zip(wanted, found, strict=True):
                if gradient is not None:
                    (parts[n] if n < 3 else totals[n]).add_(gradient)
        return (
            None,
            None,
            *(total if need else None for total, need in zip(totals, needed, strict=True)),
        )


def _solve(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """``alpha`` ``... x P x 1`` and the Cholesky factors ``... x P x P`` of the precision.

    They are NaN where the precision is not positive definite.
    """
    one = features(inputs[..., :1, :])
    shape = torch.broadcast_shapes(one.shape[:-2], residual.shape[:-1], noise.shape[:-1])
    eye = torch.eye(one.size(-1), dtype=torch.float64, device=inputs.device)
    precision = eye.expand(*shape, -1, -1).clone()
    cross = precision.new_zeros(*shape, one.size(-1), 1)
    for rows in _chunks(cross, residual):
        phi, r = _scaled(features, inputs[..., rows, :], residual[..., rows], noise[..., rows])
        precision += phi.mT @ phi
        cross += phi.mT @ r
    factor, info = torch.linalg.cholesky_ex(precision)
    factor = factor.masked_fill((info != 0)[..., None, None], torch.nan)
    return torch.cholesky_solve(cross, factor), factor


def _scaled(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Features ``... x C x P`` and residuals ``... x C x 1`` by the noise's standard deviations."""
    deviation = noise.double().sqrt().unsqueeze(-1)
    return features(inputs).double() / deviation, residual.double().unsqueeze(-1) / deviation


def _terms_of_noise(
    rest: Callable[[Tensor], Tensor] | None, inputs: Tensor, noise: Tensor
) -> Tensor:
    """Summands ``... x C`` that do not depend on the features."""
    variance = noise.double()
    terms = 0.5 * (variance.log() + math.log(2 * math.pi))
    return terms if rest is None else terms + 0.5 * rest(inputs).double() / variance


def _chunks(weights: Tensor, residual: Tensor) -> Iterator[slice]:
    """Slices of rows, given weights ``... x P x 1`` of features."""
    size = max(1, _CHUNK_ENTRIES // max(1, weights.numel()))
    for start in range(0, residual.size(-1), size):
        yield slice(start, start + size)
