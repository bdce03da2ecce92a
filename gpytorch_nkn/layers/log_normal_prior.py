"""Log-normal prior that goes with its module to another device or dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpytorch
import torch
from torch import Tensor

__all__ = ["LogNormalPrior", "apply_to_base", "log_normal_prior"]


class LogNormalPrior(gpytorch.priors.LogNormalPrior):
    """GPyTorch's, whose ``to`` moves what its state dict holds but not what densities are of.

    Args:
        loc, scale: Mean and standard deviation of the logarithm.
        validate_args: Whether a density of values outside the support raises an error.
        transform: Of the values.
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
        """Log density, for one location and scale in the fewest operations.

        A network has a dozen priors, and PyTorch's density of each takes twice as long.
        """
        loc, scale = self.base_dist.loc, self.base_dist.scale
        if self.validate_args or loc.dim() or scale.dim():
            return super().log_prob(x)
        center, spread = loc.item(), scale.item()
        mode = center - spread**2  # of the logarithm, where the density of x is highest
        constant = 0.5 * spread**2 - center - math.log(spread) - 0.5 * math.log(2 * math.pi)
        distance = self.transform(x).log() - mode
        return torch.addcmul(
            distance.new_full((), constant), distance, distance, value=-0.5 / spread**2
        )

    def expand(self, batch_shape: Sequence[int]) -> LogNormalPrior:
        """The same prior with a larger batch shape."""
        shape = torch.Size(batch_shape)
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return LogNormalPrior(loc, scale, self.validate_args, self._transform)


def log_normal_prior(mode: float, scale: float) -> LogNormalPrior:
    """Log-normal prior whose density is highest at ``mode``.

    The mode of a log-normal lies at exp(location - scale^2): a wide one centred by its median
    would pull a maximum a posteriori far below it. With this location the log density is, up to
    a constant, -(log value - log mode)^2 / (2 scale^2).
    """
    return LogNormalPrior(math.log(mode) + scale**2, scale)


def apply_to_base(prior: Any, fn: Callable[[Tensor], Tensor]) -> None:
    """Convert the base of a transformed prior, which GPyTorch's ``to`` leaves behind."""
    base = getattr(prior, "base_dist", None)
    for name, value in vars(base).items() if base is not None else ():
        if isinstance(value, Tensor):
            setattr(base, name, fn(value))
