"""Interactions between the columns of a component."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.interpretation.expansion import Term, evaluate_strips
from gpytorch_nkn.interpretation.source import FittedGP

__all__ = ["interactions_of_columns"]

_ROWS = 30  # of the training inputs, over which averages are taken
_NEARLY_ALL = 0.999  # of the shares of the terms; the others are not counted


def interactions_of_columns(
    terms: Sequence[Term], columns: Sequence[int], gp: FittedGP
) -> dict[int, float]:
    r"""Fraction of the variance of the posterior mean of terms that each column interacts by.

    That is the variance with the column less that of the partial dependence
    :math:`\bar m_i(a) = \frac{1}{R} \sum_{r=1}^{R} m(a, x_{r, \setminus i})` over up to 30 rows of
    the training inputs, averaged over outputs. Where columns depend on each other it is an
    estimate.
    """
    leading: list[Term] = []
    total = sum(term.mean_share() for term in terms)
    for term in sorted(terms, key=lambda term: -term.mean_share()):
        if sum(other.mean_share() for other in leading) > _NEARLY_ALL * total:
            break
        leading.append(term)

    def mean(inputs: Tensor) -> Tensor:
        strips = evaluate_strips([leading], inputs, gp.inputs)
        return torch.cat([gp.posterior.mean(strip[0]) for strip in strips], dim=-1)

    chosen = permutation(gp.inputs.size(-2), torch.Generator().manual_seed(0))[:_ROWS]
    rows = gp.inputs[..., chosen.to(gp.inputs.device), :]  # ... x R x D
    count = rows.size(-2)
    whole = mean(rows).var(-1, correction=0)
    whole = whole.clamp_min(torch.finfo(whole.dtype).tiny)
    interactions = {}
    for column in columns:
        points = rows.unsqueeze(-3).repeat_interleave(count, -3)  # ... x R x R x D
        points[..., column] = rows[..., column].unsqueeze(-1)
        values = mean(points.flatten(-3, -2)).unflatten(-1, (count, count))
        own = values.var(-2, correction=0).mean(-1)
        alone = values.mean(-1).var(-1, correction=0)
        interactions[column] = float(((own - alone) / whole).mean())
    return interactions
