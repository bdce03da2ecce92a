"""Extension of the learned factor to new inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh

__all__ = ["Function", "smooth_coefficients", "times_factor"]

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]

_PENALTIES = 10.0 ** np.arange(-3.0, 3.5, 0.5)  # ridge penalties relative to K's mean diagonal
_DECOMPOSED = 1000  # largest number of rows for leave-one-out errors


def smooth_coefficients(
    gram: np.ndarray,
    signed: np.ndarray,
    eta: float,
    spectrum: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray | None:
    r"""Return coefficients ``C``, ``n x P``, that extend the learned factor to a kernel function.

    The learned factor is ``F_ij = 1 + K_ij sum_p s_p(x_i) s_p(x_j) / (4 eta)``. Kernel ridge
    regression with the base kernel replaces ``s_p`` by a smooth function of the input:

    .. math::
        F(x, x') = 1 + \frac{k(x, x')}{4 \eta} \sum_p \hat s_p(x) \hat s_p(x')
            = 1 + k(x, x')\, f(x)^\top f(x'), \qquad f(x) = k(x, X)\, C

    Products and sums of kernels are kernels, so ``F`` and ``F k`` are positive semi-definite for
    any ``s``. The ridge penalty minimises the leave-one-out error of the signed coefficients ``s``,
    ``n x P``. The result is ``None`` (``F = 1``) if zero coefficients have the smallest error.
    """
    scale = float(np.mean(np.diagonal(gram)))
    if not signed.any() or not scale > 0.0:
        return None
    rows = np.arange(len(gram))
    if len(rows) > _DECOMPOSED:
        rows = np.linspace(0, len(gram) - 1, _DECOMPOSED).astype(np.intp)
    sample = signed[rows]
    if spectrum is None or len(rows) < len(gram):
        spectrum = eigh(gram[np.ix_(rows, rows)])
    values, vectors = spectrum
    values, rotated = np.maximum(values, 0.0), vectors.T @ sample
    best, ridge = float(np.sum(sample**2)), None
    for penalty in scale * _PENALTIES:
        shares = penalty / (values + penalty)
        held_out = (vectors @ (shares[:, None] * rotated)) / (vectors**2 @ shares)[:, None]
        error = float(np.sum(held_out**2))
        if error < best * (1.0 - 1e-9):
            best, ridge = error, penalty
    if ridge is None:
        return None
    if len(rows) < len(gram):
        smooth = np.linalg.solve(gram + ridge * np.eye(len(gram)), signed)
    else:
        smooth = vectors @ (rotated / (values + ridge)[:, None])
    return smooth / (2.0 * np.sqrt(eta))


def times_factor(gram: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``k F``, ``M x N``, given ``k`` and the features ``f`` of both inputs."""
    learned = left @ right.T
    learned *= gram  # in place, because matrices are large
    learned += 1.0
    learned *= gram
    return learned
