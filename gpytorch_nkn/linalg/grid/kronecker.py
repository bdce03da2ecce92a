"""Products and eigendecompositions of Kronecker matrices without forming these matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

__all__ = ["KroneckerEigen", "kronecker_multiply", "paired_sum", "symmetric_eigen"]

_SPLIT_SIZE = 32  # smallest number of rows for which two half-size eigenproblems are cheaper
_ROUNDING = 100  # largest asymmetry due to rounding, in machine precisions


def kronecker_multiply(factors: Sequence[Tensor], array: Tensor) -> Tensor:
    r"""Multiply an array by :math:`M_1 \otimes \dots \otimes M_P`.

    Args:
        factors: Matrices ``... x m_p x n_p``.
        array: ``... x n_1 x ... x n_P``; batch dimensions broadcast.

    Returns:
        ``... x m_1 x ... x m_P``.
    """
    # Start with dimensions that shrink most, so that later products are smaller.
    order = sorted(range(len(factors)), key=lambda d: factors[d].size(-2) / factors[d].size(-1))
    for dim in order:
        array = _multiply_dimension(factors[dim], array, dim, len(factors))
    return array


def _multiply_dimension(factor: Tensor, array: Tensor, dim: int, num_dims: int) -> Tensor:
    shape = array.shape[array.dim() - num_dims :]
    batch = array.shape[: array.dim() - num_dims]
    before, after = shape[:dim].numel(), shape[dim + 1 :].numel()
    if after == 1:
        result = array.reshape(*batch, before, shape[dim]) @ factor.mT
    elif before == 1:
        result = factor @ array.reshape(*batch, shape[dim], after)
    else:
        flat = array.reshape(*batch, before, shape[dim], after)
        result = factor.unsqueeze(-3) @ flat
    if factor.dim() > 2:
        batch = torch.broadcast_shapes(batch, factor.shape[:-2])
    return result.reshape(*batch, *shape[:dim], factor.size(-2), *shape[dim + 1 :])


def paired_sum(left: Tensor, right: Tensor, dim: int, num_dims: int) -> Tensor:
    """Contract arrays over all dimensions but ``dim``: ``sum_r left[i, r] right[j, r]``.

    Arrays are ``... x n_1 x ... x n_P``, results ``... x n_dim x n_dim``.
    """
    if num_dims == 1:
        return left.unsqueeze(-1) * right.unsqueeze(-2)
    first, second = (
        array.movedim(dim - num_dims, -num_dims).flatten(1 - num_dims) for array in (left, right)
    )
    return first @ second.mT


def symmetric_eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return unordered eigenvalues and orthonormal eigenvectors of symmetric matrices.

    A centrosymmetric matrix, such as that of a stationary kernel on a regular grid, has even and
    odd eigenvectors. Computing them separately takes a quarter of the time.

    Args:
        matrix: Symmetric matrices ``... x n x n``.

    Returns:
        Eigenvalues ``... x n``, and eigenvectors as the columns of ``... x n x n``.

    Reference: Cantoni and Butler (1976), Eigenvalues and eigenvectors of symmetric centrosymmetric
    matrices.
    """
    n = matrix.size(-1)
    half, odd = n // 2, n % 2
    rounding = _ROUNDING * torch.finfo(matrix.dtype).eps
    if n < _SPLIT_SIZE or matrix.requires_grad:
        return _eigh(matrix)
    difference = (matrix[..., :half, :] - matrix[..., n - half :, :].flip(-1, -2)).abs().max()
    if not bool(difference <= rounding * matrix.abs().max()):
        return _eigh(matrix)
    upper, across = matrix[..., :half, :half], matrix[..., :half, n - half :].flip(-1)
    even, uneven = upper + across, upper - across
    if odd:
        side = math.sqrt(2) * matrix[..., :half, half : half + 1]
        center = matrix[..., half : half + 1, half : half + 1]
        even = torch.cat([torch.cat([even, side], -1), torch.cat([side.mT, center], -1)], -2)
    even_values, even_vectors = _eigh(even)
    odd_values, odd_vectors = _eigh(uneven)
    scale = math.sqrt(0.5)
    vectors = matrix.new_zeros(matrix.shape)
    split = half + odd
    vectors[..., :half, :split] = scale * even_vectors[..., :half, :]
    vectors[..., n - half :, :split] = scale * even_vectors[..., :half, :].flip(-2)
    if odd:
        vectors[..., half, :split] = even_vectors[..., half, :]
    vectors[..., :half, split:] = scale * odd_vectors
    vectors[..., n - half :, split:] = -scale * odd_vectors.flip(-2)
    return torch.cat([even_values, odd_values], -1), vectors


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    if not bool(matrix.isfinite().all()):
        raise NotPSDError("The factors of the covariance must be finite, got NaN or infinity.")
    return tuple(torch.linalg.eigh(matrix))


class KroneckerEigen:
    r"""Eigendecomposition of :math:`K_1 \otimes \dots \otimes K_P`.

    Args:
        factors: Symmetric positive semi-definite matrices ``... x n_p x n_p``. Negative
            eigenvalues within rounding errors are set to zero.

    Attributes:
        values: Eigenvalues ``... x n_p`` of each factor.
        vectors: Eigenvectors ``... x n_p x n_p`` of each factor.
        transposed: Their transposes, contiguous.
        products: Eigenvalues ``... x n_1 x ... x n_P`` of the whole matrix.

    Raises:
        linear_operator.utils.errors.NotPSDError: A factor has a negative eigenvalue beyond
            rounding, or entries that are not finite.
    """

    def __init__(self, factors: Sequence[Tensor]):
        pairs = [symmetric_eigen(factor.detach()) for factor in factors]
        for number, (values, _) in enumerate(pairs):
            lowest, highest = values.amin(-1), values.amax(-1)
            tolerance = 64 * values.size(-1) * torch.finfo(values.dtype).eps
            if bool((lowest < -tolerance * highest.clamp_min(0.0)).any()):
                raise NotPSDError(
                    f"Factor {number} of the covariance is not positive semi-definite: its "
                    f"eigenvalues reach from {lowest.min():.3g} to {highest.max():.3g}."
                )
        self.values = [values.clamp_min(0.0) for values, _ in pairs]
        self.vectors = [vectors for _, vectors in pairs]
        self.transposed = [vectors.mT.contiguous() for _, vectors in pairs]
        self.products = self._product(range(len(pairs)))

    @property
    def num_dims(self) -> int:
        """Number of factors ``P``."""
        return len(self.values)

    def others(self, dim: int) -> Tensor:
        """Products of the eigenvalues of all factors but one, whose dimension has size 1."""
        return self._product(d for d in range(self.num_dims) if d != dim)

    def to_basis(self, array: Tensor) -> Tensor:
        """Coefficients of an array ``... x n_1 x ... x n_P`` in the eigenbasis."""
        return kronecker_multiply(self.transposed, array)

    def from_basis(self, array: Tensor) -> Tensor:
        """The array with given coefficients in the eigenbasis."""
        return kronecker_multiply(self.vectors, array)

    def _product(self, dims: Iterable[int]) -> Tensor:
        parts = [self._in_dimension(dim) for dim in dims]
        if not parts:
            return torch.ones_like(self.values[0][..., :1])  # a single factor has no others
        return reduce(torch.mul, parts)

    def _in_dimension(self, dim: int) -> Tensor:
        values = self.values[dim]
        shape = [1] * self.num_dims
        shape[dim] = values.size(-1)
        return values.reshape(*values.shape[:-1], *shape)
