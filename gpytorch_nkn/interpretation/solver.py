"""One factorisation of the training covariance, and what components take from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.linalg import factorize

__all__ = ["Levels", "Solver", "root"]


class Solver:
    """One factorisation of the training covariance for all components.

    Args:
        gp: The fitted process.

    Attributes:
        residual: Targets less prior mean ``... x N``.
        alpha: The residual solved by covariance plus noise, ``... x N``.
    """

    def __init__(self, gp: FittedGP):
        self.residual = gp.targets - gp.mean
        noisy = gp.covariance + torch.diag_embed(gp.noise)
        self._factor, failed = factorize(noisy)
        _refuse(failed)
        self.alpha = self.solve(self.residual.unsqueeze(-1))[..., 0]

    @cached_property
    def precision(self) -> Tensor:
        """Inverse of covariance plus noise, ``... x N x N``."""
        return torch.cholesky_inverse(self._factor)

    def solve(self, right: Tensor) -> Tensor:
        """Solve for ``... x N x R``."""
        return torch.cholesky_solve(right, self._factor)

    def mean(self, cross: Tensor) -> Tensor:
        """Posterior mean ``... x M`` for cross covariances ``... x M x N``."""
        return (cross @ self.alpha.unsqueeze(-1))[..., 0]

    def whiten(self, cross: Tensor) -> Tensor:
        """Cross covariances ``... x M x N`` as ``... x N x M``, whose products reduce variances."""
        return torch.linalg.solve_triangular(self._factor, cross.mT, upper=False)

    def reduction(self, cross: Tensor) -> Tensor:
        """By how much the data reduce variances, ``... x M``."""
        return self.whiten(cross).square().sum(-2)

    def leave_out(self, blocks: Sequence[Tensor]) -> Tensor:
        """Solved residuals ``... x N x B``, each without one block of the data (zeros there)."""
        precision, columns = self.precision, []
        for block in blocks:
            inner = precision[..., block, :][..., block]
            own = self.alpha[..., block].unsqueeze(-1)
            removed = torch.linalg.solve(inner, own)
            column = self.alpha - (precision[..., block] @ removed)[..., 0]
            column[..., block] = 0.0
            columns.append(column)
        return torch.stack(columns, dim=-1)


def root(matrix: Tensor) -> Tensor:
    """A matrix F with F F^T equal to one that rounding may have made indefinite."""
    factor, failed = factorize(matrix)
    if not bool(failed.any()):
        return factor
    values, vectors = torch.linalg.eigh(matrix)
    root = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return torch.where(failed[..., None, None], root, factor)


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


def _refuse(failed: Tensor) -> None:
    if bool(failed.any()):
        raise torch.linalg.LinAlgError("A covariance matrix is not positive definite.")
