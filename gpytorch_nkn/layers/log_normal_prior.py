"""Log-normal prior that goes with its module to another device or dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpytorch
import torch
from torch import Tensor

__all__ = ["LogNormalPrior", "log_normal_prior"]


class LogNormalPrior(gpytorch.priors.LogNormalPrior):
    """GPyTorch's, whose ``to`` moves what its state dict holds but not what densities are of.

    Args:
        loc, scale: Mean and standard deviation of the logarithm.
        transform: Of the values.
    """

    def __init__(
        self,
        loc: float | Tensor,
        scale: float | Tensor,
        validate_args: bool | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(loc, scale, validate_args, transform)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LogNormalPrior:
        super()._apply(fn, recurse)
        base: Any = self.base_dist
        base.loc, base.scale = fn(base.loc), fn(base.scale)
        return self

    def expand(self, batch_shape: Sequence[int]) -> LogNormalPrior:
        """The same prior with a larger batch shape."""
        shape = torch.Size(batch_shape)
        return LogNormalPrior(
            self.loc.expand(shape), self.scale.expand(shape), transform=self._transform
        )


def log_normal_prior(mode: float, scale: float) -> LogNormalPrior:
    """Log-normal prior whose density is highest at ``mode``.

    The mode of a log-normal lies at exp(location - scale^2): a wide one centred by its median
    would pull a maximum a posteriori far below it. With this location the log density is, up to
    a constant, -(log value - log mode)^2 / (2 scale^2).
    """
    return LogNormalPrior(math.log(mode) + scale**2, scale)
