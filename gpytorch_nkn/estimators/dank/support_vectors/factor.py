"""The Hadamard factor that is best for given dual coefficients, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

__all__ = ["FactorStep", "HadamardFactor", "threshold_root"]

_LANCZOS_SIZE = 200  # smaller matrices are decomposed in full
_LANCZOS_SHARE = 8  # Lanczos for at most 1 / _LANCZOS_SHARE of all eigenvalues
_SHRINK = 0.7  # a kept set of rows is dropped when less than this share of it is in use
_FEW_BLOCKS = 2  # so many SVMs multiply without the matrix F


@dataclass(frozen=True)
class HadamardFactor:
    """A factor ``F`` (``n x n``) that is constant outside of some rows and columns.

    Attributes:
        count: Number ``n`` of all rows.
        rows: Rows (and columns) with entries of their own, ``p``.
        penalty: ``eta ||F - 11'||^2 + tau eta tr F``.
        root: ``G`` with ``F = G G'``, reduced: its rows are those of ``rows``, then one for all
            others, if any, times the root of their number. ``None`` for ``tau = 0``, where
            ``F = 11' + Gamma``.
        gamma: ``Gamma`` as signed coefficients over ``2 sqrt(eta)``, ``p x P``, and the Gram matrix
            between ``rows``.
    """

    count: int
    rows: np.ndarray
    penalty: float
    root: np.ndarray | None
    gamma: tuple[np.ndarray, np.ndarray]

    def dense(self) -> np.ndarray:
        """``F``, ``n x n``."""
        if self.root is None:
            full = np.ones((self.count, self.count))
            full[np.ix_(self.rows, self.rows)] += _gamma(*self.gamma)
            return full
        full_root = self.roots()
        return full_root @ full_root.T

    def roots(self) -> np.ndarray:
        """``G``, ``n x rank`` with ``F = G G'``, columns by falling norm."""
        count, size = self.count, len(self.rows)
        root = self.root
        if root is None:
            root = threshold_root(_reduced(_gamma(*self.gamma), count - size), 0.0)
        full = np.empty((count, root.shape[1]))
        if size < count:
            full[:] = root[-1] / np.sqrt(count - size)
        full[self.rows] = root[:size]
        return full


