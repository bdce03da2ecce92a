"""Exact posterior of a Gaussian process by one dense Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from gpytorch_nkn.linalg.cholesky import JITTERS, factorize, solve_lower
from gpytorch_nkn.linalg.gaussian import solve_in_place

__all__ = ["ExactPosterior"]


class ExactPosterior:
    r"""Posterior of a zero-mean Gaussian process given noisy values at N points.

    .. math::
        \alpha = K^{-1} r, \qquad m_* = k_*^\top \alpha, \qquad
        v_* = k_{**} - \lVert L^{-1} k_* \rVert^2, \qquad K = L L^\top

    Args:
        covariance: Symmetric matrices ``... x N x N``, noise included. Matrices that are not
            positive definite get a jitter of up to 1e-6 of their mean diagonal.
        residual: Values minus their prior mean, ``... x N``.

    Attributes:
        alpha: :math:`\alpha`, ``... x N``.
        factor: L, in the lower triangle of ``... x N x N``.

    Raises:
        torch.linalg.LinAlgError: A matrix is not positive definite, even with jitter.

    Reference: Rasmussen and Williams (2006), sections 2.2 and 5.4.2.
    """

    def __init__(self, covariance: Tensor, residual: Tensor):
        self.residual = residual
        self.factor, failed = factorize(covariance)
        if bool(failed.any()):
            raise _not_positive_definite()
        self.alpha = self.solve(residual.unsqueeze(-1))[..., 0]

    @classmethod
    def from_fill(cls, fill: Callable[[Tensor], None], residual: Tensor) -> ExactPosterior:
        """Compute the posterior in the memory of one matrix ``N x N``; ``fill`` writes K there."""
        self = cls.__new__(cls)
        n = residual.numel()
        self.residual, self.factor = residual, residual.new_empty(n, n)
        _, alpha = solve_in_place(fill, residual, self.factor, invert=False)
        if alpha is None:
            raise _not_positive_definite()
        self.alpha = alpha
        return self

    @cached_property
    def precision(self) -> Tensor:
        """Inverse of the covariance, ``... x N x N``."""
        return torch.cholesky_inverse(self.factor)

    def solve(self, right: Tensor) -> Tensor:
        """Multiply ``... x N x R`` by the inverse covariance."""
        return torch.cholesky_solve(right, self.factor)

    def mean(self, cross: Tensor) -> Tensor:
        """Return posterior means ``... x M`` for cross covariances ``... x M x N``."""
        return (cross @ self.alpha.unsqueeze(-1))[..., 0]

    def whiten(self, cross: Tensor) -> Tensor:
        """Return ``L^-1 k_*``, ``... x N x M``, for cross covariances ``... x M x N``."""
        return solve_lower(self.factor, cross.mT)

    def reduction(self, cross: Tensor) -> Tensor:
        """Return prior minus posterior variances ``... x M``, for cross covariances."""
        return self.whiten(cross).square().sum(-2)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance (noise included) ``... x N`` of each value given all others."""
        inverse = torch.cholesky_inverse(self.factor)  # not cached, to save memory
        precision = inverse.diagonal(dim1=-2, dim2=-1)
        return self.residual - self.alpha / precision, 1 / precision

    def leave_blocks_out(self, blocks: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        r"""Return mean and variance (noise included) ``... x b`` of each block given the others.

        .. math::
            \mu_b = r_b - \Lambda_{bb}^{-1} \alpha_b, \qquad
            \Sigma_b = \Lambda_{bb}^{-1}, \qquad \Lambda = K^{-1}

        A block is given by the indices ``b`` of its values.
        """
        predictions = []
        for block in blocks:
            factor, removed = self._without(block)
            variance = torch.cholesky_inverse(factor).diagonal(dim1=-2, dim2=-1)
            predictions.append((self.residual[..., block] - removed[..., 0], variance))
        return predictions

    def alpha_without(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return ``alpha`` with each of B blocks held out in turn, ``... x N x B``.

        Blocks are as in :meth:`leave_blocks_out`. Entries in the held-out block are zero.
        """
        columns = []
        for block in blocks:
            column = self.alpha - (self.precision[..., block] @ self._without(block)[1])[..., 0]
            column[..., block] = 0.0
            columns.append(column)
        return torch.stack(columns, dim=-1)

    def _without(self, block: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return the Cholesky factor of :math:`\Lambda_{bb}`, and its solve with ``alpha_b``."""
        # not by LU factorisation: in torch 2.13 it hangs for batches with two or more threads
        factor = torch.linalg.cholesky(self.precision[..., block, :][..., block])
        return factor, torch.cholesky_solve(self.alpha[..., block].unsqueeze(-1), factor)


def _not_positive_definite() -> torch.linalg.LinAlgError:
    return torch.linalg.LinAlgError(
        "The covariance matrix with noise is not positive definite, even with a jitter of "
        f"{JITTERS[-1]:g} of its mean diagonal."
    )
