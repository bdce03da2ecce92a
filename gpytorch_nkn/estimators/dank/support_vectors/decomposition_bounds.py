"""What solutions of clusters tell of the whole problem: its maximum and its support vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BlockCertificate", "certify_blocks"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_TILE = 2**22  # entries of a kernel block made at a time, 32 MB


@dataclass(frozen=True)
class BlockCertificate:
    r"""Bounds for the whole problem (18) at the solution of the block-diagonal one (20).

    Both with :math:`\tau = 0` and without a bias, so that, with signed variables
    :math:`s_i = y_i \alpha_i`,

    .. math::
        h(\alpha) = \min_F H(\alpha, F) = 1^\top \alpha - \tfrac12 s^\top K s
            - \tfrac{1}{16 \eta} (s^2)^\top (K \circ K)\, s^2,

    and :math:`\bar h` the same with :math:`\bar K`.

    Attributes:
        value: :math:`h(\bar\alpha)`.
        block_value: :math:`\bar h(\bar\alpha)`.
        between: :math:`Q(\pi)`, the sum of :math:`|K_{ij}|` between clusters.
        factor_range: Least and largest entry of ``F`` at the solution, ``(B1, B2)``.
        printed_bound: Theorem 6 as printed, :math:`\tfrac12 (B_2 - B_1) C^2 Q(\pi)`. It does not
            hold: with ``eta`` large ``F`` is one, the bound zero, and the maxima differ. Its
            proof takes ``H(alpha, F*)`` to be largest at ``alpha-bar`` and ``H(alpha-bar, F)``
            to be least at ``F-bar``; the saddle points give neither.
        prior_bound: One that holds: with :math:`\delta = \bar h - h`,
            :math:`h(\alpha^*) - h(\bar\alpha) \le \delta(\bar\alpha) - \delta(\alpha^*) \le
            \delta(\bar\alpha) + \tfrac12 \sum_{\pi_i \ne \pi_j} C_i C_j \max(0, -y_i y_j K_{ij})`.
        gap: Another, nearly always far smaller: :math:`h` is concave, hence
            :math:`h(\alpha^*) - h(\bar\alpha) \le \sum_i C_i \max(0, g_i) - g^\top \bar\alpha`
            with its gradient :math:`g` at :math:`\bar\alpha`.
        margins: :math:`y_i (K \bar s)_i`, ``n``.
        diagonal: :math:`K_{ii}`, ``n``.
        block_gradient: :math:`\nabla_\alpha \bar H(\bar\alpha, \bar F)`, ``n``.
        printed_threshold: Right-hand side of (21),
            :math:`-(B + B_2) C (\|\bar K_i\|_1 + \kappa)`, ``n``.
        inactive: Rows that are no support vectors of their clusters, ``n``.
    """

    value: float
    block_value: float
    between: float
    factor_range: tuple[float, float]
    printed_bound: float
    prior_bound: float
    gap: float
    margins: Array
    diagonal: Array
    block_gradient: Array
    printed_threshold: Array
    inactive: NDArray[np.bool_]

    def screened(self, gap: float | None = None) -> NDArray[np.bool_]:
        r"""Rows that are certainly no support vectors of the whole problem, ``n``.

        :math:`h` is strongly concave in :math:`w = \sum_i s_i \phi(x_i)`, so
        :math:`\|w^* - \bar w\|^2 \le 2 (h(\alpha^*) - h(\bar\alpha))`, and a row with
        :math:`y_i (K \bar s)_i > 1 + \sqrt{2 G K_{ii}}`, ``G`` a bound of that difference, has
        :math:`y_i (K s^*)_i > 1` and a negative gradient whatever its own variable: it is zero.

        Args:
            gap: ``G``; ``None`` means :attr:`gap`, which allows for a solution that is not exact.

        Reference: Ndiaye et al. (2017), Gap safe screening rules for sparsity enforcing penalties.
        """
        bound = max(self.gap if gap is None else gap, 0.0)
        return self.margins > 1.0 + np.sqrt(2.0 * bound * self.diagonal)

    def screened_as_printed(self) -> NDArray[np.bool_]:
        r"""Theorem 7 as printed: no row, ever.

        :math:`\nabla_\alpha \bar H_i \ge 1 - \max|\bar F_{ij}|\, C \|\bar K_i\|_1`, which is
        above :math:`-(B + B_2) C (\|\bar K_i\|_1 + \kappa)` for any data. (Section 6.2.4 of the
        paper compares with the positive number in its place; and the proof bounds a sum over the
        rows of other clusters by one of its terms.) :meth:`screened` is a rule that holds.
        """
        return self.inactive & (self.block_gradient <= self.printed_threshold)


def certify_blocks(
    kernel_block: Callable[[Rows, Rows], Array],
    labels: Array,
    upper: Array,
    clusters: Rows,
    signed: Array,
    eta: float,
) -> BlockCertificate:
    """Bounds for the whole problem, in one pass over all kernel values, 32 MB at a time.

    Args:
        kernel_block: ``kernel_block(i, j)`` returns values of the base kernel for row numbers.
        labels: 1 and -1, ``n``.
        upper: Bounds :math:`C_i`, ``n``.
        clusters: Cluster of each row, ``n``.
        signed: Signed variables, best the solution of (20), ``n``. The bounds hold for any that
            are within ``upper`` except ``prior_bound``, which needs the solution.
        eta: Positive; infinite for ``F = 1``.

    Raises:
        ValueError: If shapes differ, or a variable is outside its bounds.
    """
    shapes = [np.shape(a) for a in (labels, upper, clusters, signed)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        raise ValueError(
            f"labels, upper, clusters and signed must be vectors of one length, got {shapes}."
        )
    alpha = labels * signed
    if (alpha < 0).any() or (alpha > upper * (1 + 1e-12)).any():
        raise ValueError(
            "labels times signed must be between 0 and upper, "
            f"got {alpha.min()} to {(alpha - upper).max()} above upper."
        )
    n = len(labels)
    linear, block_linear, spread, block_spread, norms, diagonal = np.zeros((6, n))
    between = opposed = largest = 0.0
    low, high = np.inf, -np.inf
    everything = np.arange(n)
    step = max(1, _TILE // n)
    for first in range(0, n, step):
        rows = everything[first : first + step]
        kernel = kernel_block(rows, everything)
        same = clusters[rows][:, None] == clusters
        diagonal[rows] = kernel[np.arange(len(rows)), rows]
        linear[rows], spread[rows] = kernel @ signed, kernel**2 @ signed**2
        factor = signed[rows][:, None] * signed / (4.0 * eta) * kernel
        low, high = min(low, 1.0 + factor.min()), max(high, 1.0 + factor.max())
        absolute = np.abs(kernel)
        largest = max(largest, float(absolute.max()))
        between += float(absolute[~same].sum())
        bounds = (
            upper[rows][:, None] * upper * np.maximum(-labels[rows][:, None] * labels * kernel, 0)
        )
        opposed += float(bounds[~same].sum())
        kernel[~same] = 0.0
        norms[rows] = np.abs(kernel).sum(1)
        block_linear[rows], block_spread[rows] = kernel @ signed, kernel**2 @ signed**2
    value = _dual(alpha, signed, linear, spread, eta)
    block_value = _dual(alpha, signed, block_linear, block_spread, eta)
    gradient = 1.0 - labels * (linear + signed * spread / (4.0 * eta))
    block_gradient = 1.0 - labels * (block_linear + signed * block_spread / (4.0 * eta))
    width, cost = high - low, float(upper.max())
    return BlockCertificate(
        value=value,
        block_value=block_value,
        between=between,
        factor_range=(float(low), float(high)),
        printed_bound=width * cost**2 * between / 2,
        prior_bound=block_value - value + opposed / 2,
        gap=float(upper @ np.maximum(gradient, 0.0) - gradient @ alpha),
        margins=labels * linear,
        diagonal=diagonal,
        block_gradient=block_gradient,
        printed_threshold=-(width + high) * cost * (norms + largest),
        inactive=alpha == 0,
    )


def _dual(alpha: Array, signed: Array, linear: Array, spread: Array, eta: float) -> float:
    return float(alpha.sum() - signed @ linear / 2 - signed**2 @ spread / (16.0 * eta))
