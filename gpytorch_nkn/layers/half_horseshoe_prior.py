"""Horseshoe prior of non-negative values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import HalfCauchy, constraints
from torch.nn.functional import softplus

from gpytorch_nkn.layers.prior_without_moments import PriorWithoutMoments

__all__ = ["HalfHorseshoePrior"]


class HalfHorseshoePrior(PriorWithoutMoments):
    r"""Prior of values most of which are nearly zero and a few of which are large.

    .. math:: w = |z|, \qquad z \sim N(0, \lambda^2 \tau^2), \qquad \lambda \sim C^+(0, 1)

    The density is an exponential integral. As :class:`gpytorch.priors.HorseshoePrior` does, it is
    approximated by the mean of two bounds, here twice as high because the negative half is folded
    over:

    .. math::
        p(w) \approx \frac{K}{2} \log\Bigl(1 + \frac{4 \tau^2}{w^2}\Bigr)
            + K \log\Bigl(1 + \frac{2 \tau^2}{w^2}\Bigr), \qquad K = (2 \pi^3)^{-1/2} / \tau

    (GPyTorch leaves out the :math:`1 / \tau`, which is a constant; so does this class.) It grows
    without bound towards zero, but only as :math:`\log \log (1 / w)` in the log density, which is
    finite for every positive number, however small. Draws are exactly of this density: since
    :math:`\log(1 + a^2 / w^2) = \int_0^a 2 u / (w^2 + u^2)\, du`, it is a mixture of half-Cauchy
    densities whose scales are uniform from zero to :math:`2 \tau` or to :math:`\sqrt{2} \tau`.
    Unlike GPyTorch's, every value that is drawn has a scale of its own.

    Args:
        scale: :math:`\tau`, a positive number or a tensor of the batch shape of the prior.

    Raises:
        ValueError: ``scale`` is not positive and finite.

    Reference: Carvalho, Polson and Scott (2010), The horseshoe estimator for sparse signals,
    theorem 1.

    Example:
        >>> prior = HalfHorseshoePrior(0.1)
        >>> bool((prior.sample(torch.Size([5])) >= 0).all())
        True
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: float | Tensor):
        torch.nn.Module.__init__(self)
        value = torch.as_tensor(scale)
        if not value.is_floating_point():
            value = value.to(torch.get_default_dtype())
        if not bool((value > 0).all() and value.isfinite().all()):
            raise ValueError(f"scale must be positive and finite, got {scale}.")
        super().__init__(value.shape, validate_args=False)
        self.register_buffer("scale", value)
        self._transform = None

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density at non-negative values that broadcast with the scale; infinite at zero."""
        # log(1 + c / w^2) as softplus(log c - 2 log w), which does not overflow for tiny w
        ratio = 2 * (self.scale.log() - x.log())
        bounds = 0.5 * softplus(math.log(4) + ratio) + softplus(math.log(2) + ratio)
        return bounds.log() - 0.5 * math.log(2 * math.pi**3)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws ``sample_shape x batch_shape``, independent of each other."""
        scale = self.scale.expand(torch.Size(sample_shape) + self.batch_shape)
        # The bounds contribute to the integral in proportion to 1 and the root of 2.
        upper = torch.where(torch.rand_like(scale) * (1 + math.sqrt(2)) < 1, 2, math.sqrt(2))
        return scale * upper * torch.rand_like(scale) * HalfCauchy(torch.ones_like(scale)).rsample()

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> HalfHorseshoePrior:
        """The same prior with a larger batch shape."""
        return HalfHorseshoePrior(self.scale.expand(torch.Size(batch_shape)))
