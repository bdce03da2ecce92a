"""Outcome warps of ensemble members."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from linear_operator.settings import cholesky_jitter
from torch import Tensor

from gpytorch_nkn.models.base_gp import FEW_POINTS

__all__ = ["IDENTITY", "MemberWarp", "fit_warp", "secant", "unwarped", "warp_slope", "warped"]

# Entries of a warp: direction (0 for the identity), location, scale, end, mean, standard deviation,
# best value.
IDENTITY = (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0)

_LOCATIONS = (0.5, 0.75, 0.9, 1.0)  # candidate locations, as quantiles
_SCALES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # candidate scales, in standard deviations
_LEAST = 1e-3  # smallest distance between the points of a secant, in standard deviations


def warped(y: Tensor, warp: Tensor) -> Tensor:
    r"""Warp values ``...`` by warps ``... x 7`` from :func:`fit_warp`.

    With :math:`u = \pm (y - a) / c` the warp is :math:`\pm u` for :math:`u > 0`, otherwise
    :math:`\mp \log(1 - u)`, and linear beyond the data. The result is standardised. The warp
    compresses values far from :math:`a` on one side.
    """
    direction, location, scale, end, mean, std, _ = warp.unbind(-1)
    u = direction * (y - location) / scale
    below = torch.minimum((-u).clamp_min(0), end)
    beyond = (-u - end).clamp_min(0) / (1 + end)
    z = direction * (u.clamp_min(0) - below.log1p() - beyond)
    return torch.where(direction == 0, y, (z - mean) / std)


def warp_slope(y: Tensor, warp: Tensor) -> Tensor:
    """Return the derivative of :func:`warped` with respect to ``y``."""
    direction, location, scale, end, _, std, _ = warp.unbind(-1)
    below = torch.minimum((direction * (location - y) / scale).clamp_min(0), end)
    slope = 1 / ((1 + below) * scale * std)
    return torch.where(direction == 0, torch.ones_like(slope), slope)


def unwarped(z: Tensor, warp: Tensor) -> Tensor:
    """Invert :func:`warped`."""
    direction, location, scale, end, mean, std, _ = warp.unbind(-1)
    u = direction * (z * std + mean)
    knee = end.log1p()
    below = torch.minimum((-u).clamp_min(0), knee)
    beyond = (-u - knee).clamp_min(0) * (1 + end)
    y = direction * (u.clamp_min(0) - below.expm1() - beyond) * scale + location
    return torch.where(direction == 0, z, y)


@torch.no_grad()
def fit_warp(y: Tensor, maximize: bool = True) -> Tensor:
    """Return the warp, ``7``, with the highest normal likelihood of values ``N``.

    Candidates are a few locations, scales and directions. :func:`secant` uses the best value: the
    largest or, with ``maximize=False``, the smallest.
    """
    best = y.max() if maximize else y.min()
    std = y.std() if len(y) > 1 else y.new_zeros(())
    if not std > 1e3 * torch.finfo(y.dtype).eps * y.abs().max():
        return y.new_tensor(IDENTITY)
    trials: list[tuple[float, int, Tensor]] = []
    for direction in (1.0, -1.0):
        for level in _LOCATIONS:
            location = direction * (direction * y).quantile(level)
            for scale in _SCALES:
                end = (direction * (location - y) / (scale * std)).max()
                entries = [direction, location, scale * std, end, 0.0, 1.0, best]
                start = y.new_tensor(entries)
                z = warped(y, start)
                start[4:6] = torch.stack([z.mean(), z.std()])
                trials.append((warp_slope(y, start).log().sum().item(), len(trials), start))
    return max(trials)[-1]  # likelihoods of standardised values differ only by the slopes


class MemberWarp(OutcomeTransform):
    r"""Outcome transform with one warp for each of S members, ``S x 7``, after a shared transform.

    The posterior of a warped outcome is not Gaussian. It is replaced by the Gaussian with the same
    median, correlations and probability of exceeding the best training target. :func:`fit_warp`
    computes the warps. The shared transform must be linear; ``None`` is the identity.
    """

    warps: Tensor
    _is_linear = True  # as BoTorch defines it: posteriors remain Gaussian

    def __init__(self, warps: Tensor, shared: OutcomeTransform | None = None):
        super().__init__()
        self.register_buffer("warps", warps)
        self.shared = ChainedOutcomeTransform() if shared is None else shared

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Transform outcomes ``... x S x q x 1``, and variances by the squared slope."""
        Y, Yvar = self.shared(Y, Yvar=Yvar, X=X)
        if Yvar is not None:
            Yvar = Yvar * warp_slope(Y, self._warps()).square()
        return warped(Y, self._warps()), Yvar

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Invert ``forward``; values ``n x 1`` belong to the first member."""
        warps = self._warps() if Y.dim() > 2 else self.warps[0]
        Y = unwarped(Y, warps)
        if Yvar is not None:
            Yvar = Yvar / warp_slope(Y, warps).square()
        return self.shared.untransform(Y, Yvar=Yvar, X=X)

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> Posterior:
        """Return the Gaussian posterior of the outcomes ``... x S x q x 1``."""
        kind: Any = type(posterior)
        if kind not in (GPyTorchPosterior, GaussianMixturePosterior):
            raise NotImplementedError(f"posterior must be Gaussian, got {kind.__name__}.")
        is_warped = self.warps[:, :1] != 0
        if not is_warped.any():
            return self.shared.untransform_posterior(posterior, X=X)
        warped_normal = cast(GPyTorchPosterior, posterior).distribution
        center, ratio = secant(warped_normal.mean, self.warps.unsqueeze(-2))
        moments = center.unsqueeze(-1), ratio.square().unsqueeze(-1)
        mean, factors = (
            cast(Tensor, moment).squeeze(-1) for moment in self.shared.untransform(*moments, X=X)
        )
        # Add jitter before the change of scale; GPyTorch would add it afterwards.
        jitter = cholesky_jitter.value(mean.dtype) * is_warped.to(mean)
        added = DiagLinearOperator(jitter.expand_as(mean))
        scale, covariance = factors.sqrt(), warped_normal.lazy_covariance_matrix
        if mean.size(-1) > FEW_POINTS:
            diagonal = DiagLinearOperator(scale)
            covariance = diagonal @ (covariance + added) @ diagonal
        else:
            dense = covariance.to_dense() + added.to_dense()
            covariance = to_linear_operator(scale.unsqueeze(-1) * dense * scale.unsqueeze(-2))
        return kind(MultivariateNormal(mean, covariance))

    def _warps(self) -> Tensor:
        return self.warps.unsqueeze(-2).unsqueeze(-2)  # S x 1 x 1 x 7


def secant(mean: Tensor, warp: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return unwarped means, and the factors by which standard deviations are multiplied.

    Let :math:`g` be the inverse warp and :math:`z^*` the warped best value. The mean is
    :math:`g(m)`, and the factor is the slope :math:`(g(z^*) - g(m)) / (z^* - m)` of the secant.
    The slope of the tangent would be too large for compressed values far below the best, and would
    suggest improvement there.
    """
    gap = warped(warp[..., 6], warp) - mean
    gap = torch.where(gap.abs() < _LEAST, torch.full_like(gap, _LEAST), gap)
    center = unwarped(mean, warp)
    return center, (unwarped(mean + gap, warp) - center) / gap
