"""Kernels that a product is made of: exact rules for products of them, and their short names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import (
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
)
from torch import Tensor

from gpytorch_nkn.interpretation.units import Units, three_digits
from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    ComplexExponentialKernel,
    NeuralKernelNetwork,
    ZeroMeanPeriodicKernel,
    short_name,
)
from gpytorch_nkn.layers import Product

__all__ = [
    "LINEAR",
    "PERIODIC",
    "SMOOTH",
    "columns_of",
    "combine",
    "label_of",
    "name_of",
    "on_columns",
    "period_of",
    "real_part",
    "split_linear",
    "split_periodic",
    "unit_linear",
]

Columns = tuple[int, ...] | None

SMOOTH = (RBFKernel, RQKernel, MaternKernel)
PERIODIC = (PeriodicKernel, ZeroMeanPeriodicKernel)
LINEAR = (LinearKernel, CenteredLinearKernel)

_FEW = 4  # columns that are named one by one


def on_columns(kernel: Kernel, columns: Columns) -> Kernel:
    """Copy of a kernel that sees these columns of the input itself; ``None`` means all."""
    copy = deepcopy(kernel)
    device = kernel.device if any(True for _ in kernel.parameters()) else None
    copy.active_dims = None if columns is None else torch.tensor(columns, device=device)
    return copy


def columns_of(kernel: Kernel) -> Columns:
    """Columns that a kernel sees, ``None`` for all of them."""
    if kernel.active_dims is not None:
        return tuple(kernel.active_dims.tolist())
    if not isinstance(kernel, NeuralKernelNetwork):
        return None
    parts = [columns_of(part) for part in kernel.primitives]  # see real_part
    known = [column for columns in parts for column in columns or ()]
    return None if None in parts else tuple(sorted(set(known)))


def combine(kernel: Kernel, other: Kernel) -> Kernel | None:
    """The product of two kernels as one of the same family, exactly; None if there is none."""
    rule = _RULES.get(type(kernel))
    return rule(kernel, other) if rule is not None and type(kernel) is type(other) else None


def real_part(kernels: Sequence[Kernel]) -> Kernel:
    """Real part of the product of complex kernels."""
    if len(kernels) == 1:
        return kernels[0]
    first = kernels[0]
    if all(type(k) is ComplexExponentialKernel and _fits(first, k) for k in kernels):
        merged = deepcopy(first)
        total: Tensor = sum(k.frequency.detach() for k in kernels)
        merged.frequency = torch.nn.Parameter(total)
        return merged
    return NeuralKernelNetwork(list(kernels), [Product(len(kernels), 1)])


def unit_linear(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Variance ``...`` of a linear kernel over one column, and the kernel with variance one."""
    if type(kernel) not in LINEAR or not _is_single(kernel, kernel.variance):
        return None
    unit = _unconstrained(kernel)
    unit.variance = torch.ones_like(kernel.variance)
    return kernel.variance.detach()[..., 0, 0], unit


def split_periodic(kernel: Kernel) -> tuple[Tensor, Kernel] | None:
    """Constant part ``...`` of a periodic kernel, and the kernel of the rest, scaled to one.

    MacKay's kernel is c + (1 - c) k with c = exp(-z) I0(z), z = 1 / lengthscale, and k without
    a mean over a period (Lloyd et al. 2014, appendix A). None for anything else.
    """
    if type(kernel) is not PeriodicKernel or not _is_single(kernel, kernel.lengthscale):
        return None
    rest = ZeroMeanPeriodicKernel(batch_shape=kernel.batch_shape, active_dims=columns_of(kernel))
    rest.to(kernel.lengthscale)
    rest.lengthscale = kernel.lengthscale.detach()
    rest.period_length = kernel.period_length.detach()
    return torch.special.i0e(1 / kernel.lengthscale.detach())[..., 0, 0], rest


def split_linear(kernel: Kernel) -> list[Kernel] | None:
    """A linear kernel over several columns as one per column, whose sum it is; else None."""
    columns = columns_of(kernel)
    if type(kernel) not in LINEAR or columns is None or len(columns) == 1:
        return None
    parts = []
    for place, column in enumerate(columns):
        part = type(kernel)(batch_shape=kernel.batch_shape, active_dims=(column,))
        part.to(kernel.variance)
        part.variance = _entry(kernel.variance, place)
        if type(kernel) is CenteredLinearKernel:
            part.initialize(center=_entry(kernel.center, place))
        parts.append(part)
    return parts


def name_of(kernel: Kernel) -> str:
    """Short name of its family in the literature's words."""
    if isinstance(kernel, NeuralKernelNetwork) and len(kernel.layers) == 1:  # see real_part
        return f"Re({'*'.join(name_of(part) for part in kernel.primitives)})"
    return short_name(kernel)


def period_of(kernel: Kernel) -> Tensor | None:
    """Periods ``... x 1 x D`` of a kernel that repeats; None for any other."""
    if isinstance(kernel, PERIODIC):
        return kernel.period_length.detach()
    if isinstance(kernel, CosineKernel):  # cos(pi d / p), whose period is 2 p
        return 2 * kernel.period_length.detach()
    if isinstance(kernel, ComplexExponentialKernel):
        return 2 * math.pi / kernel.frequency.detach().abs()
    return None


