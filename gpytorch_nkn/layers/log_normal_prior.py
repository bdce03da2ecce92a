"""Log-normal prior that can be converted to another device or dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpytorch
import torch
from torch import Tensor

__all__ = ["LogNormalPrior", "apply_to_base", "dimension_scaled_prior", "log_normal_prior"]


class LogNormalPrior(gpytorch.priors.LogNormalPrior):
    """Log-normal prior whose ``to`` also converts its base distribution, unlike GPyTorch's.

    Args:
        loc, scale: Mean and standard deviation of the logarithm.
        validate_args: Raise an error for values outside the support.
        transform: Applied to values before their density is computed.
    """

    def __init__(
        self,
        loc: float | Tensor,
        scale: float | Tensor,
        validate_args: bool = False,
        transform: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(loc, scale, validate_args, transform)
        self.validate_args = validate_args

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LogNormalPrior:
        super()._apply(fn, recurse)
        apply_to_base(self, fn)
        return self

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log density; twice as fast as PyTorch for scalar parameters."""
        loc, scale = self.base_dist.loc, self.base_dist.scale
        if self.validate_args or loc.dim() or scale.dim():
            return super().log_prob(x)
        mean, std = loc.item(), scale.item()
        log_mode = mean - std**2  # logarithm of the mode
        constant = 0.5 * std**2 - mean - math.log(std) - 0.5 * math.log(2 * math.pi)
        distance = self.transform(x).log() - log_mode
        return torch.addcmul(
            distance.new_full((), constant), distance, distance, value=-0.5 / std**2
        )

    def expand(self, batch_shape: Sequence[int]) -> LogNormalPrior:
        """Return the same prior with a larger batch shape."""
        shape = torch.Size(batch_shape)
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return LogNormalPrior(loc, scale, self.validate_args, self._transform)


def log_normal_prior(mode: float, scale: float) -> LogNormalPrior:
    """Return a log-normal prior with this mode and standard deviation of the logarithm.

    The mode exp(location - scale^2) of a wide log-normal is far below its median. Up to a constant
    the log density is -(log value - log mode)^2 / (2 scale^2). Maximum a posteriori estimates
    therefore shrink towards the mode.
    """
    return LogNormalPrior(math.log(mode) + scale**2, scale)


def dimension_scaled_prior(num_columns: int) -> LogNormalPrior:
    """Return BoTorch's prior on lengthscales, whose median is proportional to sqrt(num_columns).

    Reference: Hvarfner, Hellsten and Nardi (2024), Vanilla Bayesian Optimization Performs Great in
    High Dimensions.
    """
    return LogNormalPrior(2**0.5 + math.log(num_columns) / 2, 3**0.5)


def apply_to_base(prior: Any, fn: Callable[[Tensor], Tensor]) -> None:
    """Convert the base distribution of a prior, which GPyTorch's ``to`` does not convert."""
    base = getattr(prior, "base_dist", None)
    for name, value in vars(base).items() if base is not None else ():
        if isinstance(value, Tensor):
            setattr(base, name, fn(value))
