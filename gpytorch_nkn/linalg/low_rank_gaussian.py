"""Gaussian log likelihood of a low-rank covariance plus noise, computed in chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpytorch_nkn.linalg.known_gradients import with_gradients

__all__ = ["low_rank_negative_log_likelihood", "low_rank_posterior"]

# Features of a chunk of rows, in float64: 16 MB, and several times as much in autograd.
_CHUNK_ENTRIES = 2_000_000


def low_rank_negative_log_likelihood(
    features: Callable[[Tensor], Tensor],
    inputs: Tensor,
    residual: Tensor,
    noise: Tensor,
    omitted: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Return the negative log density of Gaussian vectors of covariance :math:`\Phi\Phi^\top + S`.

    .. math::
        \tfrac12 \|\tilde r - \tilde\Phi \alpha\|^2 + \tfrac12 \|\alpha\|^2
        + \tfrac12 \log|I + \tilde\Phi^\top \tilde\Phi|
        + \tfrac12 \log|S| + \tfrac n2 \log 2\pi, \qquad
        \alpha = (I + \tilde\Phi^\top \tilde\Phi)^{-1} \tilde\Phi^\top \tilde r

    Features :math:`\tilde\Phi` and residuals :math:`\tilde r` are divided by the standard
    deviations of the noise. Value and gradient take :math:`O(N P^2)` time, and memory for P x P
    matrices and one chunk of rows in float64. Values that are not finite become infinity, with
    zero gradient.

    Args:
        features: Maps inputs ``... x C x D`` to features ``... x C x P``, row by row.
        inputs: Inputs ``... x N x D``.
        residual: Zero-mean vectors ``... x N``.
        noise: Noise variances ``... x N``, the diagonal of S.
        omitted: Maps inputs ``... x C x D`` to prior variances ``... x C`` that the features omit.
            Half the sum of these variances over the noise is added (bound of Titsias 2009).

    Returns:
        Negative log densities ``...``, in the dtype of the residual, differentiable once.

    Reference: Rasmussen and Williams (2006), section 2.1 and equation 2.30, by the matrix
    inversion lemma.
    """
    with torch.no_grad():
        weights, factor = _solve(features, inputs, residual, noise)
        failed = ~(weights.sum((-2, -1)) + factor.sum((-2, -1))).isfinite().unsqueeze(-1)
        value = 0.5 * weights.square().sum((-2, -1))
        value = value + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        inverse = torch.cholesky_inverse(factor).masked_fill(failed.unsqueeze(-1), 0.0)
        weights = weights.masked_fill(failed.unsqueeze(-1), 0.0)

    def terms(x: Tensor, r: Tensor, variance: Tensor) -> Tensor:
        r, variance = r.masked_fill(failed, 0.0), variance.masked_fill(failed, 1.0)
        phi, r = _scaled(features, x, r, variance)
        phi = phi.masked_fill(failed.unsqueeze(-1), 0.0)
        # alpha minimises the value, so the gradient may treat alpha as constant
        error = (r - phi @ weights).squeeze(-1)
        log_determinant = ((phi.detach() @ inverse) * phi).sum(-1)  # only the gradient is used
        terms = 0.5 * error.square() + log_determinant - log_determinant.detach()
        variance = variance.double()
        terms = terms + 0.5 * (variance.log() + math.log(2 * math.pi))
        return (terms if omitted is None else terms + 0.5 * omitted(x).double() / variance).sum(-1)

    for rows in _chunks(weights, residual):
        chunk = inputs[..., rows, :], residual[..., rows], noise[..., rows]
        value = value + checkpoint(terms, *chunk, use_reentrant=False, preserve_rng_state=False)
    value = value.masked_fill(failed.squeeze(-1), math.inf).nan_to_num(
        nan=math.inf, posinf=math.inf
    )
    once = with_gradients(value.detach(), (value,), (torch.ones_like(value),))
    return once.to(residual)


@torch.no_grad()
def low_rank_posterior(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the posterior of features' weights with standard normal priors.

    Args:
        features, inputs, residual, noise: As in :func:`low_rank_negative_log_likelihood`. Rows with
            infinite noise variance are ignored.

    Returns:
        Means ``... x P``, and Cholesky factors ``... x P x P`` of the precisions, in float64.

    Raises:
        NotPSDError: Features or residuals are not finite.
    """
    weights, factor = _solve(features, inputs, residual, noise)
    if not bool(weights.isfinite().all() and factor.isfinite().all()):
        raise NotPSDError("The posterior precision of the features' weights is not finite.")
    return weights.squeeze(-1), factor


def _solve(
    features: Callable[[Tensor], Tensor], inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``alpha`` ``... x P x 1`` and the Cholesky factors ``... x P x P`` of the precision.

    Both are NaN where the precision is not positive definite.
    """
    first = features(inputs[..., :1, :])
    shape = torch.broadcast_shapes(first.shape[:-2], residual.shape[:-1], noise.shape[:-1])
    eye = torch.eye(first.size(-1), dtype=torch.float64, device=inputs.device)
    precision = eye.expand(*shape, -1, -1).clone()
    cross = precision.new_zeros(*shape, first.size(-1), 1)
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
    """Divide features ``... x C x P`` and residuals ``... x C x 1`` by the noise's std."""
    std = noise.double().sqrt().unsqueeze(-1)
    return features(inputs).double() / std, residual.double().unsqueeze(-1) / std


def _chunks(weights: Tensor, residual: Tensor) -> Iterator[slice]:
    """Yield slices of rows; the rows of a slice have at most ``_CHUNK_ENTRIES`` features."""
    size = max(1, _CHUNK_ENTRIES // max(1, weights.numel()))
    for start in range(0, residual.size(-1), size):
        yield slice(start, start + size)
