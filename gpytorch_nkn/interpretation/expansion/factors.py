"""Factors of products: their columns, periods, names and labels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import (
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    role_of,
    same_columns,
    short_name,
    spec_of,
)
from gpytorch_nkn.layers import Product

__all__ = [
    "columns_of",
    "label_of",
    "lengthscale_of",
    "name_of",
    "on_columns",
    "period_of",
    "real_part",
]

Columns = tuple[int, ...] | None

_FEW = 4  # columns that are named one by one


def on_columns(kernel: Kernel, columns: Columns) -> Kernel:
    """Return a copy of a kernel that sees these columns of the input; None means all."""
    copy = deepcopy(kernel)
    device = kernel.device if any(True for _ in kernel.parameters()) else None
    copy.active_dims = None if columns is None else torch.tensor(columns, device=device)
    return copy


def columns_of(kernel: Kernel) -> Columns:
    """Return the columns that a kernel sees, None for all."""
    if kernel.active_dims is not None:
        return tuple(kernel.active_dims.tolist())
    if not isinstance(kernel, NeuralKernelNetwork):
        return None
    parts = [columns_of(part) for part in kernel.primitives]  # see real_part
    known = [column for columns in parts for column in columns or ()]
    return None if None in parts else tuple(sorted(set(known)))


def real_part(kernels: Sequence[Kernel]) -> Kernel:
    """Return the real part of a product of complex kernels."""
    if len(kernels) == 1:
        return kernels[0]
    first = kernels[0]
    if all(type(k) is ComplexExponentialKernel and same_columns(first, k) for k in kernels):
        merged = deepcopy(first)
        total: Tensor = sum(k.frequency.detach() for k in kernels)
        merged.frequency = torch.nn.Parameter(total)
        return merged
    return NeuralKernelNetwork(list(kernels), [Product(len(kernels), 1)])


def name_of(kernel: Kernel) -> str:
    """Return the short name of a kernel's family."""
    if isinstance(kernel, NeuralKernelNetwork) and len(kernel.layers) == 1:  # see real_part
        return f"Re({'*'.join(name_of(part) for part in kernel.primitives)})"
    return short_name(kernel)


def period_of(kernel: Kernel) -> Tensor | None:
    """Return periods ``... x 1 x D`` of a periodic kernel, else None."""
    spec = spec_of(kernel)
    return None if spec is None or spec.period is None else spec.period(kernel)


def lengthscale_of(kernel: Kernel) -> Tensor | None:
    """Return lengthscales ``... x 1 x D`` of a smooth kernel, else None."""
    spec = spec_of(kernel)
    return spec.first(kernel, "lengthscale") if spec is not None and spec.role == "smooth" else None


def label_of(kernel: Kernel, units: Units) -> str:
    """Return name, columns and hyperparameters in units of the data: ``RBF[x1](3.4)``."""
    columns = columns_of(kernel)
    seen = columns if columns is not None else tuple(range(len(units.x_scale)))
    which = ""
    if len(units.x_scale) > 1 and columns is not None:
        names = [units.names[column] for column in seen]
        which = f"[{', '.join(names) if len(names) <= _FEW else f'{len(names)} columns'}]"
    if role_of(kernel) == "step":
        ends = {units.position(float(v), seen[0]) for v in kernel.location.detach().flatten()}
        return f"{name_of(kernel)}{which}({' to '.join(sorted(ends))})"
    values = period_of(kernel)
    if role_of(kernel) == "smooth":
        values = lengthscale_of(kernel)
    if values is None:
        return name_of(kernel) + which
    values = values[..., 0, :].expand(*values.shape[:-2], len(seen))
    parts = [units.length(values[..., i], column) for i, column in enumerate(seen)]
    if len(set(parts)) == 1:
        parts = parts[:1]
    elif len(parts) > _FEW:
        scales = values.new_tensor(units.x_scale[list(seen)])
        lengths = (values * scales).flatten()
        parts = [f"{three_digits(float(lengths.min()))} to {three_digits(float(lengths.max()))}"]
    return f"{name_of(kernel)}{which}({', '.join(parts)})"
