"""Sums of products of GPyTorch's own kernels, and candidate products for a simple kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    ProductKernel,
    ScaleKernel,
)
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion.expand import expand_source
from gpytorch_nkn.interpretation.expansion.terms import (
    Term,
    constant_kernel,
    evaluate_groups,
    group_terms,
)
from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.kernels import (
    NeuralKernelNetwork,
    columns_of,
    own_spec,
    role_of,
    short_name,
    spec_of_values,
)
from gpytorch_nkn.layers import Layer, Linear, Product

__all__ = [
    "Part",
    "as_gpytorch",
    "as_network",
    "find_candidates",
    "gpytorch_sum",
    "product_key",
    "shorter",
]

_SAMPLE = 200  # number of inputs at which the variances of groups are computed
_GROUPS = 60  # number of largest groups of terms that become candidates
_PERIOD_STEP = math.log(1.1)  # step of rounded log periods, which identify similar periods


@dataclass(frozen=True, eq=False)
class Part:
    """A weight times a product of GPyTorch's kernels; a constant has no factors."""

    weight: float  # positive
    factors: tuple[Kernel, ...]  # without priors; linear kernels of one column have unit variance

    @property
    def num_parameters(self) -> int:
        """Number of free hyperparameters, without the redundant scale of a linear factor."""
        counts = [
            sum(p.numel() for p in factor.parameters() if p.requires_grad)
            for factor in self.factors
        ]
        is_scaled = any(
            isinstance(f, LinearKernel) and c for f, c in zip(self.factors, counts, strict=True)
        )
        return sum(counts) + (0 if is_scaled else 1)

    @property
    def name(self) -> str:
        """Short names of the families, such as ``PER*RBF``."""
        return "*".join(sorted(map(short_name, self.factors))) or "constant"


def as_gpytorch(kernel: Kernel, input_dim: int, zero_mean: bool = False) -> Kernel | None:
    """Return the equivalent GPyTorch kernel without priors, or None.

    With ``zero_mean``, periodic kernels have no constant part.
    """
    columns, spec = columns_of(kernel), spec_of_values(kernel)
    converted: Kernel | None
    if spec is not None and spec.to_gpytorch is not None:
        converted = spec.to_gpytorch(kernel, zero_mean)
        width = input_dim if columns is None else len(columns)
        # GPyTorch's cosine of a distance is valid for one column only
        if converted is None or (isinstance(converted, CosineKernel) and width > 1):
            return None
    elif type(kernel).__module__.partition(".")[0] == "gpytorch":
        converted = deepcopy(kernel)
        for module in converted.modules():
            priors = getattr(module, "_priors", {})
            for name in list(priors):
                module._modules.pop(name, None)
            priors.clear()
    else:
        return None
    all_columns = columns is None or columns == tuple(range(input_dim))
    converted.active_dims = None if all_columns else torch.tensor(columns, device=kernel.device)
    return converted


def gpytorch_sum(parts: Sequence[Part], like: Tensor) -> Kernel:
    """Return the sum as a GPyTorch kernel, with dtype and device of ``like``."""
    kernels = [_gpytorch_product(part).to(like) for part in parts]
    return kernels[0] if len(kernels) == 1 else AdditiveKernel(*kernels)


def _gpytorch_product(part: Part) -> Kernel:
    if not part.factors:
        return constant_kernel(part.weight)
    factors = [deepcopy(factor) for factor in part.factors]
    if len(factors) == 1 and isinstance(factors[0], LinearKernel):  # its variance is the weight
        linear = factors[0]
        linear.variance = part.weight * linear.variance.detach()
        linear.raw_variance.requires_grad_(True)
        return linear
    product = factors[0] if len(factors) == 1 else ProductKernel(*factors)
    scaled = ScaleKernel(product).double()
    scaled.outputscale = part.weight
    return scaled


def as_network(
    parts: Sequence[Part], like: Tensor
) -> tuple[NeuralKernelNetwork, Callable[[], tuple[Part, ...]]]:
    """Return an equivalent network, and a function that returns the parts as it has trained them.

    The network trains several times as fast as GPyTorch's kernels.
    """
    unit: Any = constant_kernel(1.0).to(like)
    unit.raw_constant.requires_grad_(False)
    factors = [deepcopy(part.factors) for part in parts]
    groups = [group or (unit,) for group in factors]
    last = Linear(len(parts), 1, bias=False).to(like)
    last.weight = torch.tensor([[part.weight for part in parts]], dtype=torch.float64)
    layers: list[Layer] = [last]
    if sum(map(len, groups)) > len(parts):
        sizes = list(map(len, groups))
        layers.insert(0, Product(sum(sizes), len(parts), groups=sizes))
    network = NeuralKernelNetwork(list(chain.from_iterable(groups)), layers).to(like)
    return network, lambda: tuple(map(Part, last.weight.detach()[0].tolist(), factors))


