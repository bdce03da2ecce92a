"""Products that may be worth a place in a simple kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion.expand import expand_source
from gpytorch_nkn.interpretation.expansion.factors import columns_of, lengthscale_of, name_of
from gpytorch_nkn.interpretation.expansion.stock_kernels import Part, as_stock
from gpytorch_nkn.interpretation.expansion.terms import Term, evaluate_groups, group_terms
from gpytorch_nkn.interpretation.source import FittedGP, Source
from gpytorch_nkn.kernels import role_of

__all__ = ["Candidate", "find_candidates", "product_key"]

_SAMPLE = 200  # inputs over which variation is measured
_GROUPS = 60  # largest groups, among which those that vary most are looked for
_PERIOD_STEP = math.log(1.1)  # periods closer than this count as one
_FAR = 3.0  # lengthscales of one group that differ by more are worth two candidates
_LARGE = 0.02  # share of variation from which on a term without a counterpart is named


@dataclass(frozen=True, eq=False)
class Candidate:
    """A product to try.

    Attributes:
        part: With start values.
        variation: Expected variance over the inputs of functions of the group that it stands for,
            as a fraction of that of all groups.
    """

    part: Part
    variation: float


def find_candidates(
    gp: FittedGP, count: int, zero_mean: bool
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Products that stand for groups of terms, and labels of what has no counterpart.

    In this order, until there are enough: every different factor alone, the groups themselves,
    groups by another of their terms, products of fewer factors; each by falling variation.
    """
    expansion = expand_source(Source(gp.kernel, gp.inputs, gp.units), split=zero_mean)
    terms = expansion.terms
    groups = group_terms(terms, [product_key(term.factors) for term in terms])[:_GROUPS]
    sample = gp.inputs[:: -(-gp.inputs.size(0) // _SAMPLE)]
    diagonals, variations = _variations([group.terms for group in groups], sample)
    leading, second, skipped = [], [], []
    for place in variations.argsort(descending=True, stable=True).tolist():
        size, variation = float(diagonals[place]), float(variations[place])
        made = [_part(term, size, sample, zero_mean) for term in _leaders(groups[place].terms)]
        if made[0] is None and variation > _LARGE:
            skipped.append(groups[place].label)
        leading += [Candidate(part, variation) for part in made[:1] if part is not None]
        second += [Candidate(part, variation) for part in made[1:] if part is not None]
    if not leading:
        raise ValueError(
            "None of the terms has a counterpart among GPyTorch's kernels; the largest is "
            f"{terms[0].label}."
        )
    smaller = [
        Candidate(part, candidate.variation)
        for candidate in leading
        for part in _sub_products(candidate.part, sample)
    ]
    single = [c for c in [*leading, *smaller] if len(c.part.factors) == 1]
    single.sort(key=lambda candidate: -candidate.variation)  # as large as where it matters
    found: dict[object, Candidate] = {}
    for candidate in single:
        found.setdefault(product_key(candidate.part.factors), candidate)
    chosen = list(found.values())[: max(1, count // 2)]
    found = {product_key(c.part.factors): c for c in chosen}
    for candidate in (*leading, *second, *smaller):
        factors = candidate.part.factors
        known = product_key(factors) in found
        key = (
            (*product_key(factors), *_scales(factors))
            if candidate in second
            else product_key(factors)
        )
        if len(found) < count and (not known or candidate in second):
            found.setdefault(key, candidate)
    return tuple(found.values()), tuple(skipped)


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


def _scales(factors: Sequence[Kernel]) -> tuple[int, ...]:
    """Orders of magnitude of the lengthscales."""
    return tuple(sorted(round(math.log(value) / math.log(_FAR)) for value in _lengths(factors)))


def _lengths(factors: Sequence[Kernel]) -> list[float]:
    lengths = [lengthscale_of(factor) for factor in factors]
    return sorted(float(v.double().log().mean().exp()) for v in lengths if v is not None)


def _leaders(terms: Sequence[Term]) -> Iterator[Term]:
    """The leading term, and the first one whose lengthscales are far from its own."""
    yield terms[0]
    first = _lengths(terms[0].factors)
    for term in terms[1:]:
        other = _lengths(term.factors)
        if any(not 1 / _FAR < a / b < _FAR for a, b in zip(first, other, strict=False)):
            yield term
            return


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
