"""Random features while they are drawn: what they have so far, what they still lack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Draws", "RandomFeatures", "allocated", "choose", "stratified", "uniforms"]


@dataclass
class RandomFeatures:
    r"""Random features, a pair of them per row, of the kernels that the rows stand for.

    .. math:: k_r(x, x') = a_r \cos\bigl(\omega_r^\top (x - x')\bigr) \prod_j f_j(x) f_j(x'),
        \qquad f_j(x) = x_{d_j} - c_j \ \text{or}\ \cos(\delta_j^\top x + b_j)

    Attributes:
        frequency: :math:`\omega`, ``R x D``; rows of one element of the batch are neighbours.
        log_amplitude: :math:`\log a`, ``R``.
        history: Choices by which a row came about, as a number, ``R``; rows of one history have
            equal amplitudes.
        factors: Rows, columns :math:`d` and centres :math:`c` of the linear factors.
        waves: Rows, :math:`\delta` ``n x D`` and :math:`b` of the factors that are cosines.
        pending: Kernels, and the draws of frequencies that they still owe.
    """

    frequency: Tensor
    log_amplitude: Tensor
    history: Tensor
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    waves: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    pending: list[tuple[Any, Draws]] = field(default_factory=list)


@dataclass(frozen=True)
class Draws:
    """Draws that a kernel is asked for; products ask for several per row.

    Attributes:
        row: The feature to which a draw adds.
        slot: Differs between the draws of a row. Those of one slot may depend on each other, which
            lowers the variance; those of different slots must not, or products would be wrong.
        sign: Of the frequency.
        rows_per_element: Rows of an element of the batch.
    """

    row: Tensor
    slot: Tensor
    sign: Tensor
    rows_per_element: int

    @classmethod
    def one_per_row(cls, num_elements: int, rows_per_element: int) -> Draws:
        """The draws with which to start."""
        row = torch.arange(num_elements * rows_per_element)
        sign = torch.ones(len(row), dtype=torch.float64)
        return cls(row, torch.zeros_like(row), sign, rows_per_element)

    @property
    def element(self) -> Tensor:
        """Element of the batch that a draw belongs to."""
        return self.row // self.rows_per_element

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor) -> Draws:
        return Draws(self.row[index], self.slot[index], self.sign[index], self.rows_per_element)

    def with_random_signs(self) -> Draws:
        """The draws, each with a sign of its own in place of the one it has."""
        sign = 2.0 * torch.randint(2, self.row.shape).to(torch.float64) - 1
        return Draws(self.row, self.slot, sign, self.rows_per_element)

    def split(self, counts: Tensor) -> tuple[Draws, Tensor, Tensor]:
        """Replace each draw by as many independent ones as ``counts`` says.

        Also returns which old draw each comes from, and its number among those of that draw.
        """
        origin = torch.repeat_interleave(counts)
        number = torch.arange(len(origin)) - (counts.cumsum(0) - counts)[origin]
        slot = self.slot[origin] * (int(counts.max()) if len(counts) else 1) + number
        slot = slot.unique(return_inverse=True)[1]  # small again
        draws = Draws(self.row[origin], slot, self.sign[origin], self.rows_per_element)
        return draws, origin, number


def uniforms(row: Tensor, history: Tensor, dim: int) -> Tensor:
    """Uniform numbers ``n x dim`` inside (0, 1) for draws, from one scrambled Sobol sequence.

    Each row of features has one point, whose coordinates its draws share: the factors of a row are
    independent, and those of many rows cover their joint space evenly. Rows of one history, which
    are features of the same product, have consecutive points.

    Args:
        row: Row of each draw.
        history: Choices by which each row came about, as a number.
        dim: Numbers per draw.
    """
    order = row.argsort(stable=True)
    count = row.bincount(minlength=len(history))
    number = torch.empty_like(row)  # of a draw among those of its row
    number[order] = torch.arange(len(row)) - (count.cumsum(0) - count)[row[order]]
    points = torch.empty(len(history), int(count.max()), dim, dtype=torch.float64)
    if points.numel() > 0:
        sobol = SobolEngine(points.size(1) * dim, scramble=True)
        drawn = sobol.draw(len(history), dtype=torch.float64)
        points[history.argsort(stable=True)] = drawn.view_as(points)
    return points[row, number] + 2.0**-31  # they are multiples of 2^-30, zero included


def allocated(
    weights: Tensor, group: Tensor, stratum: Tensor, even_share: float
) -> tuple[Tensor, Tensor]:
    r"""Choices as :func:`stratified` makes them, with more draws for the rare ones.

    The fraction ``even_share`` of the draws of a stratum is for all entries alike. An entry that
    is certain to come has its share of the weights whatever the number of its draws; the others
    share theirs. So the weights have no bias, and those of a stratum have a mean of one.

    Args:
        weights: Of the entries, ``G x K``.
        group: Row of ``weights`` of each draw.
        stratum: Draws that are alike; they are of one group.
        even_share: Fraction of the draws that does not depend on the weights.

    Returns:
        The choices, and the logarithms of the weights of the draws.
    """
    _, stratum, count = stratum.unique(return_inverse=True, return_counts=True)
    first = torch.empty_like(count)
    first[stratum] = group
    total = weights.sum(-1, keepdim=True)
    wanted = (weights / torch.where(total > 0, total, 1.0))[first]  # S x K
    present = (wanted > 0).to(wanted)
    even = present / present.sum(-1, keepdim=True).clamp_min(1.0)
    expected = count.unsqueeze(-1) * ((1 - even_share) * wanted + even_share * even)
    # those that may not come, with as many more as are needed for one of them to come
    ordered, order = expected.sort(-1)
    before = ordered.cumsum(-1) - ordered
    rare = torch.empty_like(expected, dtype=torch.bool)
    rare.scatter_(-1, order, (ordered < 1 + 1e-9) | ((before > 0) & (before < 1 + 1e-9)))
    of_rare = torch.where(rare, wanted, 0.0)
    frequent = torch.where(rare, 0.0, expected)
    num_rare = torch.where(rare, expected, 0.0).sum(-1, keepdim=True)
    choice = stratified(torch.cat([num_rare, frequent], -1), stratum, stratum) - 1
    shares = torch.cat([of_rare.sum(-1, keepdim=True), torch.where(rare, 0.0, wanted)], -1)
    key = stratum * shares.size(-1) + choice + 1
    own = key.bincount(minlength=shares.numel())[key]
    log_weight = (shares.flatten()[key] * count[stratum] / own).log()
    is_rare = choice < 0
    choice[is_rare] = stratified(of_rare, stratum[is_rare], stratum[is_rare])
    return choice, torch.where(total[group, 0] > 0, log_weight, 0.0)


def choose(weights: Tensor, group: Tensor, uniform: Tensor) -> Tensor:
    """Numbers ``n`` of entries of rows ``group`` of ``weights`` ``G x K``, by inversion."""
    total = weights.sum(-1, keepdim=True)
    shares = (weights / torch.where(total > 0, total, 1.0)).cumsum(-1)
    shares = shares / torch.where(total > 0, shares[:, -1:], 1.0)
    # one search for all rows: row g holds numbers from g to g + 1
    steps = shares + torch.arange(len(shares)).unsqueeze(-1)
    size = weights.size(-1)
    found = torch.searchsorted(steps.flatten(), uniform + group, right=True)
    return (found - group * size).clamp(0, size - 1)


def stratified(weights: Tensor, group: Tensor, stratum: Tensor) -> Tensor:
    """As :func:`choose`, by systematic resampling in a random order.

    Each choice has the probabilities of its group. Among the draws of a group and a stratum,
    entries come as often as is expected of them, give or take one.
    """
    key = stratum * len(weights) + group
    _, stratum, count = key.unique(return_inverse=True, return_counts=True)
    shuffled = torch.randperm(len(key))
    order = shuffled[stratum[shuffled].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (count.cumsum(0) - count)[stratum[order]]
    shift = torch.rand(len(count), dtype=torch.float64)
    return choose(weights, group, (rank + shift[stratum]) / count[stratum])
