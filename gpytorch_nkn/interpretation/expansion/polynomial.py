"""Arithmetic of polynomials with non-negative coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

import numpy as np
import torch
from torch import Tensor

__all__ = ["Bounds", "Polynomials", "constant", "monomial", "stack"]

_MAX_PAIRS = 4_000_000  # largest number of products of monomials
_CHUNK = 50_000  # monomials per evaluation of sizes
_ORDERS = 60  # largest order of the series of an exponential


@dataclass(frozen=True)
class Bounds:
    """Rules for dropping monomials."""

    size: Callable[[np.ndarray], Tensor]  # mean diagonals ... x M of monomials M x A
    max_terms: int
    tolerance: float  # share of a unit below which monomials are dropped


@dataclass(frozen=True)
class Polynomials:
    """Several polynomials over common monomials."""

    exponents: np.ndarray  # M x A, a row per monomial
    weights: Tensor  # ... x U x M, not negative

    def linear(self, weight: Tensor, bias: Tensor | None) -> Polynomials:
        """Return linear combinations with weights ``... x O x U`` and constants ``... x O``."""
        mixed = Polynomials(self.exponents, weight @ self.weights)
        return mixed if bias is None else stack_sum(mixed, constant(bias))

    def scale(self, factor: Tensor) -> Polynomials:
        """Multiply all polynomials by a factor ``...``."""
        return Polynomials(self.exponents, self.weights * factor[..., None, None])

    def total(self) -> Polynomials:
        """Return the sum of all polynomials."""
        return Polynomials(self.exponents, self.weights.sum(-2, keepdim=True))

    def product(self, groups: Sequence[int], bounds: Bounds) -> Polynomials:
        """Return products of adjacent groups of these sizes."""
        units = iter([Polynomials(self.exponents, row) for row in self.weights.split(1, dim=-2)])
        products = [
            reduce(lambda left, right: left.times(right, bounds), islice(units, size))
            for size in groups
        ]
        return stack(products).prune(bounds)

    def times(self, other: Polynomials, bounds: Bounds) -> Polynomials:
        """Return elementwise products."""
        left, right = _to_width(self, other)
        if len(left.exponents) * len(right.exponents) > _MAX_PAIRS:
            half = math.isqrt(_MAX_PAIRS)
            left, right = (p.prune(replace(bounds, max_terms=half)) for p in (left, right))
        exponents = (left.exponents[:, None] + right.exponents).reshape(-1, left.exponents.shape[1])
        weights = (left.weights.unsqueeze(-1) * right.weights.unsqueeze(-2)).flatten(-2)
        return _merge(exponents, weights).prune(bounds)

    def power_series(self, coefficients: tuple[float, ...], bounds: Bounds) -> Polynomials:
        """Apply a power series to each polynomial, by Horner's scheme."""
        *others, result = [constant(torch.full_like(self.weights[..., 0], c)) for c in coefficients]
        for added in reversed(others):
            result = stack_sum(result.times(self, bounds), added)
        return result

    def exponential(self, bounds: Bounds) -> Polynomials:
        r"""Return :math:`e^p = e^{p_0} \sum_m (p - p_0)^m / m!`, up to the relative tolerance."""
        is_constant = torch.as_tensor(~self.exponents.any(axis=1))
        start = (self.weights * is_constant.to(self.weights)).sum(-1).exp()
        varying = Polynomials(self.exponents, self.weights * (~is_constant).to(self.weights))
        power = total = constant(start)
        for order in range(1, _ORDERS + 1):
            power = power.times(varying, bounds)
            power = Polynomials(power.exponents, power.weights / order)
            total = stack_sum(total, power)
            if bool((power.mass(bounds) <= bounds.tolerance * total.mass(bounds)).all()):
                break
        return total.prune(bounds)

    def mass(self, bounds: Bounds) -> Tensor:
        """Return the size of each polynomial, ``... x U``."""
        return (self.weights * bounds.size(self.exponents).unsqueeze(-2)).sum(-1)

    def prune(self, bounds: Bounds) -> Polynomials:
        """Drop negligible monomials, and the smallest beyond the maximum number."""
        chunks = np.split(self.exponents, range(_CHUNK, len(self.exponents), _CHUNK))
        sizes = torch.cat([bounds.size(chunk) for chunk in chunks], dim=-1)
        masses = self.weights * sizes.unsqueeze(-2)
        shares = masses / masses.sum(-1, keepdim=True).clamp_min(torch.finfo(masses.dtype).tiny)
        largest = shares.reshape(-1, shares.size(-1)).amax(0)
        kept = largest > bounds.tolerance
        if int(kept.sum()) > bounds.max_terms:
            order = largest.argsort(descending=True, stable=True)[: bounds.max_terms]
            kept = torch.zeros_like(kept).index_fill(0, order, True)
        if bool(kept.all()):
            return self
        kept = kept if bool(kept.any()) else largest >= largest.max()  # all are zero
        return Polynomials(self.exponents[kept.cpu().numpy()], self.weights[..., kept])


def constant(weights: Tensor) -> Polynomials:
    """Return constant polynomials ``... x U``."""
    return Polynomials(np.zeros((1, 1), dtype=np.uint16), weights.unsqueeze(-1))


def monomial(variable: int, like: Tensor) -> Polynomials:
    """Return one variable, with dtype and device of ``like``."""
    exponents = np.zeros((1, variable + 1), dtype=np.uint16)
    exponents[0, variable] = 1
    return Polynomials(exponents, torch.ones(1, 1, dtype=like.dtype, device=like.device))


def stack(parts: list[Polynomials]) -> Polynomials:
    """Concatenate polynomials over the union of their monomials."""
    parts = _to_width(*parts)
    batch_shape = torch.broadcast_shapes(*[part.weights.shape[:-2] for part in parts])
    units = sum(part.weights.size(-2) for part in parts)
    count = sum(len(part.exponents) for part in parts)
    weights = parts[0].weights.new_zeros(*batch_shape, units, count)
    unit = column = 0
    for part in parts:
        height, width = part.weights.shape[-2:]
        weights[..., unit : unit + height, column : column + width] = part.weights
        unit, column = unit + height, column + width
    return _merge(np.concatenate([part.exponents for part in parts]), weights)


def stack_sum(left: Polynomials, right: Polynomials) -> Polynomials:
    """Return elementwise sums."""
    left, right = _to_width(left, right)
    exponents = np.concatenate([left.exponents, right.exponents])
    shape = torch.broadcast_shapes(left.weights.shape[:-1], right.weights.shape[:-1])
    parts = [p.weights.expand(*shape, -1) for p in (left, right)]
    return _merge(exponents, torch.cat(parts, dim=-1))


def _to_width(*parts: Polynomials) -> list[Polynomials]:
    """Pad exponents to the largest number of variables."""
    width = max(part.exponents.shape[1] for part in parts)
    return [
        Polynomials(np.pad(p.exponents, ((0, 0), (0, width - p.exponents.shape[1]))), p.weights)
        for p in parts
    ]


def _merge(exponents: np.ndarray, weights: Tensor) -> Polynomials:
    """Merge equal monomials."""
    rows = np.ascontiguousarray(exponents)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(exponents):
        return Polynomials(exponents, weights)
    merged = weights.new_zeros(*weights.shape[:-1], len(first))
    index = torch.as_tensor(inverse, device=weights.device)
    return Polynomials(exponents[first], merged.index_add_(-1, index, weights))
