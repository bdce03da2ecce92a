"""Log-normal prior that shrinks values towards zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.priors import Prior
from torch import Tensor
from torch.distributions import constraints

from gpytorch_nkn.layers.log_normal_prior import LogNormalPrior

__all__ = ["ShrunkLogNormalPrior"]


class _NoMomentError(NotImplementedError, AttributeError):
    """A moment has no closed form; PyTorch catches the first base class, ``hasattr`` the second."""


class ShrunkLogNormalPrior(Prior):
    r"""Unnormalised prior that shrinks values towards zero: log-normal times exponential density.

    .. math:: p(w) \propto \operatorname{LogNormal}(w \mid \mu, \sigma^2)\, \lambda e^{-\lambda w}

    The arguments are the log-normal prior and the rate :math:`\lambda`.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.positive
    _transform = None

    def __init__(self, log_normal: LogNormalPrior, rate: float):
        torch.nn.Module.__init__(self)
        super().__init__(log_normal.batch_shape, validate_args=False)
        self.log_normal = log_normal
        self.rate = rate

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log of the product of both densities."""
        log_normal = self.log_normal.log_prob(x) + math.log(self.rate)
        return torch.sub(log_normal, x, alpha=self.rate)

    @torch.no_grad()
    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw ``sample_shape x batch_shape`` samples by rejection, without gradients."""
        draws = self.log_normal.rsample(torch.Size(sample_shape))
        rejected = torch.rand_like(draws) > (-self.rate * draws).exp()
        while bool(rejected.any()):
            new = self.log_normal.rsample(torch.Size(sample_shape))
            draws = torch.where(rejected, new, draws)
            rejected &= torch.rand_like(draws) > (-self.rate * draws).exp()
        return draws

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> ShrunkLogNormalPrior:
        """Return the same prior with a larger batch shape."""
        return ShrunkLogNormalPrior(self.log_normal.expand(batch_shape), self.rate)

    mean = mode = stddev = variance = property()  # no closed form; __getattr__ raises

    def __getattr__(self, name: str) -> Any:
        if name in ("mean", "mode", "stddev", "variance"):
            raise _NoMomentError(f"The {name} of {type(self).__name__} has no closed form.")
        return super().__getattr__(name)
