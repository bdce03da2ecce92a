"""Predictions of a GP on a grid with missing cells, for fixed hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from gpytorch_nkn.linalg import PartialKronecker, kronecker_multiply
from gpytorch_nkn.linalg.grid import outer_product

__all__ = ["GridPosterior"]

_DENSE_CELLS = 6000  # largest number of unknowns whose matrix is factorised
_DENSE_ELEMENTS = 4 * _DENSE_CELLS**2  # largest number of elements of all such matrices
_CHUNK_ELEMENTS = 2**23  # elements of a temporary array


class GridPosterior:
    r"""Mean and covariance of the function given the observed cells of a grid.

    Cross-covariances are products over the dimensions. With the coefficients c of a point's
    cross-covariance in the eigenbasis, :math:`k_*^\top A_{oo}^{-1} k_*` is
    :math:`c^\top D c - s^\top (A^{-1})_{hh}^{-1} s`. D is the inverse of the spectrum plus noise,
    and s the part of :math:`A^{-1} k_*` at the missing cells. Residuals, the targets minus the
    prior mean, are ``... x n_1 x ... x n_P`` and zero at missing cells.
    """

    def __init__(self, system: PartialKronecker, residual: Tensor):
        self.system = system
        self.residual = residual
        self.num_dims = system.num_dims
        self.coefficients = system.weights(residual).coefficients
        # variances need a matrix of the missing or of the observed cells
        self._of_holes = bool(system.grid.unknown.sum() <= system.grid.observed.sum())

    def mean(self, crosses: Sequence[Tensor]) -> Tensor:
        """Return posterior minus prior mean ``... x m_1 x ... x m_P`` on another grid.

        ``crosses`` are its covariances with the training grid, ``... x m_p x n_p``.
        """
        pairs = zip(crosses, self.system.eigen.vectors, strict=True)
        return kronecker_multiply([cross @ q for cross, q in pairs], self.coefficients)

    def point_means(self, rows: Sequence[Tensor]) -> Tensor:
        """Return posterior minus prior mean ``... x q`` at points.

        ``rows`` are the points' cross-covariances ``... x q x n_p``, one per dimension.
        """
        axes = tuple(range(-self.num_dims, 0))
        return (self._cells(rows) * self.coefficients).sum(axes).movedim(0, -1)

    def explained(self, rows: Sequence[Tensor], *, diag: bool = False) -> Tensor:
        """Return prior minus posterior covariance of points, ``... x q x q``, or its diagonal."""
        if not diag:
            return self._explained(rows, diag)
        size = max(1, _CHUNK_ELEMENTS // self.system.inverse.numel())
        parts = zip(*(row.split(size, -2) for row in rows), strict=True)
        return torch.cat([self._explained(chunk, diag) for chunk in parts], -1)

    def _cells(self, rows: Sequence[Tensor]) -> Tensor:
        """Return coefficients ``q x ... x n_1 x ... x n_P`` of rows ``... x q x n_p``."""
        pairs = zip(rows, self.system.eigen.vectors, strict=True)
        product = outer_product([row @ vectors for row, vectors in pairs])
        product = product.movedim(-1 - self.num_dims, 0)
        lacking = 1 + self.coefficients.dim() - product.dim()
        return product[(slice(None), *[None] * lacking)] if lacking > 0 else product

    def _explained(self, rows: Sequence[Tensor], diag: bool) -> Tensor:
        system, cells = self.system, self._cells(rows)
        weighted = cells * system.inverse
        first = _products(cells, weighted, self.num_dims, diag)
        if system.grid.is_complete:
            return first
        if not self._of_holes and self._dense_factor is not None:
            space = system.grid.observed * system.eigen.from_basis(cells)
            return self._inverse_form(space, diag)
        space = system.grid.unknown * kronecker_multiply(system.expand, weighted)
        return first - self._inverse_form(space, diag)

    def _inverse_form(self, space: Tensor, diag: bool) -> Tensor:
        """Return bilinear forms of vectors with the inverse of ``A_oo`` or ``(A^-1)_hh``."""
        half = self._whitened(space)
        if half is not None:
            half = half.movedim(0, -2)
            return half.square().sum(-1) if diag else half @ half.mT
        with torch.no_grad():
            solved = self.system.solve(space.detach())
        if space.requires_grad:
            # differentiable in the points; the error is of second order in the residual
            space = 2 * space - self.system.multiply(solved)
        form = _products(space, solved, self.num_dims, diag)
        return form if diag else 0.5 * (form + form.mT)

    def _whitened(self, space: Tensor) -> Tensor | None:
        """Solve with a Cholesky factor for vectors ``q x ... x u``; None without a factor."""
        factor, system = self._dense_factor, self.system
        if factor is None:
            return None
        mask = system.grid.unknown if self._of_holes else system.grid.observed
        vectors = space[..., mask]
        lead = torch.broadcast_shapes(vectors.shape[:-1], system.batch_shape)
        vectors = vectors.expand(*lead, -1).reshape(-1, *system.batch_shape, factor.size(-1))
        half = torch.linalg.solve_triangular(factor, vectors.movedim(0, -1), upper=False)
        return half.movedim(-1, 0).reshape(*lead, factor.size(-1))

    @cached_property
    def _dense_factor(self) -> Tensor | None:
        """Cholesky factors ``... x u x u``; None if too large or if missing cells differ."""
        grid, num_grids = self.system.grid, self.system.batch_shape.numel()
        size = int((grid.unknown if self._of_holes else grid.observed).sum())
        if grid.batch_shape or size > _DENSE_CELLS or num_grids * size**2 > _DENSE_ELEMENTS:
            return None
        factor, failed = torch.linalg.cholesky_ex(self.system.dense_matrix(self._of_holes))
        return None if bool(failed.any()) else factor


def _products(left: Tensor, right: Tensor, num_dims: int, diag: bool) -> Tensor:
    """Return inner products ``... x q x q`` (``diag``: ``... x q``) of ``q x ... x n_P``."""
    if diag:
        return (left * right).sum(tuple(range(-num_dims, 0))).movedim(0, -1)
    left, right = torch.broadcast_tensors(left, right)
    left, right = (t.flatten(t.dim() - num_dims).movedim(0, -2) for t in (left, right))
    return left @ right.mT
