"""Products of elementary kernels, merged and split by exact rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.interpretation.expansion.factors import columns_of
from gpytorch_nkn.kernels import own_spec, short_name

__all__ = ["ProductRules", "combine", "rewrite"]


class ProductRules:
    """Merges and splits products as :func:`gpytorch_nkn.interpretation.expand` describes.

    Equal products share their kernels.
    """

    def __init__(self, merge: bool, split: bool):
        self.merge, self.split = merge, split
        self._known: dict[object, Any] = {}  # results by rule and identity

    def parts(self, powers: list[tuple[Kernel, int]]) -> list[tuple[list[Kernel], Tensor | float]]:
        """Products with their shares of the weight, whose sum is the product of the powers."""
        factors: list[Kernel] = []
        scale: Tensor | float = 1.0
        for kernel, power in powers:
            if self.merge:
                own_scale, kernel = self._unit(kernel)
                scale = scale * own_scale**power
            for factor in self._once(("power", id(kernel), power), self._product, [kernel] * power):
                self._include(factors, factor)
        if not self.split:
            return [(factors, scale)]
        if len(factors) == 1:
            columns = self._cached(factors[0], "columns")
            if columns is not None:
                units = [self._unit(part) if self.merge else (1.0, part) for part in columns]
                return [([unit], scale * variance) for variance, unit in units]
        parts: list[tuple[list[Kernel], Tensor | float]] = [([], scale)]
        counts = Counter(id(factor) for factor in factors)
        for factor in {id(factor): factor for factor in factors}.values():
            power = counts[id(factor)]
            pair = self._cached(factor, "terms")
            if pair is None:
                parts = [(own + [factor] * power, share) for own, share in parts]
                continue
            level, rest = pair
            parts = [
                (
                    own + [rest] * k,
                    share * math.comb(power, k) * level ** (power - k) * (1 - level) ** k,
                )
                for own, share in parts
                for k in range(power + 1)
            ]
        return parts

    def _unit(self, kernel: Kernel) -> tuple[Tensor | float, Kernel]:
        """Variance of a kernel, and one kernel for all that are equal but for the variance."""
        made = self._cached(kernel, "unit")
        if made is None:
            return 1.0, kernel
        variance, unit = made
        numbers = [p.detach().flatten().tolist() for p in unit.parameters()]
        key = type(unit), short_name(unit), columns_of(unit), tuple(map(tuple, numbers))
        return variance, self._known.setdefault(key, unit)

    def _product(self, kernels: list[Kernel]) -> list[Kernel]:
        factors: list[Kernel] = []
        for kernel in kernels:
            self._include(factors, kernel)
        return factors

    def _include(self, factors: list[Kernel], new: Kernel) -> None:
        """Multiply one more kernel into a product."""
        if self.merge:
            for i, old in enumerate(factors):
                merged = self._once(("pair", id(old), id(new)), combine, old, new)
                if merged is not None:
                    factors[i] = merged
                    return
        factors.append(new)

    def _cached(self, kernel: Kernel, rule: str) -> Any:
        return self._once((rule, id(kernel)), rewrite, kernel, rule)

    def _once(self, key: object, make: Callable[..., Any], *arguments: Any) -> Any:
        if key not in self._known:
            self._known[key] = make(*arguments)
        return self._known[key]


def combine(kernel: Kernel, other: Kernel) -> Kernel | None:
    """Return the product of two kernels if it is exactly one kernel of their family, else None."""
    spec = own_spec(kernel)
    known = spec is not None and spec.multiply is not None and type(kernel) is type(other)
    return spec.multiply(kernel, other) if known else None  # type: ignore[union-attr,misc]


def rewrite(kernel: Kernel, rule: str) -> Any:
    """Apply a rule of the kernel's spec, ``unit``, ``terms`` or ``columns``; None without it."""
    make = getattr(own_spec(kernel), rule, None)
    return None if make is None else make(kernel)