def label_of(kernel: Kernel, units: Units) -> str:
    """Name, columns and hyperparameters in the data's units: ``PER(1.00 yr)``, ``RBF[x1](3.4)``."""
    columns = columns_of(kernel)
    places = columns if columns is not None else tuple(range(len(units.x_scale)))
    which = ""
    if len(units.x_scale) > 1 and columns is not None:
        which = f"[{_columns_text(places, units)}]"
    values = period_of(kernel)
    if isinstance(kernel, SMOOTH):
        values = kernel.lengthscale.detach()
    if values is None:
        return name_of(kernel) + which
    values = values[..., 0, :].expand(*values.shape[:-2], len(places))
    parts = [units.length(values[..., i], place) for i, place in enumerate(places)]
    if len(set(parts)) == 1:
        parts = parts[:1]
    elif len(parts) > _FEW:
        scales = values.new_tensor(units.x_scale[list(places)])
        lengths = (values * scales).flatten()
        parts = [f"{three_digits(float(lengths.min()))} to {three_digits(float(lengths.max()))}"]
    return f"{name_of(kernel)}{which}({', '.join(parts)})"


def _columns_text(places: Sequence[int], units: Units) -> str:
    """Names of few columns; of many, from where to where they follow each other."""
    names = [units.names[place] for place in places]
    if len(names) <= _FEW:
        return ", ".join(names)
    runs: list[list[int]] = []
    for place in sorted(set(places)):
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    ends = [[units.names[place] for place in run] for run in runs]
    parts = [f"{e[0]}..{e[-1]}" if len(e) > 2 else ", ".join(e) for e in ends]
    return ", ".join(parts) if len(parts) <= _FEW else f"{len(names)} columns"


def _combine_rbf(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-d^2 / 2 l^2): precisions add, column by column."""
    columns = columns_of(first), columns_of(second)
    if columns[0] == columns[1]:
        merged = columns[0]
        precision = _precision(first) + _precision(second)
    elif None in columns:
        return None
    else:
        assert columns[0] is not None and columns[1] is not None
        merged = tuple(sorted({*columns[0], *columns[1]}))
        precision = _spread(_precision(first), columns[0], merged)
        precision = precision + _spread(_precision(second), columns[1], merged)
    width = precision.size(-1)
    batch_shape = precision.shape[:-2]
    kernel = RBFKernel(
        ard_num_dims=width if width > 1 else None, batch_shape=batch_shape, active_dims=merged
    )
    kernel.to(precision)
    kernel.lengthscale = precision.rsqrt()
    return kernel


def _unconstrained(kernel: Kernel) -> Kernel:
    """A copy that takes any positive parameters; what is derived may leave the bounds."""
    copy = deepcopy(kernel)
    for name, _, constraint in kernel.named_parameters_and_constraints():
        if constraint is not None and type(constraint) is not Positive:
            value = constraint.transform(getattr(kernel, name).detach())
            positive = Positive().to(value)
            copy.register_constraint(name, positive)
            copy.initialize(**{name: positive.inverse_transform(value)})
    return copy


def _precision(kernel: Kernel) -> Tensor:
    columns = columns_of(kernel)
    value = kernel.lengthscale.detach().square().reciprocal()
    return value if columns is None else value.expand(*value.shape[:-1], len(columns))


def _spread(precision: Tensor, own: tuple[int, ...], merged: tuple[int, ...]) -> Tensor:
    result = precision.new_zeros(*precision.shape[:-1], len(merged))
    places = torch.tensor([merged.index(column) for column in own], device=precision.device)
    return result.index_add_(-1, places, precision)  # a column may come twice


def _combine_periodic(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-2 sin^2(pi d / p) / l): for one period, 1 / l adds."""
    if not _fits(first, second) or not _equal(first.period_length, second.period_length):
        return None
    merged = _unconstrained(first)
    rates = 1 / first.lengthscale.detach() + 1 / second.lengthscale.detach()
    merged.lengthscale = 1 / rates
    return merged


def _combine_matern(first: Kernel, second: Kernel) -> Kernel | None:
    """exp(-d / l): 1 / l adds in one dimension; for the other smoothnesses there is no rule."""
    single = _is_single(first, first.lengthscale) and _is_single(second, second.lengthscale)
    if not (first.nu == second.nu == 0.5 and single and _fits(first, second)):
        return None
    merged = _unconstrained(first)
    merged.lengthscale = 1 / (1 / first.lengthscale.detach() + 1 / second.lengthscale.detach())
    return merged


def _combine_rational_quadratic(first: Kernel, second: Kernel) -> Kernel | None:
    """(1 + d^2 / 2 a l^2)^-a: exponents add where a l^2 is the same."""
    if not _fits(first, second):
        return None
    tails = [k.alpha.detach()[..., None] * k.lengthscale.detach().square() for k in (first, second)]
    if not _equal(*tails):
        return None
    merged = _unconstrained(first)
    merged.alpha = first.alpha.detach() + second.alpha.detach()
    merged.lengthscale = (tails[0] / merged.alpha.detach()[..., None]).sqrt()
    return merged


def _fits(first: Kernel, second: Kernel) -> bool:
    """Whether two kernels of one family see the same columns with as many parameters."""
    shapes = [[tuple(p.shape) for p in kernel.parameters()] for kernel in (first, second)]
    return columns_of(first) == columns_of(second) and shapes[0] == shapes[1]


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether they differ by rounding only, as what is set and read again does."""
    return torch.allclose(first, second, rtol=32 * torch.finfo(first.dtype).eps, atol=0.0)


def _is_single(kernel: Kernel, parameter: Tensor) -> bool:
    """Whether it sees one column, and is known to."""
    columns = columns_of(kernel)
    return parameter.size(-1) == 1 and columns is not None and len(columns) == 1


def _entry(parameter: Tensor, place: int) -> Tensor:
    """One column of a parameter that may be shared by all."""
    return parameter.detach()[..., [place if parameter.size(-1) > 1 else 0]]


_RULES: dict[type[Kernel], Callable[[Kernel, Kernel], Kernel | None]] = {
    RBFKernel: _combine_rbf,
    PeriodicKernel: _combine_periodic,
    MaternKernel: _combine_matern,
    RQKernel: _combine_rational_quadratic,
}
