"""Gaussian log likelihood of a low-rank covariance plus noise, computed in chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpytorch_nkn.linalg.known_gradients import with_gradients

__all__ = [
    "Features",
    "LowRankSums",
    "low_rank_negative_log_likelihood",
    "low_rank_posterior",
    "row_chunks",
]

#: Maps inputs ``... x C x D`` to features ``... x C x P`` and to omitted variances ``... x C``.
Features = Callable[[Tensor], tuple[Tensor, Tensor | None]]

# Features of a chunk of rows, in float64: 16 MB, and several times as much in autograd.
_CHUNK_ENTRIES = 2_000_000


def low_rank_negative_log_likelihood(
    features: Features, inputs: Tensor, residual: Tensor, noise: Tensor
) -> Tensor:
    r"""Return negative log densities of Gaussian vectors with covariance :math:`\Phi\Phi^\top + S`.

    .. math::
        \tfrac12 \|\tilde r - \tilde\Phi \alpha\|^2 + \tfrac12 \|\alpha\|^2
        + \tfrac12 \log|I + \tilde\Phi^\top \tilde\Phi|
        + \tfrac12 \log|S| + \tfrac n2 \log 2\pi, \qquad
        \alpha = (I + \tilde\Phi^\top \tilde\Phi)^{-1} \tilde\Phi^\top \tilde r

    Features :math:`\tilde\Phi` and residuals :math:`\tilde r` are divided by the standard
    deviations of the noise. Half the sum of ratios of omitted variance to noise variance is added
    (bound of Titsias 2009). Value and gradient take :math:`O(N P^2)` time, and memory for P x P
    matrices and one chunk of rows in float64. Values that are not finite become infinity, with zero
    gradient.

    Args:
        features: Maps inputs to features and omitted variances.
        inputs: Inputs ``... x N x D``.
        residual: Zero-mean vectors ``... x N``.
        noise: Noise variances ``... x N``, the diagonal of S.

    Returns:
        Negative log densities ``...``, in the dtype of the residual, differentiable once.

    Reference: Rasmussen and Williams (2006), section 2.1 and equation 2.30, by the matrix
    inversion lemma.
    """
    with torch.no_grad():
        weights, factor = LowRankSums.over(features, inputs, residual, noise).solve()
        failed = ~(weights.sum(-1) + factor.sum((-2, -1))).isfinite().unsqueeze(-1)
        value = 0.5 * weights.square().sum(-1)
        value = value + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        inverse = torch.cholesky_inverse(factor).masked_fill(failed.unsqueeze(-1), 0.0)
        weights = weights.masked_fill(failed, 0.0).unsqueeze(-1)

    def terms(x: Tensor, r: Tensor, variance: Tensor) -> Tensor:
        r, variance = r.masked_fill(failed, 0.0), variance.masked_fill(failed, 1.0)
        phi, r, others = _scaled(features, x, r, variance)
        phi = phi.masked_fill(failed.unsqueeze(-1), 0.0)
        # alpha minimises the value, so the gradient may treat alpha as constant
        error = r - (phi @ weights).squeeze(-1)
        log_determinant = ((phi.detach() @ inverse) * phi).sum(-1)  # only the gradient is used
        value = 0.5 * error.square() + log_determinant - log_determinant.detach()
        return (value + 0.5 * others).sum(-1)

    for rows in row_chunks(factor.shape[:-1].numel(), residual.size(-1)):
        chunk = inputs[..., rows, :], residual[..., rows], noise[..., rows]
        value = value + checkpoint(terms, *chunk, use_reentrant=False, preserve_rng_state=False)
    value = value.masked_fill(failed.squeeze(-1), math.inf).nan_to_num(
        nan=math.inf, posinf=math.inf
    )
    once = with_gradients(value.detach(), (value,), (torch.ones_like(value),))
    return once.to(residual)


def low_rank_posterior(
    features: Features, inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the posterior of the features' weights under standard normal priors.

    Args:
        features, inputs, residual, noise: As in :func:`low_rank_negative_log_likelihood`. Rows with
            infinite noise variance are ignored.

    Returns:
        Means ``... x P``, and Cholesky factors ``... x P x P`` of the precisions, in float64.

    Raises:
        NotPSDError: Features or residuals are not finite.
    """
    return LowRankSums.over(features, inputs, residual, noise).checked_solve()


@dataclass
class LowRankSums:
    """Sums over rows of features and residuals, divided by the noise's standard deviations."""

    gram: Tensor  # products of features, ... x P x P
    cross: Tensor  # products of features and residuals, ... x P
    constant: Tensor  # squared residuals, log determinant of 2 pi S, omitted variances / S, ...

    @classmethod
    def over(
        cls, features: Features, inputs: Tensor, residual: Tensor, noise: Tensor
    ) -> LowRankSums:
        """Sum over chunks of rows; if there are several, the backward pass evaluates them again."""

        def sums(x: Tensor, r: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            phi, r, others = _scaled(features, x, r, variance)
            cross = (phi.mT @ r.unsqueeze(-1)).squeeze(-1)
            return phi.mT @ phi, cross, (r.square() + others).sum(-1)

        with torch.no_grad():
            first, _ = features(inputs[..., :1, :])
        shape = torch.broadcast_shapes(first.shape[:-2], residual.shape[:-1], noise.shape[:-1])
        chunks = list(row_chunks(shape.numel() * first.size(-1), residual.size(-1)))
        total: Any = None
        for rows in chunks:
            chunk = inputs[..., rows, :], residual[..., rows], noise[..., rows]
            if len(chunks) > 1:
                new: Any = checkpoint(sums, *chunk, use_reentrant=False, preserve_rng_state=False)
            else:
                new = sums(*chunk)
            total = new if total is None else [a + b for a, b in zip(total, new, strict=True)]
        gram, cross, constant = total
        return cls(gram.expand(*shape, -1, -1), cross.expand(*shape, -1), constant)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Return posterior means ``... x P`` and Cholesky factors of the precisions, or NaN."""
        eye = torch.eye(self.gram.size(-1), dtype=self.gram.dtype, device=self.gram.device)
        factor, info = torch.linalg.cholesky_ex(eye + self.gram)
        factor = factor.masked_fill((info != 0)[..., None, None], torch.nan)
        return torch.cholesky_solve(self.cross.unsqueeze(-1), factor).squeeze(-1), factor

    def checked_solve(self) -> tuple[Tensor, Tensor]:
        """Return :meth:`solve`, or raise a NotPSDError if a value is not finite."""
        weights, factor = self.solve()
        if not bool(weights.isfinite().all() and factor.isfinite().all()):
            raise NotPSDError("The posterior precision of the features' weights is not finite.")
        return weights, factor

    def log_density(self) -> Tensor:
        """Return log densities ``...``, which lose digits if the noise is very small."""
        weights, factor = self.checked_solve()
        log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (self.constant + log_determinant - (self.cross * weights).sum(-1))


def _scaled(
    features: Features, inputs: Tensor, residual: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return features and residuals over the noise's std, and other terms of the density."""
    phi, omitted = features(inputs)
    noise = noise.double()
    others = noise.log() + math.log(2 * math.pi)
    if omitted is not None:
        others = others + omitted.double() / noise
    std = noise.sqrt()
    return phi.double() / std.unsqueeze(-1), residual.double() / std, others


def row_chunks(width: int, num_rows: int) -> Iterator[slice]:
    """Yield slices of rows of ``width`` features, with at most ``_CHUNK_ENTRIES`` features each."""
    size = max(1, _CHUNK_ENTRIES // max(1, width))
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))
