"""What the columns of a component do one by one, and what they do together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.interpretation.expansion import Term, evaluate_strips
from gpytorch_nkn.interpretation.source import FittedGP

__all__ = ["ColumnUse", "use_of_columns"]

_ROWS = 30  # of the training inputs, over which averages are taken
_NEARLY_ALL = 0.999  # of the shares of the terms; the others are not counted


@dataclass(frozen=True)
class ColumnUse:
    """How a function uses its columns, in fractions of its variance, averaged over outputs.

    Attributes:
        joint: Of what is no sum of functions of single columns.
        totals: By column, of what changes with it.
        interactions: By column, of what it does together with others.
    """

    joint: float
    totals: dict[int, float]
    interactions: dict[int, float]


def use_of_columns(terms: Sequence[Term], columns: Sequence[int], gp: FittedGP) -> ColumnUse:
    r"""Take the posterior mean of terms apart by partial dependence.

    With :math:`\bar m_i(a) = \frac{1}{R} \sum_{r=1}^{R} m(a, x_{r, \setminus i})` over up to 30
    rows of the training inputs, the joint fraction is
    :math:`\mathrm{var}(m - \sum_i \bar m_i) / \mathrm{var}(m)`, which is zero for every sum of
    functions of single columns. Where the columns depend on each other it is an estimate.
    """
    if len(columns) < 2:
        return ColumnUse(0.0, dict.fromkeys(columns, 1.0), dict.fromkeys(columns, 0.0))
    leading: list[Term] = []
    total = sum(term.mean_share() for term in terms)
    for term in sorted(terms, key=lambda term: -term.mean_share()):
        if sum(other.mean_share() for other in leading) > _NEARLY_ALL * total:
            break
        leading.append(term)

    def mean(inputs: Tensor) -> Tensor:
        strips = evaluate_strips([leading], inputs, gp.inputs)
        return torch.cat([gp.posterior.mean(strip[0]) for strip in strips], dim=-1)

    n = gp.inputs.size(-2)
    chosen = permutation(n, torch.Generator().manual_seed(0))[:_ROWS]
    rows = gp.inputs[..., chosen.to(gp.inputs.device), :]  # ... x R x D
    count = rows.size(-2)
    left = _centered(mean(rows))
    whole = left.square().mean(-1).clamp_min(torch.finfo(left.dtype).tiny)
    totals, interactions = {}, {}
    for column in columns:
        points = rows.unsqueeze(-3).repeat_interleave(count, -3)  # ... x R x R x D
        points[..., column] = rows[..., column].unsqueeze(-1)
        values = mean(points.flatten(-3, -2)).unflatten(-1, (count, count))
        alone = _centered(values.mean(-1))
        left = left - alone
        first = alone.square().mean(-1)
        own = values.var(-2, correction=0).mean(-1)
        totals[column] = float((own / whole).mean())
        interactions[column] = float(((own - first) / whole).mean())
    joint = min(1.0, float((left.square().mean(-1) / whole).mean()))
    return ColumnUse(joint, totals, interactions)


def _centered(values: Tensor) -> Tensor:
    return values - values.mean(-1, keepdim=True)
