"""Candidate products for a simple kernel."""

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
_GROUPS = 60  # largest groups of terms that are considered
_PERIOD_STEP = math.log(1.1)  # periods closer than this are equal


def find_candidates(gp: FittedGP, count: int, zero_mean: bool) -> tuple[Part, ...]:
    """Return at most ``count`` products of GPyTorch's kernels for the largest groups of terms.

    First come single factors, then the groups, then products of fewer factors, each by falling
    variation.
    """
    expansion = expand_source(Source(gp.kernel, gp.inputs, gp.units), split=zero_mean)
    terms = expansion.terms
    groups = group_terms(terms, [product_key(term.factors) for term in terms])[:_GROUPS]
    sample = gp.inputs[:: -(-gp.inputs.size(0) // _SAMPLE)]
    diagonals, variations = _variations(groups, sample)
    leading = []
    for i in variations.argsort(descending=True, stable=True).tolist():
        part = _part(groups[i][0], float(diagonals[i]), sample, zero_mean)
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
    """Mean diagonals of the groups, and their shares of the expected variance over the inputs.

    Shares in the variance, and in the variance about a trend, are averaged because slow terms would
    hide visible cycles.
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
    """Return families, columns and periods of a product."""
    return tuple(sorted(_factor_key(factor) for factor in factors))


def _factor_key(kernel: Kernel) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    periods: tuple[int, ...] = ()
    if role_of(kernel) == "periodic":
        logs = kernel.period_length.detach().double().log().flatten() / _PERIOD_STEP
        periods = tuple(logs.round().int().tolist())
    return name_of(kernel), columns_of(kernel) or (), periods


def _part(term: Term, size: float, sample: Tensor, zero_mean: bool) -> Part | None:
    """A product with the term's hyperparameters and the mean diagonal of its group."""
    factors = [as_stock(factor, sample.size(-1), zero_mean) for factor in term.factors]
    if any(factor is None for factor in factors):
        return None
    part = Part(1.0, tuple(factor for factor in factors if factor is not None))
    return _resized(part, size, sample)


@torch.no_grad()
def _size(factors: Sequence[Kernel], sample: Tensor) -> float:
    """Mean diagonal of a product."""
    diagonal = sample.new_ones(sample.size(0))
    for factor in factors:
        diagonal = diagonal * to_dense(factor(sample, diag=True))
    return float(diagonal.mean())


def _resized(part: Part, size: float, sample: Tensor) -> Part:
    """The part with a mean diagonal of ``size``."""
    weight = size / max(_size(part.factors, sample), 1e-12)
    return replace(part, weight=max(weight, 1e-6))


def _sub_products(part: Part, sample: Tensor) -> Iterator[Part]:
    """Products of fewer of the factors, longest first."""
    size = part.weight * _size(part.factors, sample)
    level = [part.factors]
    while level and len(level[0]) > 1:
        level = [f[:i] + f[i + 1 :] for f in level for i in range(len(f))]
        for factors in level:
            yield _resized(Part(1.0, factors), size, sample)