def shorter(part: Part) -> Iterator[Part]:
    """Yield products without one factor, input column or exponent."""
    for i, factor in enumerate(part.factors):
        others = part.factors[:i] + part.factors[i + 1 :]
        if others:
            yield replace(part, factors=others)
        spec = own_spec(factor)
        for simple in () if spec is None or spec.simpler is None else spec.simpler(factor):
            yield replace(part, factors=(*others, simple))
        for narrower in _narrower(factor):
            yield replace(part, factors=(*others, narrower))


def _narrower(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernel without each of its columns, if it has a parameter per column."""
    width = kernel.ard_num_dims or 1
    if width == 1 or role_of(kernel) is None:
        return
    columns = columns_of(kernel) or tuple(range(width))
    for dropped in range(width):
        kept = [column for column in range(width) if column != dropped]
        copy = deepcopy(kernel)
        copy.ard_num_dims = len(kept) if len(kept) > 1 else None
        copy.active_dims = torch.tensor([columns[k] for k in kept], device=kernel.device)
        for name, parameter in kernel.named_parameters(recurse=False):
            if parameter.size(-1) == width and parameter.dim() > 1:
                trained = parameter.requires_grad
                value = parameter.detach()[..., kept].clone()
                setattr(copy, name, torch.nn.Parameter(value, trained))
        if isinstance(copy, LinearKernel) and len(kept) == 1:
            copy.variance = 1.0
            copy.raw_variance.requires_grad_(False)
        yield copy


def find_candidates(gp: FittedGP, count: int, zero_mean: bool) -> tuple[Part, ...]:
    """Return at most ``count`` products of GPyTorch's kernels for the largest groups of terms.

    Single factors come first, then the groups, then products of fewer factors, each by decreasing
    variance over the data.
    """
    expansion = expand_source(gp, split=zero_mean)
    terms = expansion.terms
    groups = group_terms(terms, [product_key(term.factors) for term in terms])[:_GROUPS]
    sample = gp.inputs[:: -(-gp.inputs.size(0) // _SAMPLE)]
    diagonals, variations = _variations(groups, sample)
    leading = []
    for i in variations.argsort(descending=True, stable=True).tolist():
        factors = [as_gpytorch(f, sample.size(-1), zero_mean) for f in groups[i][0].factors]
        converted = [factor for factor in factors if factor is not None]
        if len(converted) == len(factors):
            leading.append(_part(converted, float(diagonals[i]), sample))
    if not leading:
        raise ValueError(
            "The kernel must have a term that GPyTorch's kernels can represent, got "
            f"{terms[0].label} as its largest term."
        )
    smaller = [list(_sub_products(part, sample)) for part in leading]
    chosen: dict[object, Part] = {}
    for product, others in zip(leading, smaller, strict=True):
        for part in (product, *others):
            if len(part.factors) == 1 and len(chosen) < max(1, count // 2):
                chosen.setdefault(product_key(part.factors), part)
    for part in (*leading, *chain.from_iterable(smaller)):
        if len(chosen) < count:
            chosen.setdefault(product_key(part.factors), part)
    return tuple(chosen.values())


def _variations(groups: Sequence[Sequence[Term]], sample: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean diagonals ``J`` of groups, and their shares ``J`` of the expected variance.

    Shares are means over two variances: of the values, in which slow terms dominate, and about a
    trend.
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
    """Return families, columns and rounded periods, which identify similar products."""
    return tuple(sorted(_factor_key(factor) for factor in factors))


def _factor_key(kernel: Kernel) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    periods: tuple[int, ...] = ()
    if role_of(kernel) == "periodic":
        logs = kernel.period_length.detach().double().log().flatten() / _PERIOD_STEP
        periods = tuple(logs.round().int().tolist())
    return short_name(kernel), columns_of(kernel) or (), periods


@torch.no_grad()
def _size(factors: Sequence[Kernel], sample: Tensor) -> float:
    """Return the mean diagonal of a product."""
    diagonals = (to_dense(factor(sample, diag=True)) for factor in factors)
    return float(math.prod(diagonals, start=sample.new_ones(sample.size(0))).mean())


def _part(factors: Sequence[Kernel], size: float, sample: Tensor) -> Part:
    """Return the product of the factors with a mean diagonal of ``size``."""
    weight = size / max(_size(factors, sample), 1e-12)
    return Part(max(weight, 1e-6), tuple(factors))


def _sub_products(part: Part, sample: Tensor) -> Iterator[Part]:
    """Yield products of fewer factors, longest first."""
    size = part.weight * _size(part.factors, sample)
    level = [part.factors]
    while level and len(level[0]) > 1:
        level = [f[:i] + f[i + 1 :] for f in level for i in range(len(f))]
        for factors in level:
            yield _part(factors, size, sample)
