"""Outcomes on another scale for each member of an ensemble."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from linear_operator.settings import cholesky_jitter
from torch import Tensor

__all__ = [
    "IDENTITY",
    "MemberWarp",
    "fit_warp",
    "secant",
    "unwarped",
    "warp_slope",
    "warped",
]

# Direction, location, scale, end, mean and standard deviation, and the best of the values; a
# direction of 0 changes nothing.
IDENTITY = (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0)

_LOCATIONS = (0.5, 0.75, 0.9, 1.0)  # quantiles
_SCALES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # in standard deviations
_LEAST = 1e-3  # distance, in standard deviations, up to which a warp is taken as linear


def warped(y: Tensor, warp: Tensor) -> Tensor:
    r"""Values on the scale of a warp.

    With :math:`u = \pm (y - a) / c` it is :math:`u` above 0 and :math:`-\log(1 - u)` below, linear
    beyond the data, then standardised: values far from :math:`a` on one side are drawn together.
    Values are ``...``, warps ``... x 7``, as :func:`fit_warp` returns them.
    """
    direction, location, scale, end, mean, deviation, _ = warp.unbind(-1)
    u = direction * (y - location) / scale
    below = torch.minimum((-u).clamp_min(0), end)
    beyond = (-u - end).clamp_min(0) / (1 + end)
    z = direction * (u.clamp_min(0) - below.log1p() - beyond)
    return torch.where(direction == 0, y, (z - mean) / deviation)


def warp_slope(y: Tensor, warp: Tensor) -> Tensor:
    """Derivative of :func:`warped` by ``y``."""
    direction, location, scale, end, _, deviation, _ = warp.unbind(-1)
    below = torch.minimum((direction * (location - y) / scale).clamp_min(0), end)
    slope = 1 / ((1 + below) * scale * deviation)
    return torch.where(direction == 0, torch.ones_like(slope), slope)


def unwarped(z: Tensor, warp: Tensor) -> Tensor:
    """The inverse of :func:`warped`."""
    direction, location, scale, end, mean, deviation, _ = warp.unbind(-1)
    u = direction * (z * deviation + mean)
    knee = end.log1p()
    below = torch.minimum((-u).clamp_min(0), knee)
    beyond = (-u - knee).clamp_min(0) * (1 + end)
    y = direction * (u.clamp_min(0) - below.expm1() - beyond) * scale + location
    return torch.where(direction == 0, z, y)


@torch.no_grad()
def fit_warp(y: Tensor, maximize: bool = True) -> Tensor:
    """The warp under which values ``N`` are most like a normal sample, ``7``.

    The best of a few locations, scales and directions by the likelihood of a normal distribution.
    The best value, of :func:`secant`, is the largest, or with ``maximize=False`` the smallest.
    """
    best = y.max() if maximize else y.min()
    deviation = y.std() if len(y) > 1 else y.new_zeros(())
    if not deviation > 1e3 * torch.finfo(y.dtype).eps * y.abs().max():
        return y.new_tensor(IDENTITY)
    found: list[tuple[float, int, Tensor]] = []
    for direction in (1.0, -1.0):
        for level in _LOCATIONS:
            location = direction * (direction * y).quantile(level)
            for scale in _SCALES:
                end = (direction * (location - y) / (scale * deviation)).max()
                given = [direction, location, scale * deviation, end, 0.0, 1.0, best]
                start = y.new_tensor(given)
                z = warped(y, start)
                start[4:6] = torch.stack([z.mean(), z.std()])
                found.append((warp_slope(y, start).log().sum().item(), len(found), start))
    return max(found)[-1]  # all have standardised values: what differs is the slope


class MemberWarp(OutcomeTransform):
    r"""A warp of the outcomes for each member of an ensemble.

    The posterior of a warped outcome is not Gaussian. It becomes the Gaussian with its median,
    its probability to exceed the best training target, and its correlations. Warps are ``S x 7``.
    """

    warps: Tensor
    _is_linear = True  # in BoTorch's sense: what was Gaussian is Gaussian

    def __init__(self, warps: Tensor):
        super().__init__()
        self.register_buffer("warps", warps)

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Outcomes, and variances by the slope, ``... x S x q x 1``."""
        warps = self._warps()
        if Yvar is not None:
            Yvar = Yvar * warp_slope(Y, warps).square()
        return warped(Y, warps), Yvar

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The inverse of ``forward``; values ``n x 1`` are those of the first member."""
        warps = self._warps() if Y.dim() > 2 else self.warps[0]
        Y = unwarped(Y, warps)
        if Yvar is not None:
            Yvar = Yvar / warp_slope(Y, warps).square()
        return Y, Yvar

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> Posterior:
        """The Gaussian posterior of the outcomes ``... x S x q x 1``."""
        kind: Any = type(posterior)
        if kind not in (GPyTorchPosterior, GaussianMixturePosterior):
            raise NotImplementedError(
                f"Only Gaussian posteriors are transformed back, got {kind.__name__}."
            )
        if not (self.warps[..., 0] != 0).any():
            return posterior
        given = cast(GPyTorchPosterior, posterior).distribution
        warps = self.warps.unsqueeze(-2)
        mean, ratio = secant(given.mean, warps)
        # GPyTorch adds its jitter to what it factorises, here after the scales have come to differ.
        jitter = cholesky_jitter.value(mean.dtype) * (warps[..., 0] != 0).to(mean)
        scale = DiagLinearOperator(ratio)
        covariance = scale @ given.lazy_covariance_matrix @ scale
        covariance = covariance + DiagLinearOperator(jitter * ratio.square())
        return kind(MultivariateNormal(mean, covariance))

    def _warps(self) -> Tensor:
        return self.warps.unsqueeze(-2).unsqueeze(-2)  # S x 1 x 1 x 7


def secant(mean: Tensor, warp: Tensor) -> tuple[Tensor, Tensor]:
    r"""Means, and factors of standard deviations, that stand for those on the scale of a warp.

    With :math:`g` the inverse of the warp and :math:`z^*` the warped best value, the mean is
    :math:`g(m)` and standard deviations are multiplied by the slope of the secant
    :math:`(g(z^*) - g(m)) / (z^* - m)`. The interval of a standard deviation to either side would
    be wide where the values are drawn together, far below the best, and promise improvement there.
    """
    gap = warped(warp[..., 6], warp) - mean
    gap = torch.where(gap.abs() < _LEAST, torch.full_like(gap, _LEAST), gap)
    center = unwarped(mean, warp)
    return center, (unwarped(mean + gap, warp) - center) / gap
