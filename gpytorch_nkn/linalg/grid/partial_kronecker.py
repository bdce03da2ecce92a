"""Gaussian vectors with Kronecker covariance plus noise, some of whose cells are observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_nkn.linalg.grid.conjugate_gradients import (
    Report,
    Solution,
    conjugate_gradients,
    warn_of_residual,
)
from gpytorch_nkn.linalg.grid.kronecker import KroneckerEigen, kronecker_multiply, paired_sum
from gpytorch_nkn.linalg.grid.partial_grid import PartialGrid

__all__ = ["PartialKronecker", "Weights"]


class Weights(NamedTuple):
    r"""The solution :math:`\alpha = A_{oo}^{-1} y_o` of :meth:`PartialKronecker.weights`.

    Attributes:
        coefficients: :math:`\alpha`, zero at missing cells, in the eigenbasis of the grid.
        state: What the next solve may start from.
        quadratic: :math:`y_o^\top \alpha`, ``...``.
    """

    coefficients: Tensor
    state: Tensor | None
    quadratic: Tensor


class PartialKronecker:
    r"""Solves with :math:`A_{oo}`, where :math:`A = K_1 \otimes \dots \otimes K_P + \sigma^2 I`.

    The observed cells are o, the missing ones h. On a complete grid the eigendecompositions of
    the factors solve every system. Otherwise there are two ways, both exact up to the tolerance of
    conjugate gradients:

    - in the space of the missing cells, if these are the smaller part: with f such that
      :math:`(A^{-1})_{hh} f = -(A^{-1})_{ho} y_o`, the vector :math:`A^{-1} (y_o, f)` is zero at
      the missing cells and :math:`A_{oo}^{-1} y_o` at the observed ones. Then f is the posterior
      mean, and :math:`A_{hh}` is a good preconditioner.
    - in the space of the observed cells, with :math:`(A^{-1})_{oo}` as the preconditioner.

    No imaginary observations with a large variance are needed; they make the system of the paper
    so badly conditioned that its conjugate gradients end at their cap.

    Args:
        grid: Which cells are observed.
        factors: Symmetric positive semi-definite matrices ``... x n_p x n_p``.
        noise: Variance of the noise ``...``.
        tolerance: Residual, relative to the right-hand side, at which a solve stops.
        max_iterations: Of conjugate gradients.
        eigen: Eigendecomposition of the factors, if there is one already.
        report: What is told of every solution; by default a warning of those that are too far off.

    Attributes:
        in_holes: Whether systems are solved in the space of the missing cells.
        iterations: Of all solves so far.
        expand: Rows of the eigenvectors at the missing cells' sub-grid.

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
        self._batch_shape = torch.broadcast_shapes(own, grid.batch_shape)
        self.in_holes = not grid.is_mostly_missing
        self.expand = [
            q.index_select(-2, r) for q, r in zip(self.eigen.vectors, grid.rows, strict=True)
        ]
        self._contract = [q.mT.contiguous() for q in self.expand]
        self._prior = [
            k.index_select(-2, r).index_select(-1, r)
            for k, r in zip(self.factors, grid.rows, strict=True)
        ]

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the systems."""
        return self._batch_shape

    # --- the parts ---

    def to_basis(self, array: Tensor) -> Tensor:
        """Eigenbasis coefficients of an array that lives where systems are solved."""
        if self.in_holes:
            return kronecker_multiply(self._contract, array)
        return self.eigen.to_basis(array)

    def _hole_matrix(self, array: Tensor) -> Tensor:
        basis = kronecker_multiply(self._contract, array)
        return self.grid.only_missing(kronecker_multiply(self.expand, basis * self.inverse))

    def _hole_preconditioner(self, array: Tensor) -> Tensor:
        smooth = self.grid.only_missing(kronecker_multiply(self._prior, array))
        return smooth + self.noise * array

    def _observed_matrix(self, array: Tensor) -> Tensor:
        smooth = kronecker_multiply(self.factors, array)
        return self.grid.only_observed(smooth) + self.noise * array

    def _observed_preconditioner(self, array: Tensor) -> Tensor:
        basis = self.eigen.to_basis(array) * self.inverse
        return self.grid.only_observed(self.eigen.from_basis(basis))

    def multiply(self, array: Tensor) -> Tensor:
        r"""Multiply by :math:`(A^{-1})_{hh}`, or :math:`A_{oo}` where holes are the larger part."""
        return self._hole_matrix(array) if self.in_holes else self._observed_matrix(array)

    def solve(
        self, target: Tensor, start: Tensor | None = None, *, tolerance: float | None = None
    ) -> Solution:
        r"""Solve with :math:`(A^{-1})_{hh}` or, where holes are the larger part, :math:`A_{oo}`.

        Args:
            target: ``... x h_1 x ... x h_P``, zero at observed cells, or ``... x n_1 x ... x
                n_P``, zero at missing ones.
            start: Where to start.
            tolerance: In place of the usual one.
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
            preconditioner=(
                self._hole_preconditioner if self.in_holes else self._observed_preconditioner
            ),
            tolerance=tolerance,
            max_iterations=self.max_iterations,
        )
        self.iterations += solution.iterations
        return solution

    def checked_solve(self, target: Tensor) -> Tensor:
        """The solution of :meth:`solve`, with a warning if it is not good enough."""
        solution = self.solve(target)
        self.report(solution, self.tolerance, "Covariances with the observed cells")
        return solution.value

    # --- what models ask for ---

    def weights(
        self, targets: Tensor, start: Tensor | None = None, *, tolerance: float | None = None
    ) -> Weights:
        """Solve with the observed targets.

        Args:
            targets: ``... x n_1 x ... x n_P``, zero at missing cells.
            start: The state of an earlier solve with similar hyperparameters.
            tolerance: In place of the usual one.
        """
        axes = tuple(range(-self.num_dims, 0))
        if self.grid.is_complete:
            basis = self.eigen.to_basis(targets)
            coefficients = basis * self.inverse
            return Weights(coefficients, None, (basis * coefficients).sum(axes))
        if self.in_holes:
            basis = self.eigen.to_basis(targets)
            image = kronecker_multiply(self.expand, basis * self.inverse)
            solution = self.solve(-self.grid.only_missing(image), start, tolerance=tolerance)
            basis = basis + self.to_basis(solution.value)
            coefficients = basis * self.inverse
            # The minimum over f of the quadratic form: an error of f enters squared.
            quadratic = (basis * coefficients).sum(axes)
        else:
            solution = self.solve(targets, start, tolerance=tolerance)
            coefficients = self.eigen.to_basis(solution.value)
            twice = 2 * (targets * solution.value).sum(axes)
            quadratic = twice - (coefficients.square() / self.inverse).sum(axes)
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
            tolerance: In place of the usual one.

        Returns:
            Coefficients of the continued array in the eigenbasis, and the state.
        """
        tolerance = self.tolerance if tolerance is None else tolerance
        if self.in_holes:
            solution = self.solve(self.grid.restrict(array), start, tolerance=tolerance)
            coefficients = self.to_basis(solution.value) * self.inverse
        else:
            basis = self.eigen.to_basis(array)
            image = self.eigen.from_basis(basis * self.spectrum)
            solution = self.solve(self.grid.only_observed(image), start, tolerance=tolerance)
            coefficients = basis - self.eigen.to_basis(solution.value)
        self.report(solution, tolerance, "The missing cells")
        return coefficients, solution.value

    def factor_gradients(self, left: Tensor, right: Tensor) -> list[Tensor]:
        r"""Derivatives of :math:`a^\top (K_1 \otimes \dots \otimes K_P) b` by the factors.

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
        """Derivatives of a weighted sum of the eigenvalues, diagonals ``... x n_p``.

        Args:
            weights: ``... x n_1 x ... x n_P``.
        """
        sums = []
        for dim in range(self.num_dims):
            axes = [d - self.num_dims for d in range(self.num_dims) if d != dim]
            weighted = weights * self.eigen.others(dim)
            sums.append(weighted.sum(axes) if axes else weighted)
        return sums
