"""Grids with missing cells, and Gaussian vectors with Kronecker covariance on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpytorch_nkn.linalg.grid.conjugate_gradients import (
    Report,
    Solution,
    conjugate_gradients,
    warn_of_residual,
)
from gpytorch_nkn.linalg.grid.kronecker import KroneckerEigen, kronecker_multiply, paired_sum

__all__ = ["PartialGrid", "PartialKronecker", "Weights"]

_CHUNK_ELEMENTS = 2**23  # elements of a temporary array
_SPARE = 1.5  # largest box of missing cells, in missing cells, that is inverted as a whole


class PartialGrid:
    """A grid with missing cells, and the smallest sub-grid that contains the missing cells.

    Args:
        observed: Whether a cell is observed, ``... x n_1 x ... x n_P``.
        num_dims: Number of dimensions ``P`` of the grid, after the batch dimensions.

    Attributes:
        shape: Sizes ``n_1 x ... x n_P``.
        num_cells: Number of cells of the grid.
        num_observed: Numbers of observed cells ``...``.
        rows: Indices of the sub-grid in each dimension, where any batch entry misses a cell.
        missing: Missing cells of the sub-grid, ``... x h_1 x ... x h_P``.

    Raises:
        ValueError: A batch entry has no observed cell, or ``observed`` is not boolean.
    """

    def __init__(self, observed: Tensor, num_dims: int):
        if observed.dtype != torch.bool:
            raise ValueError(f"observed must be boolean, got {observed.dtype}.")
        self.observed = observed
        self.num_dims = num_dims
        self.shape = observed.shape[observed.dim() - num_dims :]
        self.batch_shape = observed.shape[: observed.dim() - num_dims]
        self.num_cells = self.shape.numel()
        self.num_observed = observed.flatten(-num_dims).sum(-1)
        if bool((self.num_observed == 0).any()):
            raise ValueError("Every grid of a batch must have an observed cell.")
        gone = ~observed.reshape(-1, *self.shape).all(0)
        self.rows = []
        for dim in range(num_dims):
            others = [d for d in range(num_dims) if d != dim]
            along = gone.any(dim=others) if others else gone
            self.rows.append(along.nonzero()[:, 0])
        self.missing = self.restrict(~observed)
        self._all_missing = bool(self.missing.all())

    @property
    def is_complete(self) -> bool:
        """Whether every cell is observed."""
        return self.missing.numel() == 0

    def restrict(self, array: Tensor) -> Tensor:
        """Restrict an array ``... x n_1 x ... x n_P`` to the sub-grid ``... x h_1 x ... x h_P``."""
        for dim, rows in enumerate(self.rows):
            array = array.index_select(dim - self.num_dims, rows)
        return array

    def only_missing(self, array: Tensor) -> Tensor:
        """Zero out the observed cells of an array ``... x h_1 x ... x h_P``."""
        return array if self._all_missing else array * self.missing

    def only_observed(self, array: Tensor) -> Tensor:
        """Zero out the missing cells of an array ``... x n_1 x ... x n_P``."""
        return array if self.is_complete else array * self.observed

    def embed(self, array: Tensor) -> Tensor:
        """Embed an array ``... x h_1 x ... x h_P`` on the sub-grid in zeros on the grid."""
        batch = array.shape[: array.dim() - self.num_dims]
        whole = array.new_zeros(*batch, *self.shape)
        index: tuple[Any, ...] = torch.meshgrid(*self.rows, indexing="ij")
        whole[(..., *index)] = array
        return whole


class Weights(NamedTuple):
    r"""The solution :math:`\alpha = A_{oo}^{-1} y_o` of :meth:`PartialKronecker.weights`.

    Attributes:
        coefficients: :math:`\alpha`, zero at missing cells, in the eigenbasis of the grid.
        state: A start for the next solve.
        quadratic: :math:`y_o^\top \alpha`, ``...``.
    """

    coefficients: Tensor
    state: Tensor | None
    quadratic: Tensor


class PartialKronecker:
    r"""Solves with :math:`A_{oo}`, where :math:`A = K_1 \otimes \dots \otimes K_P + \sigma^2 I`.

    Observed cells are o and missing cells h. On a complete grid, systems are solved by the
    eigendecompositions of the factors. Otherwise conjugate gradients solve
    :math:`(A^{-1})_{hh} f = -(A^{-1})_{ho} y_o` in the space of the missing cells. The vector
    :math:`A^{-1} (y_o, f)` is then zero at missing cells and :math:`A_{oo}^{-1} y_o` at observed
    cells. The solution f is the posterior mean, and :math:`A_{hh}` is a good preconditioner. In the
    space of observed cells, with :math:`(A^{-1})_{oo}` as preconditioner, the spectrum and thus the
    number of iterations would be the same.

    Args:
        grid: Which cells are observed.
        factors: Symmetric positive semi-definite matrices ``... x n_p x n_p``.
        noise: Variance of the noise ``...``.
        tolerance: Residual, relative to the right-hand side, at which a solve stops.
        max_iterations: Largest number of conjugate gradient iterations.
        eigen: Eigendecomposition of the factors, if known.
        report: Called after each solve, see :class:`GridLikelihood`.

    Attributes:
        batch_shape: Batch shape of the systems.
        iterations: Conjugate gradient iterations of all solves.
        expand: Rows of the eigenvectors on the sub-grid of the missing cells.

    Reference: Sun et al. (2018), appendix J.4, whose model this is.
    """

    def __init__(
        self,
        grid: PartialGrid,
        factors: Sequence[Tensor],
        noise: Tensor,
        *,
        tolerance: float,
        max_iterations: int,
        eigen: KroneckerEigen | None = None,
        report: Report = warn_of_residual,
    ):
        self.grid = grid
        self.num_dims = grid.num_dims
        self.factors = [factor.detach() for factor in factors]
        self.eigen = KroneckerEigen(self.factors) if eigen is None else eigen
        self.noise = noise.detach()[(..., *[None] * grid.num_dims)]
        self.spectrum = self.eigen.products
        self.inverse = (self.spectrum + self.noise).reciprocal()
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.report = report
        self.iterations = 0
        own = self.inverse.shape[: self.inverse.dim() - grid.num_dims]
        self.batch_shape = torch.broadcast_shapes(own, grid.batch_shape)
        self.expand = [
            q.index_select(-2, r) for q, r in zip(self.eigen.vectors, grid.rows, strict=True)
        ]
        self._contract = [q.mT.contiguous() for q in self.expand]
        self._prior = [
            k.index_select(-2, r).index_select(-1, r)
            for k, r in zip(self.factors, grid.rows, strict=True)
        ]

    def to_basis(self, array: Tensor) -> Tensor:
        """Eigenbasis coefficients of an array on the sub-grid of the missing cells."""
        return kronecker_multiply(self._contract, array)

    def multiply(self, array: Tensor) -> Tensor:
        r"""Multiply by :math:`(A^{-1})_{hh}`."""
        basis = self.to_basis(array) * self.inverse
        return self.grid.only_missing(kronecker_multiply(self.expand, basis))

    def _precondition(self, array: Tensor) -> Tensor:
        smooth = self.grid.only_missing(kronecker_multiply(self._prior, array))
        return smooth + self.noise * array

    def solve(
        self, target: Tensor, start: Tensor | None = None, *, tolerance: float | None = None
    ) -> Solution:
        r"""Solve with :math:`(A^{-1})_{hh}`.

        Args:
            target: ``... x h_1 x ... x h_P``, zero at observed cells.
            start: Initial solution.
            tolerance: Replaces the tolerance of the system.
        """
        tolerance = self.tolerance if tolerance is None else tolerance
        lead = target.shape[: target.dim() - self.num_dims]
        if self.batch_shape:
            lead = torch.broadcast_shapes(lead, self.batch_shape)
            target = target.expand(*lead, *target.shape[target.dim() - self.num_dims :])
        if start is not None and start.shape != target.shape:
            start = None
        solution = conjugate_gradients(
            self.multiply,
            target,
            num_dims=self.num_dims,
            start=start,
            preconditioner=self._precondition,
            tolerance=tolerance,
            max_iterations=self.max_iterations,
        )
        self.iterations += solution.iterations
        return solution

    def checked_solve(self, target: Tensor) -> Tensor:
        """Return the solution of :meth:`solve`, after a call of ``report``."""
        solution = self.solve(target)
        self.report(solution, self.tolerance, "Covariances with the observed cells")
        return solution.value

    def weights(
        self, targets: Tensor, start: Tensor | None = None, *, tolerance: float | None = None
    ) -> Weights:
        """Solve with the observed targets.

        Args:
            targets: ``... x n_1 x ... x n_P``, zero at missing cells.
            start: The state of an earlier solve with similar hyperparameters.
            tolerance: Replaces the tolerance of the system.
        """
        axes = tuple(range(-self.num_dims, 0))
        if self.grid.is_complete:
            basis = self.eigen.to_basis(targets)
            coefficients = basis * self.inverse
            return Weights(coefficients, None, (basis * coefficients).sum(axes))
        basis = self.eigen.to_basis(targets)
        image = kronecker_multiply(self.expand, basis * self.inverse)
        solution = self.solve(-self.grid.only_missing(image), start, tolerance=tolerance)
        basis = basis + self.to_basis(solution.value)
        coefficients = basis * self.inverse
        # The minimum over f of the quadratic form: the error is of second order in f.
        quadratic = (basis * coefficients).sum(axes)
        tolerance = self.tolerance if tolerance is None else tolerance
        self.report(solution, tolerance, "The observed cells")
        return Weights(coefficients, solution.value, quadratic)

    def continued(
        self, array: Tensor, start: Tensor | None = None, *, tolerance: float | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""Continue an array g at missing cells by :math:`-A_{oo}^{-1} K_{oh}\, g`.

        Args:
            array: ``... x n_1 x ... x n_P``, zero at the observed cells.
            start: The state of an earlier call.
            tolerance: Replaces the tolerance of the system.

        Returns:
            Coefficients of the continued array in the eigenbasis, and the state.
        """
        tolerance = self.tolerance if tolerance is None else tolerance
        solution = self.solve(self.grid.restrict(array), start, tolerance=tolerance)
        coefficients = self.to_basis(solution.value) * self.inverse
        self.report(solution, tolerance, "The missing cells")
        return coefficients, solution.value

    def factor_gradients(self, left: Tensor, right: Tensor) -> list[Tensor]:
        r"""Differentiate :math:`a^\top (K_1 \otimes \dots \otimes K_P) b` for each factor.

        Args:
            left, right: a and b as coefficients ``... x n_1 x ... x n_P`` in the eigenbasis.

        Returns:
            Symmetric matrices ``... x n_p x n_p`` in the eigenbasis.
        """
        gradients = []
        for dim in range(self.num_dims):
            part = paired_sum(left * self.eigen.others(dim), right, dim, self.num_dims)
            gradients.append(part if left is right else 0.5 * (part + part.mT))
        return gradients

    def spectral_gradients(self, weights: Tensor) -> list[Tensor]:
        """Differentiate a sum of the eigenvalues with weights ``... x n_1 x ... x n_P``.

        Returns the diagonals ``... x n_p``.
        """
        sums = []
        for dim in range(self.num_dims):
            axes = [d - self.num_dims for d in range(self.num_dims) if d != dim]
            weighted = weights * self.eigen.others(dim)
            sums.append(weighted.sum(axes) if axes else weighted)
        return sums

    def cells(self, of_holes: bool) -> Tensor:
        """Mask ``B x u`` of missing cells of the sub-grid, or of observed cells of the grid."""
        grid = self.grid
        mask = grid.missing if of_holes else grid.observed
        sizes = mask.shape[mask.dim() - grid.num_dims :]
        return mask.expand(*self.batch_shape, *sizes).reshape(-1, sizes.numel())

    def dense_matrices(self, of_holes: bool) -> Iterator[Tensor]:
        r"""Yield :math:`(A^{-1})_{hh}` or :math:`A_{oo}` of each batch entry."""
        for number, mask in enumerate(self.cells(of_holes)):
            if not of_holes:
                yield self._observed_dense(number, mask)
            elif mask.numel() > _SPARE * int(mask.sum()):
                yield self._by_columns(number, mask)
            else:
                yield self._by_squares(number, mask)

    def _by_squares(self, number: int, mask: Tensor) -> Tensor:
        """Compute the matrix from products of pairs of eigenvector rows, by dimension."""
        rows = [self._entry(part, number, 2) for part in self.expand]
        squares = [(q.unsqueeze(-2) * q.unsqueeze(-3)).flatten(-3, -2) for q in rows]
        inverse = self._entry(self.inverse, number, self.num_dims)
        whole = kronecker_multiply(squares, inverse)  # h_1^2 x ... x h_P^2
        sizes = [part.size(-2) for part in rows]
        whole = whole.reshape([size for size in sizes for _ in range(2)])
        whole = whole.permute(*range(0, 2 * len(sizes), 2), *range(1, 2 * len(sizes), 2))
        whole = whole.reshape(mask.numel(), mask.numel())
        return whole if bool(mask.all()) else whole[mask][:, mask]

    def _observed_dense(self, number: int, mask: Tensor) -> Tensor:
        index = torch.unravel_index(mask.nonzero()[:, 0], self.grid.shape)
        matrix = torch.ones((), dtype=self.inverse.dtype, device=self.inverse.device)
        for factor, own in zip(self.factors, index, strict=True):
            one = self._entry(factor, number, 2)
            matrix = matrix * one[own.unsqueeze(-1), own.unsqueeze(0)]
        noise = self._entry(self.noise, number, self.num_dims).reshape(())
        matrix.diagonal().add_(noise)
        return matrix

    def _by_columns(self, number: int, mask: Tensor) -> Tensor:
        """Compute the matrix from products with unit vectors, in chunks."""
        indices = mask.nonzero()[:, 0]
        batch = self.batch_shape
        cells = [rows.numel() for rows in self.grid.rows]
        chunk = max(1, _CHUNK_ELEMENTS // max(1, self.inverse.numel() * max(1, batch.numel())))
        columns = [self.inverse.new_zeros(0, len(indices))]
        for some in indices.split(chunk):
            units = torch.zeros(
                len(some), batch.numel(), len(mask), dtype=self.inverse.dtype, device=mask.device
            )
            units[torch.arange(len(some), device=mask.device), number, some] = 1.0
            image = self.multiply(units.view(len(some), *batch, *cells))
            columns.append(image.reshape(len(some), batch.numel(), len(mask))[:, number, mask])
        return torch.cat(columns)

    def _entry(self, tensor: Tensor, number: int, event_dims: int) -> Tensor:
        """Return one batch entry of a tensor that broadcasts to the batch."""
        event = tensor.shape[tensor.dim() - event_dims :]
        return tensor.expand(*self.batch_shape, *event).reshape(-1, *event)[number]
