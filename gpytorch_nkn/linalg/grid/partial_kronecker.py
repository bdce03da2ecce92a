"""Grids with missing cells, and solves with their Kronecker covariance."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.nn.functional import one_hot

from gpytorch_nkn.linalg.grid.kronecker import KroneckerEigen, kronecker_multiply

__all__ = ["PartialGrid", "PartialKronecker", "put_slices", "take_slices"]

_CHUNK_ELEMENTS = 2**23  # elements of a temporary array
_SLACK = 3.0  # tolerance of solves for derivatives, in multiples of the system's
_MAX_SURPLUS = 1.5  # largest size of a sub-grid treated as a whole, relative to its missing cells


class PartialGrid:
    """Grid with missing cells, and the smallest sub-grid that contains them.

    Args:
        observed: Whether a cell is observed, ``... x n_1 x ... x n_P``.
        num_dims: Number of dimensions ``P`` of the grid, after the batch dimensions.
        extra: Known noise variances of cells, in addition to the noise of all cells; None for 0.

    Attributes:
        shape: Sizes ``n_1 x ... x n_P``.
        num_observed: Numbers of observed cells ``...``.
        rows: Indices of the sub-grid in each dimension, for all grids of the batch.
        unknown: Missing or noisy cells of the sub-grid, ``... x h_1 x ... x h_P``.
        precision: Inverse extra variances of the sub-grid; 0 at other cells, None without extra.

    Raises:
        ValueError: A batch entry has no observed cell, or ``observed`` is not boolean.
    """

    def __init__(self, observed: Tensor, num_dims: int, extra: Tensor | None = None):
        if observed.dtype != torch.bool:
            raise ValueError(f"observed must be boolean, got {observed.dtype}.")
        self.observed = observed
        self.num_dims = num_dims
        self.shape = observed.shape[observed.dim() - num_dims :]
        self.batch_shape = observed.shape[: observed.dim() - num_dims]
        self.num_observed = observed.flatten(-num_dims).sum(-1)
        if bool((self.num_observed == 0).any()):
            raise ValueError("Every grid of a batch must have an observed cell.")
        self.extra = None if extra is None else torch.where(observed, extra, 0.0)
        if self.extra is not None and not bool((self.extra > 0).any()):
            self.extra = None
        exact = observed if self.extra is None else observed & (self.extra == 0)
        inexact = ~exact.reshape(-1, *self.shape).all(0)
        self.rows = [index.unique() for index in inexact.nonzero().unbind(-1)]
        self.unknown = take_slices(~exact, self.rows)
        self.precision: Tensor | None = None
        if self.extra is not None:
            variances = take_slices(self.extra, self.rows)
            self.precision = torch.where(variances > 0, 1 / variances, 0.0)

    @property
    def is_complete(self) -> bool:
        """Whether every cell is observed without extra noise."""
        return self.unknown.numel() == 0


def take_slices(array: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Select slices along each grid dimension of an array ``... x n_1 x ... x n_P``."""
    for dim, index in enumerate(rows):
        array = array.index_select(dim - len(rows), index)
    return array


