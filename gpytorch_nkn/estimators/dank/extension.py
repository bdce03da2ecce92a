"""Extension of the learned factor to new inputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh

__all__ = ["LearnedKernel", "SmoothExtension"]

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]

_PENALTIES = 10.0 ** np.arange(-3.0, 3.5, 0.5)  # ridge penalties relative to K's mean diagonal
_DECOMPOSED = 1000  # largest number of rows for leave-one-out errors


class SmoothExtension:
    r"""Extension of the learned factor to a kernel function, by smoothed dual coefficients.

    The learned factor is ``F_ij = 1 + K_ij sum_p s_p(x_i) s_p(x_j) / (4 eta)``. Kernel ridge
    regression with the base kernel predicts signed dual coefficients at new and training inputs:

    .. math::
        F(x, x') = 1 + \frac{k(x, x')}{4 \eta} \sum_p \hat s_p(x) \hat s_p(x')

    Products and sums of kernels are kernels, so ``F`` and ``F k`` are positive semi-definite for
    any ``s``. The ridge penalty minimises the leave-one-out error of the coefficients; ``F`` is
    one if no penalty is better than zero coefficients.

    Args:
        gram: Gram matrix ``K``, ``n x n``.
        signed: Signed dual coefficients ``s``, ``n x P``.
        eta: Weight of the dual problem.
        spectrum: Eigenvalues and eigenvectors of ``K``, if known.
    """

    def __init__(
        self,
        gram: np.ndarray,
        signed: np.ndarray,
        eta: float,
        spectrum: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.ridge_, smooth = _smooth(gram, signed, spectrum)
        self.coefficients_ = smooth / (2.0 * math.sqrt(eta))
        self.features_ = gram @ self.coefficients_

    def features(self, cross: np.ndarray) -> np.ndarray:
        """Return features ``M x P``, given ``k`` with training rows ``M x n``."""
        return cross @ self.coefficients_

    def factor(self, gram: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return ``F``, ``M x N``, given ``k`` and the features of both inputs."""
        return 1.0 + (left @ right.T) * gram


class LearnedKernel:
    """Kernel ``k(x, x') F(x, x')`` with ``F = 1 + k f(x)' f(x')``, learned from ``n x D`` rows."""

    def __init__(self, base: Function, rows: np.ndarray, extension: SmoothExtension | None = None):
        self.base, self.rows = base, rows
        self.coefficients = np.zeros((len(rows), 0))
        if extension is not None:
            self.coefficients = extension.coefficients_

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Return features ``f`` of inputs, ``N x P``, without columns for ``F = 1``."""
        if not self.coefficients.size:
            return np.zeros((len(inputs), 0))
        return self.base(inputs, self.rows) @ self.coefficients

    def __call__(
        self, left: np.ndarray, right: np.ndarray, features: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the Gram matrix ``M x N``; features of the second argument may be given."""
        gram = self.base(left, right)
        features = self.features(right) if features is None else features
        if not features.shape[1]:
            return gram
        learned = self.features(left) @ features.T
        learned *= gram  # in place, because matrices are large
        learned += 1.0
        learned *= gram
        return learned


def _smooth(
    gram: np.ndarray, signed: np.ndarray, spectrum: tuple[np.ndarray, np.ndarray] | None
) -> tuple[float, np.ndarray]:
    """Return penalty and coefficients of kernel ridge regression of the columns of ``signed``."""
    scale = float(np.mean(np.diagonal(gram)))
    if not signed.any() or not scale > 0.0:
        return math.inf, np.zeros_like(signed)
    rows = np.arange(len(gram))
    if len(rows) > _DECOMPOSED:
        rows = np.linspace(0, len(gram) - 1, _DECOMPOSED).astype(np.intp)
    sample = signed[rows]
    if spectrum is None or len(rows) < len(gram):
        spectrum = eigh(gram[np.ix_(rows, rows)])
    values, vectors = spectrum
    values, rotated = np.maximum(values, 0.0), vectors.T @ sample
    best, ridge = float(np.sum(sample**2)), math.inf
    for penalty in scale * _PENALTIES:
        shares = penalty / (values + penalty)
        held_out = (vectors @ (shares[:, None] * rotated)) / (vectors**2 @ shares)[:, None]
        error = float(np.sum(held_out**2))
        if error < best * (1.0 - 1e-9):
            best, ridge = error, penalty / scale
    if math.isinf(ridge):
        return ridge, np.zeros_like(signed)
    if len(rows) < len(gram):
        matrix = gram + ridge * scale * np.eye(len(gram))
        return ridge, np.linalg.solve(matrix, signed)
    return ridge, vectors @ (rotated / (values + ridge * scale)[:, None])
