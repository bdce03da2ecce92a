"""Products and eigendecompositions of Kronecker matrices without forming these matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["KroneckerEigen", "kronecker_multiply", "outer_product", "symmetric_eigen"]

_SPLIT_SIZE = 32  # smallest number of rows for which two half-size eigenproblems are cheaper
_ROUNDING = 100  # largest asymmetry due to rounding, in eps times the largest entry


def kronecker_multiply(factors: Sequence[Tensor], array: Tensor) -> Tensor:
    r"""Multiply an array by :math:`M_1 \otimes \dots \otimes M_P`: ``... x m_1 x ... x m_P``.

    Factors are ``... x m_p x n_p`` and the array is ``... x n_1 x ... x n_P``; batches broadcast.
    """
    num_dims = len(factors)
    # start with dimensions that shrink most, so that later products are smaller
    for dim in sorted(range(num_dims), key=lambda d: factors[d].size(-2) / factors[d].size(-1)):
        factor = factors[dim]
        batch, shape = array.shape[:-num_dims], array.shape[-num_dims:]
        before, after = shape[:dim], shape[dim + 1 :]
        if after.numel() == 1:
            result = array.reshape(*batch, before.numel(), shape[dim]) @ factor.mT
            batch = result.shape[:-2]
        else:
            flat = array.reshape(*batch, before.numel(), shape[dim], after.numel())
            result = factor.unsqueeze(-3) @ flat
            batch = result.shape[:-3]
        array = result.reshape(*batch, *before, factor.size(-2), *after)
    return array


def outer_product(vectors: Sequence[Tensor]) -> Tensor:
    """Return the outer product ``... x n_1 x ... x n_P`` of vectors ``... x n_p``."""
    last = len(vectors) - 1
    return reduce(
        torch.mul,
        (v[(..., *[None] * d, slice(None), *[None] * (last - d))] for d, v in enumerate(vectors)),
    )


def symmetric_eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return unordered eigenvalues and orthonormal eigenvectors of matrices ``... x n x n``.

    A centrosymmetric matrix, such as that of a stationary kernel on a regular grid, has even and
    odd eigenvectors. It is split into two problems of half the size.

    Reference: Cantoni and Butler (1976), Eigenvalues and eigenvectors of symmetric centrosymmetric
    matrices.
    """
    n = matrix.size(-1)
    rounding = _ROUNDING * torch.finfo(matrix.dtype).eps * matrix.abs().amax((-2, -1))
    if n < _SPLIT_SIZE or not bool(
        ((matrix - matrix.flip(-1, -2)).abs().amax((-2, -1)) <= rounding).all()
    ):
        return _eigh(matrix)
    values, vectors = [], []
    for sign, size in ((1, n - n // 2), (-1, n // 2)):
        scale = matrix.new_ones(size)
        if 2 * size > n:
            scale[-1] = math.sqrt(0.5)  # the middle row and column are their own mirror images
        folded = (matrix + sign * matrix.flip(-1))[..., :size, :size]
        eigenvalues, halves = _eigh(folded * scale * scale.unsqueeze(-1))
        halves = pad(math.sqrt(0.5) * scale.unsqueeze(-1) * halves, (0, 0, 0, n - size))
        values.append(eigenvalues)
        vectors.append(halves + sign * halves.flip(-2))
    return torch.cat(values, -1), torch.cat(vectors, -1)


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    if not bool(matrix.isfinite().all()):
        raise NotPSDError("The factors of the covariance must be finite, got NaN or infinity.")
    return tuple(torch.linalg.eigh(matrix))


class KroneckerEigen:
    r"""Eigendecomposition of :math:`K_1 \otimes \dots \otimes K_P`, factors ``... x n_p x n_p``.

    Negative eigenvalues within rounding errors are set to zero.

    Attributes:
        values: Eigenvalues ``... x n_p`` of each factor.
        vectors: Eigenvectors ``... x n_p x n_p`` of each factor.
        transposed: Transposes of the eigenvectors, contiguous.
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
                    f"eigenvalues range from {lowest.min():.3g} to {highest.max():.3g}."
                )
        self.values = [values.clamp_min(0.0) for values, _ in pairs]
        self.vectors = [vectors for _, vectors in pairs]
        self.transposed = [vectors.mT.contiguous() for _, vectors in pairs]
        self.products = outer_product(self.values)

    def others(self, dim: int) -> Tensor:
        """Return products of the eigenvalues of all factors but ``dim``, an axis of size 1."""
        ones = self.values[0].new_ones(1)
        return outer_product([ones if d == dim else v for d, v in enumerate(self.values)])

    def to_basis(self, array: Tensor) -> Tensor:
        """Return coefficients of an array ``... x n_1 x ... x n_P`` in the eigenbasis."""
        return kronecker_multiply(self.transposed, array)

    def from_basis(self, array: Tensor) -> Tensor:
        """Return the array with the given coefficients in the eigenbasis."""
        return kronecker_multiply(self.vectors, array)
