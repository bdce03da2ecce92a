"""Kernels over several columns as products of kernels over fewer columns each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from gpytorch.module import Module
from torch import Tensor, nn

from gpytorch_nkn._devices import on_cpu, uniform
from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.kernel_row import short_name
from gpytorch_nkn.kernels.network import NeuralKernelNetwork, kernel_values
from gpytorch_nkn.linalg import broadcast_batch_shapes

__all__ = ["factor_kernels", "separate"]

_PAIRS = 160  # of inputs, at which a kernel is compared with the product of its factors
_TOLERANCE = 1e-6  # of a correlation, in float64


def factor_kernels(
    kernels: Sequence[Kernel] | Kernel,
    columns: Sequence[Sequence[int]],
    inputs: Sequence[Tensor],
) -> list[Kernel]:
    """One kernel per group of columns, from such a list or from one separable kernel.

    Each of a list is for inputs of its own columns only; else as :func:`separate`.
    """
    if isinstance(kernels, Kernel):
        return separate(kernels, columns, inputs)
    kernels = list(kernels)
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernels must be gpytorch.kernels.Kernel, got {kernel!r}.")
    if len(kernels) != len(columns):
        raise ValueError(
            f"Expected one kernel for each of {len(columns)} groups of columns, got {len(kernels)}."
        )
    for number, (kernel, group, x) in enumerate(zip(kernels, columns, inputs, strict=True)):
        for part in [kernel, *kernel.sub_kernels()]:
            dims = part.active_dims
            if dims is not None and int(dims.max()) >= len(group):
                raise ValueError(
                    f"kernels[{number}] has active_dims {tuple(dims.tolist())}, but sees the "
                    f"{len(group)} column(s) of its own group only, counted from 0."
                )
        _check_outputs(kernel, x)
    return kernels


def separate(
    kernel: Kernel, columns: Sequence[Sequence[int]], inputs: Sequence[Tensor]
) -> list[Kernel]:
    r"""Factors of a kernel that is a product over groups of columns, for which inputs are given.

    .. math:: k(x, x') = \prod_p k_p(x_p, x'_p)

    Parts of a product that see the columns of one group only go to that group as they are. Of
    any other part the factors are slices through a point :math:`r` of the inputs,
    :math:`k_p(x_p, x'_p) = k((x_p, r), (x'_p, r))`, divided by :math:`k(r, r)` in all but the
    first group; that is exact for every separable kernel and for no other. Whether a part is
    separable is found out by its values at pairs of inputs, at the present parameters and with
    each of them changed: a sum must not pass because one weight is zero, nor a rational
    quadratic because its exponent is large.

    All factors share the parameters of ``kernel``, which is a part of the first one (once, so that
    its priors count once): keep them together in one module, and copy, save and train them
    together.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a gpytorch.kernels.Kernel, got {kernel!r}.")
    groups = [tuple(int(column) for column in group) for group in columns]
    width = sum(map(len, groups))
    if not groups or sorted(sum(groups, ())) != list(range(width)) or not all(groups):
        raise ValueError(f"columns must hold every column once, from 0 on, got {groups}.")
    shapes = [tuple(x.shape) for x in inputs]
    if len(shapes) != len(groups) or any(
        len(shape) < 2 or shape[-1] != len(group) or 0 in shape
        for shape, group in zip(shapes, groups, strict=False)
    ):
        raise ValueError(
            f"inputs must be one tensor n x c per group, c the columns of {groups}; got {shapes}."
        )
    if groups == [tuple(range(width))]:
        _check_outputs(kernel, inputs[0])
        return [kernel]
    x1, x2 = _pairs(groups, inputs)
    _check_outputs(kernel, x1)
    scales, terms = _flatten(kernel, tuple(range(width)))
    reference = _reference(kernel, x1).to(inputs[0].device)
    straddling = [t for t in terms if not any(t.depends <= set(group) for group in groups)]
    for term in straddling:
        _check_separable(term, groups, x1, x2, reference)
    factors: list[Kernel] = []
    for group in groups:
        first, own = not factors, tuple(t for t in terms if t.depends <= set(group))
        parts = (tuple(scales) if first else (), own, tuple(straddling))
        factors.append(_Factor(kernel, group, reference, parts, first=first, owner=first))
    return factors


class _Term(NamedTuple):
    """A part of a product: the columns that it is called with and those that it depends on."""

    kernel: Kernel
    columns: tuple[int, ...]
    depends: frozenset[int]

    def __call__(self, x1: Tensor, x2: Tensor, diag: bool, params: dict[str, Any]) -> Tensor:
        columns = list(self.columns)
        x1, x2 = x1[..., columns], x2[..., columns]
        return kernel_values(self.kernel, x1, x2, diag, **params)


class _Reference(nn.Module):
    """A point; in a module that is no kernel, for it is the same for all entries of a batch."""

    def __init__(self, point: Tensor):
        super().__init__()
        self.register_buffer("point", point)


