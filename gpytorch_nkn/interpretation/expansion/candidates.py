"""Products that may be worth a place in a simple kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion.expand import expand_source
from gpytorch_nkn.interpretation.expansion.factors import columns_of, name_of
from gpytorch_nkn.interpretation.expansion.stock_kernels import Part, as_stock
from gpytorch_nkn.interpretation.expansion.terms import Term, evaluate_groups, group_terms
from gpytorch_nkn.interpretation.source import FittedGP, Source
from gpytorch_nkn.kernels import role_of

__all__ = ["find_candidates", "product_key"]

_SAMPLE = 200  # inputs over which variation is measured
_GROUPS = 60  # largest groups, among which those that vary most are looked for
_PERIOD_STEP = math.log(1.1)  # periods closer than this count as one


def find_candidates(gp: FittedGP, count: int, zero_mean: bool) -> tuple[Part, ...]:
    """Products that stand for groups of terms that have a counterpart.

    In this order, until there are enough: every different factor alone, the groups themselves,
    products of fewer factors; each by falling variation.
    """
    expansion = expand_source(Source(gp.kernel, gp.inputs, gp.units), split=zero_mean)
    terms = expansion.terms
    groups = group_terms(terms, [product_key(term.factors) for term in terms])[:_GROUPS]
    sample = gp.inputs[:: -(-gp.inputs.size(0) // _SAMPLE)]
    diagonals, variations = _variations(groups, sample)
    leading = []
    for place in variations.argsort(descending=True, stable=True).tolist():
        part = _part(groups[place][0], float(diagonals[place]), sample, zero_mean)
        if part is not None:
            leading.append(part)
    if not leading:
        raise ValueError(
            "None of the terms has a counterpart among GPyTorch's kernels; the largest is "
            f"{terms[0].label}."
        )
    smaller = [other for part in leading for other in _sub_products(part, sample)]
    single: dict[object, Part] = {}
    for whole in leading:
        for part in (whole, *_sub_products(whole, sample)):
            if len(part.factors) == 1:
                single.setdefault(product_key(part.factors), part)
    found = dict(list(single.items())[: max(1, count // 2)])
    for part in (*leading, *smaller):
        if len(found) < count:
            found.setdefault(product_key(part.factors), part)
    return tuple(found.values())


def _variations(groups: Sequence[Sequence[Term]], sample: Tensor) -> tuple[Tensor, Tensor]:
    """Mean diagonals of the groups, and how much their functions vary over the inputs.

    That is the mean of two fractions: of the expected variance, and of the expected variance about
    a trend, because slow terms would hide cycles that a reader sees at once.
    """
    matrices = evaluate_groups(groups, sample, sample)
    diagonals = matrices.diagonal(dim1=-1, dim2=-2).mean(-1)
    n, input_dim = sample.shape
    scaled = (sample - sample.mean(0)) / sample.std(0).clamp_min(1e-12)
    powers = [1, 2, 3] if input_dim == 1 else [1]
    total = torch.zeros_like(diagonals)
    for trend in ([], [scaled**power for power in powers]):
        basis = torch.linalg.qr(torch.cat([torch.ones_like(sample[:, :1]), *trend], -1))[0]
        removed = (basis.mT @ matrices @ basis).diagonal(dim1=-1, dim2=-2).sum(-1) / n
        variation = (diagonals - removed).clamp_min(0)
        total += 0.5 * variation / variation.sum().clamp_min(1e-300)
    return diagonals, total


def product_key(factors: Sequence[Kernel]) -> tuple[object, ...]:
    """What a product is made of: families, columns and periods."""
    return tuple(sorted(_factor_key(factor) for factor in factors))


def _factor_key(kernel: Kernel) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    periods: tuple[int, ...] = ()
    if role_of(kernel) == "periodic":
        logs = kernel.period_length.detach().double().log().flatten() / _PERIOD_STEP
        periods = tuple(logs.round().int().tolist())
    return name_of(kernel), columns_of(kernel) or (), periods


def _part(term: Term, size: float, sample: Tensor, zero_mean: bool) -> Part | None:
    """A product with the term's hyperparameters, and the size of its group."""
    factors = [as_stock(factor, sample.size(-1), zero_mean) for factor in term.factors]
    if any(factor is None for factor in factors):
        return None
    part = Part(1.0, tuple(factor for factor in factors if factor is not None))
    return _resized(part, size, sample)


def _resized(part: Part, size: float, sample: Tensor) -> Part:
    """The weight with which the mean of the diagonal is ``size``."""
    diagonal = sample.new_ones(sample.size(0))
    with torch.no_grad():
        for factor in part.factors:
            diagonal = diagonal * to_dense(factor(sample, diag=True))
    weight = size / max(float(diagonal.mean()), 1e-12)
    return replace(part, weight=max(weight, 1e-6))


def _sub_products(part: Part, sample: Tensor) -> Iterator[Part]:
    """Products of fewer of the factors, one less first."""
    with torch.no_grad():
        size = part.weight * float(
            torch.stack([to_dense(f(sample, diag=True)) for f in part.factors]).prod(0).mean()
            if part.factors
            else 1.0
        )
    level = [part.factors]
    while level and len(level[0]) > 1:
        level = [f[:place] + f[place + 1 :] for f in level for place in range(len(f))]
        for factors in level:
            yield _resized(Part(1.0, factors), size, sample)