class FactorStep:
    r"""Minimiser over ``F`` of the dual objective, and its product with ``K``.

    .. math::
        F = J_{\tau / 2}\bigl(11^\top + \Gamma\bigr), \qquad
        \Gamma = \tfrac{1}{4 \eta} \sum_p s_p s_p^\top \circ K

    where ``J`` lessens eigenvalues by ``tau / 2``, down to 0. ``Gamma`` vanishes outside of
    support vectors, so one direction stands for all other rows, exactly. With ``tau = 0`` there
    is nothing to lessen, and no eigenvalues are computed.

    Args:
        gram: ``K``, ``n x n``.
        eta: Positive.
        tau: Not negative, and less than ``2 n``, beyond which ``F`` vanishes where ``Gamma`` does.

    Raises:
        ValueError: ``tau`` is too large.

    Reference: equation (9) of the paper and what follows it.
    """

    def __init__(self, gram: np.ndarray, eta: float, tau: float):
        if tau >= 2 * len(gram):
            raise ValueError(f"tau must be below 2 n = {2 * len(gram)}, where F is 0, got {tau}.")
        self.gram, self.eta, self.tau = gram, eta, tau
        self._kept = np.zeros(len(gram), dtype=bool)
        self._rows = np.empty(0, dtype=np.intp)
        self._wide = np.empty((0, len(gram)))  # Gram matrix of the kept rows with all
        self._inner = np.empty((0, 0))  # and among themselves
        self._squares: np.ndarray | None = None
        self._rank: int | None = None

    def __call__(self, signed: np.ndarray) -> tuple[HadamardFactor, np.ndarray]:
        """The factor at signed coefficients ``n x P``, and ``(F o K) signed``, ``n x P``."""
        self._keep_support(signed)
        rows, inner = self._rows, self._inner
        active = signed[rows]
        gamma = (active / (2.0 * np.sqrt(self.eta)), inner)
        if not self.tau:
            products, change = self._wide.T @ active, self._gamma_products(active)
            products[rows] += change
            penalty = 0.25 * float(np.sum(active * change))
            return HadamardFactor(len(signed), rows, penalty, None, gamma), products
        root = self._thresholded(gamma)
        penalty = self.eta * (_distance(root, len(rows), len(signed)) + self.tau * np.sum(root**2))
        factor = HadamardFactor(len(signed), rows, float(penalty), root, gamma)
        return factor, self._root_products(root, active)

    def _keep_support(self, signed: np.ndarray) -> None:
        """Rows with a coefficient; some more may stay, as their Gram matrix is at hand."""
        used: np.ndarray = np.any(signed != 0.0, axis=1)
        if (used & ~self._kept).any() or used.sum() < _SHRINK * len(self._rows):
            self._kept, self._rows, self._squares = used, np.flatnonzero(used), None
            everything = len(self._rows) == len(used)
            self._wide = self.gram if everything else self.gram[self._rows]
            self._inner = self.gram if everything else self._wide[:, self._rows]

    def _gamma_products(self, active: np.ndarray) -> np.ndarray:
        """``(Gamma o K) s`` of the kept rows, ``p x P``."""
        if self._squares is None:
            self._squares = self._inner**2
        columns = active.shape[1]
        if columns > _FEW_BLOCKS:
            return ((active @ active.T) * self._squares) @ active / (4.0 * self.eta)
        pairs = (active[:, :, None] * active[:, None, :]).reshape(len(active), columns**2)
        weighted = (self._squares @ pairs).reshape(len(active), columns, columns)
        return np.einsum("ip,ipq->iq", active, weighted) / (4.0 * self.eta)

    def _thresholded(self, gamma: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Reduced root of the factor, ``(p + 1) x rank`` or ``p x rank``."""
        scaled, inner = gamma
        rest = len(self.gram) - len(inner)
        ones = np.append(np.ones(len(inner)), [np.sqrt(rest)] if rest else [])

        def multiply(vector: np.ndarray) -> np.ndarray:
            vector = vector.ravel()
            product = ones * (ones @ vector)
            weighted = inner @ (scaled * vector[: len(inner), None])
            product[: len(inner)] += np.sum(scaled * weighted, axis=1)
            return product

        root = None
        if len(ones) >= _LANCZOS_SIZE:
            operator = LinearOperator((len(ones), len(ones)), matvec=multiply, dtype=float)
            root = _lanczos_root(operator, self.tau / 2.0, self._rank)
        if root is None:
            root = threshold_root(_reduced(_gamma(scaled, inner), rest), self.tau / 2.0)
        self._rank = root.shape[1]
        return root

    def _root_products(self, root: np.ndarray, active: np.ndarray) -> np.ndarray:
        """``(F o K) s`` of all rows, ``n x P``, by the reduced root."""
        size, count = len(active), len(self.gram)
        own = root[:size]
        products = np.empty((count, active.shape[1]))
        if size < count:
            cross = own @ root[-1] / np.sqrt(count - size)
            products[:] = self._wide.T @ (cross[:, None] * active)
        if own.shape[1] * active.shape[1] * 4 > size:
            products[self._rows] = ((own @ own.T) * self._inner) @ active
        else:
            shape = (size, own.shape[1], active.shape[1])
            pairs = (own[:, :, None] * active[:, None, :]).reshape(size, shape[1] * shape[2])
            weighted = (self._inner @ pairs).reshape(shape)
            products[self._rows] = np.einsum("ir,irp->ip", own, weighted)
        return products


def threshold_root(matrix: np.ndarray, threshold: float) -> np.ndarray:
    """``V diag(w - threshold)^(1/2)`` of a symmetric matrix, its eigenvalues ``w`` falling."""
    scale = np.abs(matrix).sum(axis=0).max(initial=0.0)
    lowest = max(threshold, len(matrix) * np.finfo(float).eps * scale)
    values, vectors = eigh(matrix, subset_by_value=(lowest, np.inf), driver="evr")
    return (vectors * np.sqrt(values - threshold))[:, ::-1]


def _lanczos_root(
    operator: LinearOperator, threshold: float, rank: int | None
) -> np.ndarray | None:
    """The same by Lanczos, given a guess of the rank; ``None`` if too many are above."""
    size = operator.shape[0]
    guess = 8 if rank is None else rank + 2 + rank // 4
    while guess <= size // _LANCZOS_SHARE:
        try:
            values, vectors = eigsh(operator, guess, which="LA", v0=np.ones(size))
        except ArpackError:
            return None
        if values.min() <= threshold:
            order = np.argsort(-values)[: np.sum(values > threshold)]
            return vectors[:, order] * np.sqrt(values[order] - threshold)
        guess *= 2
    return None


def _gamma(scaled: np.ndarray, inner: np.ndarray) -> np.ndarray:
    return (scaled @ scaled.T) * inner


def _reduced(gamma: np.ndarray, rest: int) -> np.ndarray:
    """``11' + Gamma`` in the orthonormal basis of its rows and of the mean of ``rest`` others."""
    inner = 1.0 + gamma
    if not rest:
        return inner
    side = np.full((len(gamma), 1), np.sqrt(rest))
    return np.block([[inner, side], [side.T, np.full((1, 1), float(rest))]])


def _distance(root: np.ndarray, size: int, count: int) -> float:
    """``||G G' - 11'||^2`` by the small matrices of a QR decomposition."""
    ones = np.ones((len(root), 1))
    if size < count:
        ones[-1] = np.sqrt(count - size)
    corner = scipy.linalg.qr(np.hstack([root, ones]), mode="r")[0]
    signs = np.append(np.ones(root.shape[1]), -1.0)
    return float(np.sum(((corner * signs) @ corner.T) ** 2))
