"""Random features, and draws from discrete distributions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Draws", "RandomFeatures", "allocated", "choose", "stratified", "uniforms"]


@dataclass
class RandomFeatures:
    r"""Random features under construction; each row ``r`` represents a kernel.

    .. math:: k_r(x, x') = a_r \cos\bigl(\omega_r^\top (x - x')\bigr) \prod_j f_j(x) f_j(x'),
        \qquad f_j(x) = x_{d_j} - c_j \ \text{or}\ \cos(\delta_j^\top x + b_j)

    Attributes:
        frequency: :math:`\omega`, ``R x D``; rows of one batch element are adjacent.
        log_amplitude: :math:`\log a`, ``R``.
        history: Code of the random choices of each row, ``R``; rows with equal codes have equal
            amplitudes.
        factors: Rows, columns :math:`d` and centres :math:`c` of linear factors.
        waves: Rows, :math:`\delta` ``n x D`` and :math:`b` of cosine factors.
        pending: Measures, each with draws whose frequencies are drawn later.
    """

    frequency: Tensor
    log_amplitude: Tensor
    history: Tensor
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    waves: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    pending: list[tuple[Any, Draws]] = field(default_factory=list)


@dataclass(frozen=True)
class Draws:
    """Requested draws from a kernel; products of kernels request several draws per row.

    Attributes:
        row: Row of features to which each draw belongs.
        slot: Number of the draw within its row. Draws with equal slots may be dependent, to reduce
            the variance; draws with different slots are independent, as products require.
        sign: Sign of the frequency.
        rows_per_element: Number of rows per batch element.
    """

    row: Tensor
    slot: Tensor
    sign: Tensor
    rows_per_element: int

    @classmethod
    def one_per_row(cls, num_elements: int, rows_per_element: int) -> Draws:
        """Return one draw for each row."""
        row = torch.arange(num_elements * rows_per_element)
        sign = torch.ones(len(row), dtype=torch.float64)
        return cls(row, torch.zeros_like(row), sign, rows_per_element)

    @property
    def element(self) -> Tensor:
        """Batch element of each draw."""
        return self.row // self.rows_per_element

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor) -> Draws:
        return Draws(self.row[index], self.slot[index], self.sign[index], self.rows_per_element)

    def with_random_signs(self) -> Draws:
        """Return the draws with random signs."""
        sign = 2.0 * torch.randint(2, self.row.shape).to(torch.float64) - 1
        return Draws(self.row, self.slot, sign, self.rows_per_element)

    def split(self, counts: Tensor) -> tuple[Draws, Tensor, Tensor]:
        """Replace each draw by ``counts`` independent draws.

        Also return the index of each draw's original, and its number among the copies.
        """
        origin = torch.repeat_interleave(counts)
        number = torch.arange(len(origin)) - (counts.cumsum(0) - counts)[origin]
        slot = self.slot[origin] * (int(counts.max()) if len(counts) else 1) + number
        slot = slot.unique(return_inverse=True)[1]  # keeps numbers small
        draws = Draws(self.row[origin], slot, self.sign[origin], self.rows_per_element)
        return draws, origin, number


def uniforms(row: Tensor, history: Tensor, dim: int) -> Tensor:
    """Draw uniform numbers ``n x dim`` in (0, 1) from one scrambled Sobol sequence.

    The draws of a row use different coordinates of one point. Factors of a row are therefore
    independent, and many rows cover the joint space evenly. Rows with equal histories use
    consecutive points.

    Args:
        row: Row of each draw.
        history: Code of the random choices of each row.
        dim: Number of uniform numbers per draw.
    """
    order = row.argsort(stable=True)
    count = row.bincount(minlength=len(history))
    number = torch.empty_like(row)  # number of a draw within its row
    number[order] = torch.arange(len(row)) - (count.cumsum(0) - count)[row[order]]
    points = torch.empty(len(history), int(count.max()), dim, dtype=torch.float64)
    if points.numel() > 0:
        sobol = SobolEngine(points.size(1) * dim, scramble=True)
        drawn = sobol.draw(len(history), dtype=torch.float64)
        points[history.argsort(stable=True)] = drawn.view_as(points)
    return points[row, number] + 2.0**-31  # points are multiples of 2^-30, including zero


def allocated(
    weights: Tensor, group: Tensor, stratum: Tensor, even_fraction: float
) -> tuple[Tensor, Tensor]:
    r"""Choose entries like :func:`stratified`, with more draws of rare entries.

    A fraction ``even_fraction`` of the draws of a stratum is allocated evenly to all entries.
    Importance weights, unbiased and with mean one in each stratum, correct for this.

    Args:
        weights: Weights of the entries, ``G x K``.
        group: Row of ``weights`` of each draw.
        stratum: Stratum of each draw, a subset of one group.
        even_fraction: Fraction of the draws that is allocated evenly.

    Returns:
        The choices, and the logarithms of the importance weights.
    """
    _, stratum, count = stratum.unique(return_inverse=True, return_counts=True)
    first = torch.empty_like(count)
    first[stratum] = group
    total = weights.sum(-1, keepdim=True)
    wanted = (weights / torch.where(total > 0, total, 1.0))[first]  # S x K
    present = (wanted > 0).to(wanted)
    even = present / present.sum(-1, keepdim=True).clamp_min(1.0)
    expected = count.unsqueeze(-1) * ((1 - even_fraction) * wanted + even_fraction * even)
    # group entries with less than one expected draw, and add entries until the group expects one
    ordered, order = expected.sort(-1)
    before = ordered.cumsum(-1) - ordered
    rare = torch.empty_like(expected, dtype=torch.bool)
    rare.scatter_(-1, order, (ordered < 1 + 1e-9) | ((before > 0) & (before < 1 + 1e-9)))
    of_rare = torch.where(rare, wanted, 0.0)
    frequent = torch.where(rare, 0.0, expected)
    num_rare = torch.where(rare, expected, 0.0).sum(-1, keepdim=True)
    choice = stratified(torch.cat([num_rare, frequent], -1), stratum, stratum) - 1
    fractions = torch.cat([of_rare.sum(-1, keepdim=True), torch.where(rare, 0.0, wanted)], -1)
    key = stratum * fractions.size(-1) + choice + 1
    own = key.bincount(minlength=fractions.numel())[key]
    log_weight = (fractions.flatten()[key] * count[stratum] / own).log()
    is_rare = choice < 0
    choice[is_rare] = stratified(of_rare, stratum[is_rare], stratum[is_rare])
    return choice, torch.where(total[group, 0] > 0, log_weight, 0.0)


def choose(weights: Tensor, group: Tensor, uniform: Tensor) -> Tensor:
    """Choose one entry for each ``group``, a row of ``weights`` ``G x K``, by inversion."""
    total = weights.sum(-1, keepdim=True)
    cumulative = (weights / torch.where(total > 0, total, 1.0)).cumsum(-1)
    cumulative = cumulative / torch.where(total > 0, cumulative[:, -1:], 1.0)
    # one search serves all rows: row g has values from g to g + 1
    steps = cumulative + torch.arange(len(cumulative)).unsqueeze(-1)
    size = weights.size(-1)
    index = torch.searchsorted(steps.flatten(), uniform + group, right=True)
    return (index - group * size).clamp(0, size - 1)


def stratified(weights: Tensor, group: Tensor, stratum: Tensor) -> Tensor:
    """Choose entries by systematic resampling in random order.

    The weights of its group determine the probabilities of each choice. Within a stratum of a
    group, the number of draws of an entry differs from its expectation by less than one.
    """
    key = stratum * len(weights) + group
    _, stratum, count = key.unique(return_inverse=True, return_counts=True)
    shuffled = torch.randperm(len(key))
    order = shuffled[stratum[shuffled].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (count.cumsum(0) - count)[stratum[order]]
    shift = torch.rand(len(count), dtype=torch.float64)
    return choose(weights, group, (rank + shift[stratum]) / count[stratum])
