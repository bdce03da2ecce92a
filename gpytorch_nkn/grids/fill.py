"""Harmonic and biharmonic interpolation of the missing cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy import sparse
from scipy.ndimage import uniform_filter
from scipy.sparse.linalg import cg, splu

__all__ = ["SmoothInterpolants", "local_variance"]

_FACTORISED = {1: 10**6, 2: 300_000}  # missing cells up to which LU is fast, by dimension
_FACTORISED_DEEP = 5_000  # the same for more dimensions
_TOLERANCE, _ITERATIONS = 1e-4, 3000  # conjugate gradients, where LU would be slow


class SmoothInterpolants:
    r"""Interpolate the missing cells of grids of a given shape ``n_1 x ... x n_P``.

    L is the graph Laplacian of the grid (Neumann boundary conditions). The harmonic interpolant u
    minimises :math:`u^\top L u`: every missing cell is the mean of its neighbours. The biharmonic
    interpolant minimises :math:`u^\top L^2 u`, which also continues slopes; its values are clipped
    to the range of the known cells.

    Reference: Damelin and Hoang (2018), On surface completion and image inpainting by biharmonic
    functions.
    """

    def __init__(self, shape: Sequence[int]):
        self.shape = tuple(shape)
        self.laplacian = reduce(
            sparse.kronsum, [_second_difference(n) for n in shape[::-1]]
        ).tocsr()
        self.squared = (self.laplacian @ self.laplacian).tocsr()

    def harmonic(self, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """Return values ``... x n_1 x ... x n_P`` with the ``missing`` cells interpolated."""
        return self._fill(self.laplacian, values, missing)

    def biharmonic(self, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """Return the biharmonic interpolant, or the harmonic one if many cells are missing."""
        if not self._uses_lu(missing):
            return self.harmonic(values, missing)
        filled = self._fill(self.squared, values, missing)
        known = values[..., ~missing]
        extra = (1,) * len(self.shape)
        low, high = (f(-1).reshape(*known.shape[:-1], *extra) for f in (known.min, known.max))
        return np.clip(filled, low, high)

    def _uses_lu(self, missing: np.ndarray) -> bool:
        return int(missing.sum()) <= _FACTORISED.get(missing.ndim, _FACTORISED_DEEP)

    def _fill(
        self, energy: sparse.csr_array, values: np.ndarray, missing: np.ndarray
    ) -> np.ndarray:
        unknown = np.flatnonzero(missing)
        flat = np.where(missing, 0.0, values).reshape(-1, missing.size)
        rows = energy[unknown]
        matrix, target = rows[:, unknown].tocsc(), -(rows @ flat.T)  # u x B
        if self._uses_lu(missing):
            factor = splu(
                matrix,
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
            solution = factor.solve(target)
        else:
            columns = [cg(matrix, b, rtol=_TOLERANCE, maxiter=_ITERATIONS)[0] for b in target.T]
            solution = np.stack(columns, 1)
        flat[:, unknown] = solution.T
        return flat.reshape(values.shape)


def local_variance(
    values: np.ndarray, missing: np.ndarray, radius: int, prior: np.ndarray | float
) -> np.ndarray:
    """Return the variance of the known cells in a box around each cell, ``n_1 x ... x n_P``.

    The box has ``2 * radius + 1`` cells along each dimension. The ``prior`` variance counts as much
    as one known cell.
    """
    known = np.where(missing, 0.0, 1.0)
    values = np.where(missing, 0.0, values)
    fraction, first, second = (
        uniform_filter(a, 2 * radius + 1, mode="constant") for a in (known, values, values**2)
    )
    share = 1 / (2 * radius + 1) ** values.ndim
    fraction = np.maximum(fraction, 0.5 * share)
    variance = np.maximum(second / fraction - (first / fraction) ** 2, 0.0)
    return (fraction * variance + share * prior) / (fraction + share)


def _second_difference(n: int) -> sparse.coo_array:
    step = sparse.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    return (step.T @ step).tocoo()
