"""Random features while they are drawn: what they have so far, what they still lack."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Draws", "RandomFeatures", "choose", "stratified", "uniforms"]


@dataclass
class RandomFeatures:
    r"""Random features, a pair of them per row, of the kernels that the rows stand for.

    .. math:: k_r(x, x') = a_r \cos\bigl(\omega_r^\top (x - x')\bigr) \prod_j f_j(x) f_j(x'),
        \qquad f_j(x) = x_{d_j} - c_j \ \text{or}\ \cos(\delta_j^\top x + b_j)

    Attributes:
        frequency: :math:`\omega`, ``R x D``; rows of one element of the batch are neighbours.
        log_amplitude: :math:`\log a`, ``R``.
        factors: Rows, columns :math:`d` and centres :math:`c` of the linear factors.
        waves: Rows, :math:`\delta` ``n x D`` and :math:`b` of the factors that are cosines.
    """

    frequency: Tensor
    log_amplitude: Tensor
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    waves: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)


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


def uniforms(element: Tensor, dim: int) -> Tensor:
    """Uniform numbers ``n x dim`` inside (0, 1), one scrambled Sobol sequence for all draws.

    The points of an element of the batch are consecutive. Elements, and the draws of each, get
    them in a random order: at equal places two sequences depend on each other, however they are
    scrambled.
    """
    points = torch.empty(len(element), dim, dtype=torch.float64)
    if points.numel() == 0:
        return points
    place = torch.randperm(int(element.max()) + 1)[element]
    shuffled = torch.randperm(len(element))
    order = shuffled[place[shuffled].argsort(stable=True)]
    sobol = SobolEngine(dim, scramble=True).draw(len(element), dtype=torch.float64)
    points[order] = sobol + 2.0**-31  # they are multiples of 2^-30, zero included
    return points


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


def stratified(weights: Tensor, group: Tensor, slot: Tensor) -> Tensor:
    """As :func:`choose`, by systematic resampling in a random order.

    Each choice has the probabilities of its group. Among the draws of a group and a slot, entries
    come as often as is expected of them, give or take one.
    """
    key = slot * len(weights) + group
    _, stratum, count = key.unique(return_inverse=True, return_counts=True)
    shuffled = torch.randperm(len(key))
    order = shuffled[stratum[shuffled].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (count.cumsum(0) - count)[stratum[order]]
    shift = torch.rand(len(count), dtype=torch.float64)
    return choose(weights, group, (rank + shift[stratum]) / count[stratum])