class _Factor(BatchKernel):
    """Slice of a kernel through a point: what the columns of one group contribute.

    The first factor registers the joint kernel; the others only refer to it.
    """

    def __init__(
        self,
        joint: Kernel,
        group: tuple[int, ...],
        reference: Tensor,
        parts: tuple[tuple[ScaleKernel, ...], tuple[_Term, ...], tuple[_Term, ...]],
        *,
        first: bool,
        owner: bool,
    ):
        super().__init__()
        self.reference: Any = _Reference(reference)
        self.group = group
        self.first = first
        self._held = (joint, parts)  # a tuple hides them from the list of modules
        if owner:
            self.joint = joint
        others = [d for d in range(reference.numel()) if d not in group]
        order = [*group, *others]
        self._others = others
        self._order = [order.index(d) for d in range(len(order))]

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the joint kernel."""
        return broadcast_batch_shapes(self._batch_shape, self._held[0].batch_shape)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        self._batch_shape = torch.Size(value)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the joint kernel."""
        return self._held[0].dtype

    @property
    def device(self) -> torch.device | None:
        """Device of the joint kernel."""
        return self._held[0].device

    @property
    def is_stationary(self) -> bool:
        """True if all parts of the slice are stationary."""
        _, own, straddling = self._held[1]
        return all(term.kernel.is_stationary for term in (*own, *straddling))

    def _alone(self) -> _Factor:
        options = {"first": self.first, "owner": True}
        return _Factor(self._held[0], self.group, self.reference.point, self._held[1], **options)

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params,
    ) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``) for the columns of the group."""
        if last_dim_is_batch:
            raise NotImplementedError("A factor of a kernel has no values column by column.")
        scales, own, straddling = self._held[1]
        x1, x2 = self._embed(x1), self._embed(x2)
        entry_dims = (1,) if diag else (1, 1)
        value: Tensor | None = None
        for term in (*own, *straddling):
            new = term(x1, x2, diag, params)
            value = new if value is None else value * new
        if value is None:  # the kernel does not depend on this group
            shape = x1.shape[:-1] if diag else (*x1.shape[:-1], x2.size(-2))
            value = x1.new_ones(torch.broadcast_shapes(shape, (*self.batch_shape, *entry_dims)))
        for scale in scales:
            value = value * scale.outputscale.view(*scale.outputscale.shape, *entry_dims)
        if not self.first:
            point = self.reference.point.to(x1)[None]
            for term in straddling:
                at_point = term(point, point, True, params)  # ... x 1
                value = value / (at_point if diag else at_point.unsqueeze(-1))
        return value

    def _embed(self, x: Tensor) -> Tensor:
        """Rows ``... x D`` that have the reference in all other columns."""
        others = self.reference.point.to(x)[self._others].expand(*x.shape[:-1], -1)
        return torch.cat([x, others], -1)[..., self._order]


def _select(kernel: Kernel, columns: tuple[int, ...]) -> tuple[int, ...]:
    dims = kernel.active_dims
    return columns if dims is None else tuple(columns[d] for d in dims.reshape(-1).tolist())


def _depends(kernel: Kernel, columns: tuple[int, ...], selected: bool = False) -> frozenset[int]:
    """Columns, of those that it is called with, that the values of a kernel may depend on."""
    columns = columns if selected else _select(kernel, columns)
    if type(kernel) is ScaleKernel:  # it has selected the columns of its base already
        return _depends(kernel.base_kernel, columns, selected=True)
    parts = _parts(kernel)
    if not parts:
        return frozenset(columns)
    return frozenset().union(*(_depends(part, columns) for part in parts))


def _parts(kernel: Kernel) -> list[Kernel]:
    if type(kernel) in (AdditiveKernel, ProductKernel):
        return list(kernel.kernels)
    return list(kernel.primitives) if type(kernel) is NeuralKernelNetwork else []


def _flatten(kernel: Kernel, columns: tuple[int, ...]) -> tuple[list[ScaleKernel], list[_Term]]:
    """Scales and parts of a product, nested as deep as you like."""
    inner, scales = kernel, []
    while type(inner) is ScaleKernel:
        scales.append(inner)
        inner = inner.base_kernel
    if type(inner) is not ProductKernel:
        return [], [_Term(kernel, columns, _depends(kernel, columns))]
    columns = _select(kernel, columns)
    terms: list[_Term] = []
    for part in inner.kernels:
        more, own = _flatten(part, columns)
        scales, terms = scales + more, terms + own
    return scales, terms


@on_cpu()
def _pairs(groups: list[tuple[int, ...]], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Pairs of points, each ``n x D``, at many distances, the first of the inputs, in float64."""
    generator = torch.Generator().manual_seed(0)
    width = sum(map(len, groups))
    first, second, shared = (torch.empty(_PAIRS, width, dtype=torch.float64) for _ in range(3))
    for group, x in zip(groups, inputs, strict=True):
        rows = x.detach().to("cpu", torch.float64).reshape(-1, len(group))
        for points in (first, second):
            picked = torch.randint(len(rows), (_PAIRS,), generator=generator, device="cpu")
            points[:, list(group)] = rows[picked]
        # pairs that differ in some groups only tell more when lengthscales are short
        differs = uniform((_PAIRS, 1), generator) < 0.75
        shared[:, list(group)] = differs.double().expand(-1, len(group))
    shrink = 10 ** (-6 * uniform((_PAIRS, 1), generator))
    shrink[::2] = 1.0  # lengthscales may be short beside the range of the inputs
    return first, first + shared * shrink * (second - first)


