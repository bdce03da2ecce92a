"""Factors of products: their columns and labels, and exact rules to merge and split them."""

from __future__ import annotations

import math
from collections import Counter
from copy import deepcopy
from functools import cache
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import columns_of, own_spec, role_of, short_name, spec_of

__all__ = ["ProductRules", "combine", "label_of", "on_columns", "period_of", "rewrite"]

Columns = tuple[int, ...] | None

_MAX_NAMES = 4  # largest number of columns in a label


def on_columns(kernel: Kernel, columns: Columns) -> Kernel:
    """Return a copy of a kernel over these input columns; None for all."""
    copy = deepcopy(kernel)
    device = kernel.device if any(True for _ in kernel.parameters()) else None
    copy.active_dims = None if columns is None else torch.tensor(columns, device=device)
    return copy


def period_of(kernel: Kernel) -> Tensor | None:
    """Return periods ``... x 1 x D`` of a periodic kernel, else None."""
    spec = spec_of(kernel)
    return None if spec is None or spec.period is None else spec.period(kernel)


def label_of(kernel: Kernel, units: Units) -> str:
    """Return name, columns and hyperparameters in units of the data: ``RBF[x1](3.4)``."""
    columns = columns_of(kernel)
    inputs = columns if columns is not None else tuple(range(len(units.x_scale)))
    which = ""
    if len(units.x_scale) > 1 and columns is not None:
        names = [units.names[column] for column in inputs]
        which = f"[{', '.join(names) if len(names) <= _MAX_NAMES else f'{len(names)} columns'}]"
    if role_of(kernel) == "step":
        ends = [
            units.position(v.item(), inputs[0]) for v in torch.aminmax(kernel.location.detach())
        ]
        return f"{short_name(kernel)}{which}({' to '.join(dict.fromkeys(ends))})"
    spec, values = spec_of(kernel), period_of(kernel)
    if spec is not None and spec.role == "smooth":
        values = spec.first(kernel, "lengthscale")
    if values is None:
        return short_name(kernel) + which
    values = values[..., 0, :].expand(*values.shape[:-2], len(inputs))
    parts = [units.length(values[..., i], column) for i, column in enumerate(inputs)]
    if len(set(parts)) == 1:
        parts = parts[:1]
    elif len(parts) > _MAX_NAMES:
        scales = values.new_tensor(units.x_scale[list(inputs)])
        lengths = (values * scales).flatten()
        parts = [f"{three_digits(float(lengths.min()))} to {three_digits(float(lengths.max()))}"]
    return f"{short_name(kernel)}{which}({', '.join(parts)})"


class ProductRules:
    """Rules that merge and split products; equal products share their kernels."""

    def __init__(self, merge: bool, split: bool):
        self.merge, self.split = merge, split
        self._units: dict[object, Kernel] = {}
        self._combine, self._rewrite = cache(combine), cache(rewrite)
        self._power = cache(self._product)

    def parts(self, powers: list[tuple[Kernel, int]]) -> list[tuple[list[Kernel], Tensor | float]]:
        """Return products and weights whose sum is the product of the powers."""
        factors: list[Kernel] = []
        scale: Tensor | float = 1.0
        for kernel, power in powers:
            if self.merge:
                own_scale, kernel = self._unit(kernel)
                scale = scale * own_scale**power
            for factor in self._power(*[kernel] * power):
                self._include(factors, factor)
        if not self.split:
            return [(factors, scale)]
        columns = self._rewrite(factors[0], "columns") if len(factors) == 1 else None
        if columns is not None:
            units = [self._unit(part) if self.merge else (1.0, part) for part in columns]
            return [([unit], scale * variance) for variance, unit in units]
        parts: list[tuple[list[Kernel], Tensor | float]] = [([], scale)]
        for factor, power in Counter(factors).items():
            pair = self._rewrite(factor, "terms")
            if pair is None:
                parts = [(product + [factor] * power, share) for product, share in parts]
                continue
            level, rest = pair
            parts = [
                (
                    product + [rest] * k,
                    share * math.comb(power, k) * level ** (power - k) * (1 - level) ** k,
                )
                for product, share in parts
                for k in range(power + 1)
            ]
        return parts

    def _unit(self, kernel: Kernel) -> tuple[Tensor | float, Kernel]:
        """Return the variance and the unit-variance kernel, which equal kernels share."""
        made = self._rewrite(kernel, "unit")
        if made is None:
            return 1.0, kernel
        variance, unit = made
        numbers = [p.detach().flatten().tolist() for p in unit.parameters()]
        key = type(unit), short_name(unit), columns_of(unit), tuple(map(tuple, numbers))
        return variance, self._units.setdefault(key, unit)

    def _product(self, *kernels: Kernel) -> list[Kernel]:
        factors: list[Kernel] = []
        for kernel in kernels:
            self._include(factors, kernel)
        return factors

    def _include(self, factors: list[Kernel], new: Kernel) -> None:
        """Multiply a list of factors, in place, by a kernel."""
        for i, old in enumerate(factors if self.merge else ()):
            merged = self._combine(old, new)
            if merged is not None:
                factors[i] = merged
                return
        factors.append(new)


def combine(kernel: Kernel, other: Kernel) -> Kernel | None:
    """Return the product of two kernels as one kernel of their class, else None."""
    spec = own_spec(kernel)
    can_multiply = spec is not None and spec.multiply is not None and type(kernel) is type(other)
    return spec.multiply(kernel, other) if can_multiply else None  # type: ignore[union-attr,misc]


def rewrite(kernel: Kernel, rule: str) -> Any:
    """Apply rule ``unit``, ``terms`` or ``columns`` of the kernel's spec; None if it has none."""
    make = getattr(own_spec(kernel), rule, None)
    return None if make is None else make(kernel)
