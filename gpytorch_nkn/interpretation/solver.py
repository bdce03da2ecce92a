"""One factorisation of the training covariance, and what components take from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["Levels", "Solver"]


class Solver(ExactPosterior):
    """The posterior of a fitted process, whose one factorisation serves all its components.

    Args:
        gp: The fitted process.
    """

    def __init__(self, gp: FittedGP):
        super().__init__(gp.covariance + torch.diag_embed(gp.noise), gp.targets - gp.mean)


@dataclass(frozen=True, eq=False)
class Levels:
    """Averages of all components, which belong to the component ``home``.

    Attributes:
        home: Number of a component; None where there is none, and averages are only taken away.
        means: ``J x ... x 1``.
        whitened: Covariances with the targets, whitened, ``J x ... x N x 1``.
        variances: Prior variances ``J x ...``.
    """

    home: int | None
    means: Tensor
    whitened: Tensor
    variances: Tensor

    def move(
        self, mean: Tensor, whitened: Tensor, prior: Tensor, cross: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take the averages away from values at new inputs.

        Args:
            mean: ``J x ... x M``.
            whitened: ``J x ... x N x M``.
            prior: Prior variances ``J x ... x M``.
            cross: Prior covariances of values and averages ``J x ... x M``.
        """
        moved = mean - self.means, whitened - self.whitened
        variances = prior - 2 * cross + self.variances.unsqueeze(-1)
        if self.home is not None:  # which keeps its own average and gets the others'
            others = [n for n in range(len(mean)) if n != self.home]
            moved[0][self.home] = mean[self.home] + self.means[others].sum(0)
            moved[1][self.home] = whitened[self.home] + self.whitened[others].sum(0)
            levels = self.variances[others].sum(0).unsqueeze(-1)
            variances[self.home] = prior[self.home] + levels
        return *moved, variances