def put_slices(array: Tensor, rows: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Return zeros ``... x n_1 x ... x n_P`` with an array at some slices of each dimension."""
    result = array.new_zeros(*array.shape[: -len(rows)], *sizes)
    index: tuple[Any, ...] = torch.meshgrid(*rows, indexing="ij")
    result[(..., *index)] = array
    return result


class Weights(NamedTuple):
    r"""Solution :math:`\alpha = A_{oo}^{-1} y_o` of :meth:`PartialKronecker.weights`.

    Attributes:
        coefficients: :math:`\alpha`, zero at missing cells, in the eigenbasis of the grid.
        state: Start of the next solve.
        quadratic: :math:`y_o^\top \alpha`, ``...``.
    """

    coefficients: Tensor
    state: Tensor | None
    quadratic: Tensor


class PartialKronecker:
    r"""Solves with :math:`A_{oo}`, where :math:`A = K_1 \otimes \dots \otimes K_P + \sigma^2 I`.

    Observed cells are o and missing cells h. On a complete grid, systems are solved by the
    eigendecompositions of the factors. Otherwise conjugate gradients, preconditioned with
    :math:`A_{hh}`, solve :math:`(A^{-1})_{hh} f = -(A^{-1})_{ho} y_o`. The vector
    :math:`A^{-1} (y_o, f)` is then zero at missing cells and :math:`A_{oo}^{-1} y_o` at observed
    cells, and f is the posterior mean.

    Extra noise with variances V makes the covariance of observed cells :math:`A_{oo} + V`. Cells
    with extra noise also belong to h. The minimum over f of
    :math:`(y_o, f)^\top A^{-1} (y_o, f) + \sum_i (f_i - y_i)^2 / V_i` solves

    .. math:: \bigl((A^{-1})_{hh} + V^{-1}\bigr) f = V^{-1} y_h - (A^{-1})_{ho} y_o

    with :math:`V^{-1} = 0` at missing cells. :math:`A^{-1} (y_o, f)` is then
    :math:`(A_{oo} + V)^{-1} y_o` at all observed cells.

    Args:
        grid: Grid with the observed cells.
        factors: Symmetric positive semi-definite matrices ``... x n_p x n_p``.
        noise: Noise variance ``...``.
        tolerance: Residual, relative to the right-hand side, at which a solve stops.
        max_iterations: Largest number of conjugate gradient iterations.
        max_residual: Largest residual without a warning, in multiples of the tolerance.
        eigen: Eigendecomposition of the factors, if known.

    Attributes:
        batch_shape: Batch shape of the systems.
        expand: Rows ``... x h_p x n_p`` of the eigenvectors on the sub-grid.

    Reference: Sun et al. (2018), appendix J.4.
    """

    def __init__(
        self,
        grid: PartialGrid,
        factors: Sequence[Tensor],
        noise: Tensor,
        *,
        tolerance: float = 1e-3,
        max_iterations: int = 500,
        max_residual: float = 10.0,
        eigen: KroneckerEigen | None = None,
    ):
        self.grid = grid
        self.num_dims = grid.num_dims
        self.factors = [factor.detach() for factor in factors]
        self.eigen = KroneckerEigen(self.factors) if eigen is None else eigen
        self.noise = noise.detach()[(..., *[None] * grid.num_dims)]
        self.spectrum = self.eigen.products
        self.inverse = (self.spectrum + self.noise).reciprocal()
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.max_residual = max_residual
        inverse_batch = self.inverse.shape[: self.inverse.dim() - grid.num_dims]
        self.batch_shape = torch.broadcast_shapes(inverse_batch, grid.batch_shape)
        pairs = list(zip(self.eigen.vectors, self.factors, grid.rows, strict=True))
        self.expand = [q.index_select(-2, rows) for q, _, rows in pairs]
        self._contract = [q.mT.contiguous() for q in self.expand]
        self._prior = [k.index_select(-2, rows).index_select(-1, rows) for _, k, rows in pairs]
        self._shrink: Tensor | None = None
        if grid.precision is not None:  # root of V / (a + V); 1 / a is the mean diagonal of 1 / A
            self._shrink = (1 + grid.precision / self.inverse.mean()).rsqrt()

    def multiply(self, array: Tensor) -> Tensor:
        r"""Multiply an array on the sub-grid of the missing cells by :math:`(A^{-1})_{hh}`."""
        basis = kronecker_multiply(self._contract, array) * self.inverse
        product = self.grid.unknown * kronecker_multiply(self.expand, basis)
        return product if self.grid.precision is None else product + self.grid.precision * array

    def _precondition(self, array: Tensor) -> Tensor:
        if self._shrink is not None:
            array = self._shrink * array
        product = self.grid.unknown * kronecker_multiply(self._prior, array) + self.noise * array
        return product if self._shrink is None else self._shrink * product

    def solve(self, target: Tensor, start: Tensor | None = None, *, slack: float = 1.0) -> Tensor:
        """Solve with :math:`(A^{-1})_{hh}` by preconditioned conjugate gradients from ``start``.

        The ``target``, ``... x h_1 x ... x h_P``, is zero at observed cells. ``slack`` multiplies
        the tolerance. A :class:`NumericalWarning` is issued if a residual exceeds
        ``max_residual`` times the tolerance. ``linear_operator.utils.linear_cg`` is not used: its
        minimum of ten iterations often exceeds what a start near the solution needs.
        """
        tolerance, axes = slack * self.tolerance, tuple(range(-self.num_dims, 0))
        batch = torch.broadcast_shapes(target.shape[: -self.num_dims], self.batch_shape)
        target = target.expand(*batch, *target.shape[-self.num_dims :])

        def dot(left: Tensor, right: Tensor) -> Tensor:
            return (left * right).sum(axes, keepdim=True)

        tiny = torch.finfo(target.dtype).tiny
        scale = dot(target, target).sqrt().clamp_min(tiny)
        value, residual, count = torch.zeros_like(target), target, 0
        if start is not None and start.shape == target.shape:
            value, residual, count = start, target - self.multiply(start), 1
        direction = preconditioned = self._precondition(residual)
        weight = dot(residual, preconditioned)
        best, best_value, best_residual = float("inf"), value, residual
        while True:
            relative = float((dot(residual, residual).sqrt() / scale).max())
            if relative < best:  # rounding errors can increase the residual
                best, best_value, best_residual = relative, value, residual
            diverges = relative > 1e4 * max(best, 1.0)
            if not relative > tolerance or count >= self.max_iterations or diverges:
                break
            image = self.multiply(direction)
            step = weight / dot(direction, image).clamp_min(tiny)
            value = value + step * direction
            residual = residual - step * image
            preconditioned = self._precondition(residual)
            new_weight = dot(residual, preconditioned)
            direction = preconditioned + (new_weight / weight.clamp_min(tiny)) * direction
            weight = new_weight
            count += 1
        if best > tolerance and not diverges:  # the energy decreases, residuals may not
            before, after = (
                dot(solution, target + left)
                for solution, left in ((best_value, best_residual), (value, residual))
            )
            best_value = torch.where(after > before, value, best_value)
        most = self.max_residual * tolerance
        if not best <= most:  # equal messages of many solves appear once
            warnings.warn(
                f"After {self.max_iterations} conjugate gradient iterations the relative residual "
                f"of a solve is above {most:.2g}. A larger max_iterations, "
                "float64 or more noise would help.",
                NumericalWarning,
                stacklevel=3,
            )
        return best_value

    def weights(self, targets: Tensor, start: Tensor | None = None) -> Weights:
        """Return :math:`A_{oo}^{-1} y_o`, or with extra noise :math:`(A_{oo} + V)^{-1} y_o`.

        Targets ``... x n_1 x ... x n_P`` are zero at missing cells. ``start`` is the state of an
        earlier solve with similar hyperparameters.
        """
        state, extra, precision = None, self.grid.extra, self.grid.precision
        basis = self.eigen.to_basis(targets if extra is None else (extra == 0) * targets)
        if not self.grid.is_complete:
            right = self.grid.unknown * -kronecker_multiply(self.expand, basis * self.inverse)
            noisy = take_slices(targets, self.grid.rows)
            if precision is not None:
                right = right + precision * noisy
            state = self.solve(right, start)
            basis = basis + kronecker_multiply(self._contract, state)
        coefficients = basis * self.inverse
        # minimum over f of the quadratic form, so that the error is of second order in f
        axes = tuple(range(-self.num_dims, 0))
        quadratic = (basis * coefficients).sum(axes)
        if precision is not None and state is not None:
            quadratic = quadratic + (precision * (noisy - state).square()).sum(axes)
        return Weights(coefficients, state, quadratic)

    def extended(self, array: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r"""Extend g from missing to observed cells, where it is :math:`-A_{oo}^{-1} K_{oh}\, g`.

        The array, ``... x n_1 x ... x n_P``, is zero at the observed cells; ``start`` is the state
        of an earlier call. Return coefficients of the extended array in the eigenbasis, and the
        state.
        """
        state = self.solve(take_slices(array, self.grid.rows), start, slack=_SLACK)
        return kronecker_multiply(self._contract, state) * self.inverse, state

    def factor_gradients(self, left: Tensor, right: Tensor) -> list[Tensor]:
        r"""Differentiate :math:`a^\top (K_1 \otimes \dots \otimes K_P) b` for each factor.

        Coefficients a and b, ``... x n_1 x ... x n_P``, and the symmetric results
        ``... x n_p x n_p`` are in the eigenbasis.
        """

        def unfold(array: Tensor, dim: int) -> Tensor:  # ... x n_dim x (other dimensions)
            array = array.movedim(dim - self.num_dims, -self.num_dims)
            return array.reshape(*array.shape[: 1 - self.num_dims or None], -1)

        gradients = []
        for dim in range(self.num_dims):
            grad = unfold(left * self.eigen.others(dim), dim) @ unfold(right, dim).mT
            gradients.append(grad if left is right else 0.5 * (grad + grad.mT))
        return gradients

    def dense_matrix(self, of_holes: bool) -> Tensor:
        r"""Return :math:`(A^{-1})_{hh} + V^{-1}` if ``of_holes``, else :math:`A_{oo} + V`, dense.

        The missing cells of a batch must be the same.
        """
        if of_holes:
            cells, matrix = self.grid.unknown, self._missing_dense()
            diagonal = self.grid.precision
        else:
            cells, diagonal = self.grid.observed, self.noise
            pairs = zip(self.factors, cells.nonzero().unbind(-1), strict=True)
            matrix = reduce(torch.mul, (f[..., index, :][..., index] for f, index in pairs))
            if self.grid.extra is not None:
                diagonal = diagonal + self.grid.extra
        matrix = matrix.expand(*self.batch_shape, *matrix.shape[-2:]).contiguous()
        if diagonal is not None:
            entries = diagonal.expand(*diagonal.shape[: -self.num_dims], *cells.shape)[..., cells]
            matrix.diagonal(dim1=-2, dim2=-1).add_(entries)
        return matrix

    def _missing_dense(self) -> Tensor:
        sizes, cells = self.grid.unknown.shape, self.grid.unknown.numel()
        indices = self.grid.unknown.flatten().nonzero()[:, 0]
        if cells > _MAX_SURPLUS * len(indices):  # products with unit vectors, in chunks
            columns = []
            for some in indices.split(max(1, _CHUNK_ELEMENTS // self.inverse.numel())):
                units = one_hot(some, cells).to(self.inverse)
                units = units.view(-1, *[1] * len(self.batch_shape), *sizes)
                basis = kronecker_multiply(self._contract, units) * self.inverse
                product = kronecker_multiply(self.expand, basis)
                columns.append(product.flatten(-self.num_dims)[..., indices])
            return torch.cat(columns).movedim(0, -1)
        # the matrix of the whole sub-grid, from products of pairs of eigenvector rows
        squares = [(q.unsqueeze(-2) * q.unsqueeze(-3)).flatten(-3, -2) for q in self.expand]
        matrix = kronecker_multiply(squares, self.inverse)  # ... x h_1^2 x ... x h_P^2
        batch, last = matrix.shape[: -self.num_dims], -2 * self.num_dims
        matrix = matrix.reshape(*batch, *[size for size in sizes for _ in range(2)])
        matrix = matrix.movedim(tuple(range(last, 0, 2)), tuple(range(last, last // 2)))
        return matrix.reshape(*batch, cells, cells)[..., indices, :][..., indices]