def _reference(kernel: Kernel, candidates: Tensor) -> Tensor:
    """The candidate of the largest variance, ``D``."""
    with torch.no_grad():
        copy = deepcopy(kernel).to("cpu", torch.float64)
        variances = kernel_values(copy, candidates, candidates, diag=True)
    variances = variances.flatten(0, -2) if variances.dim() > 1 else variances[None]  # B x n
    if not variances.isfinite().all() or not (variances.amax(-1) > 0).all():
        raise ValueError(
            f"The variances of {_describe(kernel)} at the inputs must be finite and not all zero; "
            f"they are from {variances.min():.3g} to {variances.max():.3g}."
        )
    relative = variances / variances.amax(-1, keepdim=True)
    point = candidates[relative.amin(0).argmax()]
    return point.to(kernel.dtype)


def _check_separable(
    term: _Term, groups: list[tuple[int, ...]], x1: Tensor, x2: Tensor, reference: Tensor
) -> None:
    """Raise a ValueError unless a part is the product of its slices through the reference."""
    r = reference.to(x1).expand_as(x1)
    left, right = [x1, x1, x2], [x2, x1, x2]
    for group in groups:
        inside = torch.zeros_like(r, dtype=torch.bool)
        inside[:, list(group)] = True
        left.append(torch.where(inside, x1, r))
        right.append(torch.where(inside, x2, r))
    stacked = [torch.cat([*points, r[:1]]) for points in (left, right)]
    copy = deepcopy(term.kernel).to("cpu", torch.float64)
    term = term._replace(kernel=copy)
    for changed in _changes(copy):
        with torch.no_grad():
            values = term(stacked[0], stacked[1], True, {})
        at_point, values = values[..., -1:], values[..., :-1].unflatten(-1, (-1, len(x1)))
        joint, bound = values[..., 0, :], (values[..., 1, :] * values[..., 2, :]).sqrt()
        product = values[..., 3:, :].prod(-2) / at_point ** (len(groups) - 1)
        finite = joint.isfinite() & product.isfinite() & bound.isfinite() & (bound > 0)
        if not changed and not finite.all() and not (bound == 0).logical_or(finite).all():
            raise ValueError(f"{_describe(copy)} has values that are not finite at the inputs.")
        error = torch.where(finite, (joint - product).abs() / bound, 0.0)
        if error.max() > _TOLERANCE:
            place = error.argmax()
            when = f"with other values of {changed}" if changed else "at the present parameters"
            raise ValueError(
                f"{_describe(copy)} is not a product over the groups of columns "
                f"{', '.join(map(str, groups))}: {when} it is {joint.flatten()[place]:.6g} where "
                f"its factors give {product.flatten()[place]:.6g}. Give one kernel per group, or "
                "a kernel that is a product over them, such as an RBFKernel or a ProductKernel "
                "of kernels with active_dims of one group each."
            )


def _changes(kernel: Kernel) -> Iterator[str]:
    """Go through the parameters, changing each in place, then all; the kernel must be a copy."""
    yield ""
    generator = torch.Generator().manual_seed(1)
    parameters = []
    for prefix, module in kernel.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            new = 2 * uniform(parameter.shape, generator) - 1
            new = new.to(parameter)
            bounds = (
                module.constraint_for_parameter_name(name) if isinstance(module, Module) else None
            )
            if bounds is not None and not bounds.enforced:
                new = new.clamp(bounds.lower_bound.to(new), bounds.upper_bound.to(new))
            parameters.append((f"{prefix}.{name}" if prefix else name, parameter, new))
    for name, parameter, new in parameters:
        old = parameter.data
        parameter.data = new
        yield name
        parameter.data = old
    for _, parameter, new in parameters:
        parameter.data = new
    if len(parameters) > 1:
        yield "all parameters"


def _describe(kernel: Kernel) -> str:
    name = type(kernel).__name__
    if type(kernel) is ScaleKernel:
        return f"{name} of {_describe(kernel.base_kernel)}"
    parts = _parts(kernel)
    return f"{name} of {', '.join(short_name(part) for part in parts)}" if parts else name


def _check_outputs(kernel: Kernel, x: Tensor) -> None:
    outputs = kernel.num_outputs_per_input(x, x)
    if outputs != 1:
        raise NotImplementedError(
            f"{type(kernel).__name__} has {outputs} outputs per input; factors have one."
        )
