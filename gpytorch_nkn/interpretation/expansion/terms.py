"""A kernel as a weighted sum of products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import ConstantKernel, Kernel, ProductKernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_nkn.interpretation.expansion.factors import label_of
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import columns_of, short_name, variances_of

__all__ = ["Expansion", "Term"]

_STRIP_BYTES = 2**28  # memory for matrices of factors
_SHOWN = 8  # number of printed terms


@dataclass(frozen=True, eq=False)
class Term:
    """Weight times a product of kernels."""

    weight: float | Tensor  #: non-negative; a tensor of the batch shape for a batch of kernels
    #: Kernels of the product, each on its input columns (``active_dims``) and repeated for powers;
    #: empty for a constant.
    factors: tuple[Kernel, ...]
    share: float | Tensor  #: share of the kernel's mean diagonal over the inputs
    #: Short name with hyperparameters in units of the data; kernels with equal labels are numbered.
    label: str
    #: Share of the variance of the posterior mean at training inputs.
    posterior_share: float | None = None

    @property
    def kernel(self) -> Kernel:
        """Product without the weight, as a new kernel."""
        if not self.factors:
            return constant_kernel(1.0)
        factors = deepcopy(self.factors)
        return factors[0] if len(factors) == 1 else ProductKernel(*factors)

    @property
    def signature(self) -> tuple[str, ...]:
        """Sorted short names of the factors with their columns."""
        parts = [(short_name(factor), columns_of(factor)) for factor in self.factors]
        return tuple(sorted(n if dims is None else f"{n}{list(dims)}" for n, dims in parts))

    @property
    def columns(self) -> frozenset[int] | None:
        """Input columns on which the product depends; None if unknown."""
        factor_columns = [columns_of(factor) for factor in self.factors]
        if None in factor_columns:
            return None
        return frozenset(column for columns in factor_columns for column in columns or ())

    def mean_share(self) -> float:
        """Share, averaged over a batch."""
        return float(_tensor(self.share).mean())


@dataclass(frozen=True, eq=False)
class Expansion:
    """Kernel as a weighted sum of products, see :func:`gpytorch_nkn.interpretation.expand`."""

    terms: tuple[Term, ...]  #: terms by decreasing share
    dropped: float  #: share of the dropped terms in the mean diagonal
    units: Units  #: units of the labels
    batch_shape: torch.Size  #: batch shape of the kernel

    def evaluate(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the sum of all terms ``... x N x M`` at inputs ``... x N x D`` of the kernel."""
        return evaluate_groups([self.terms], x1, x1 if x2 is None else x2)[0]

    def __str__(self) -> str:
        shown = [f"{term.mean_share():.2g} {term.label}" for term in self.terms[:_SHOWN]]
        hidden = self.terms[_SHOWN:]
        if hidden:
            share = sum(term.mean_share() for term in hidden)
            shown.append(f"{share:.2g} in {len(hidden)} smaller terms")
        return " + ".join(shown)


def group_terms(terms: Sequence[Term], keys: Sequence[object]) -> list[tuple[Term, ...]]:
    """Group terms by keys; sort the groups, and the terms of each, by decreasing share."""
    members: dict[object, list[Term]] = {}
    for term, key in zip(terms, keys, strict=True):
        members.setdefault(key, []).append(term)
    groups = [tuple(sorted(g, key=lambda term: -term.mean_share())) for g in members.values()]
    return sorted(groups, key=lambda group: -sum(term.mean_share() for term in group))


@torch.no_grad()
def evaluate_groups(
    groups: Sequence[Sequence[Term] | None],
    x1: Tensor,
    x2: Tensor,
    *,
    diag: bool = False,
    then: Callable[[int, slice, Tensor], Tensor] | None = None,
    kernel: Any = None,
) -> Tensor:
    """Return the matrices of up to thousands of groups of terms, ``J x ... x N x M``.

    Strips of rows limit the memory of shared factors. In each strip a factor is evaluated once.

    Args:
        groups, kernel: Terms of each group; None for the remainder of ``kernel``.
        x1, x2: Inputs ``... x N x D`` and ``... x M x D``.
        diag: Return diagonals ``J x ... x N``; ``x2`` must equal ``x1``.
        then: Maps the number of a group, the rows, and their matrix ``... x n x M`` to the result
            ``... x n x R``.
    """
    has_rest = None in groups
    order = sorted(range(len(groups)), key=lambda number: groups[number] is None)
    uses = Counter(f for group in groups for term in group or () for f in term.factors)
    shared = {factor for factor, number in uses.items() if number > 1}
    parts: list[list[Tensor]] = [[] for _ in groups]
    shapes = x1.shape[:-2], x2.shape[:-2], *{factor.batch_shape for factor in uses}
    entries = (1 if diag else x2.size(-2)) * torch.broadcast_shapes(*shapes).numel()
    rows = max(1, _STRIP_BYTES // (8 * max(1, entries) * (len(shared) + 3)))
    for start in range(0, x1.size(-2), rows):
        stop, values = min(start + rows, x1.size(-2)), dict[Kernel, Tensor]()
        left, right = x1[..., start:stop, :], x2[..., start:stop, :] if diag else x2
        tail = left.shape[-2:-1] if diag else torch.Size([stop - start, x2.size(-2)])
        zeros = x1.new_zeros(torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]) + tail)

        def values_of(part: Any, left=left, right=right) -> Tensor:
            return variances_of(part, left) if diag else to_dense(part(left, right))

        remainder = values_of(kernel) if has_rest else zeros
        for number in order:
            group = groups[number]
            total = remainder if group is None else zeros
            for term in group or ():
                weight = _tensor(term.weight).to(total)
                product = weight.view(*weight.shape, *[1] * len(tail))
                for factor in term.factors:
                    value = values.get(factor)
                    value = values_of(factor) if value is None else value
                    product = product * value
                    if factor in shared:
                        values[factor] = value
                total = total + product
            remainder = remainder - total if has_rest else remainder
            parts[number].append(total if then is None else then(number, slice(start, stop), total))
    matrices = [torch.cat(strips, dim=-1 if diag else -2) for strips in parts]
    return torch.stack(torch.broadcast_tensors(*matrices))


def labels_of(factors: Iterable[Kernel], units: Units) -> dict[Kernel, str]:
    """Return labels of the factors; equal labels are numbered, such as ``LIN#2``."""
    labels = {factor: label_of(factor, units) for factor in dict.fromkeys(factors)}
    alike, occurrences = Counter(labels.values()), Counter[str]()
    for factor, label in labels.items():
        if alike[label] > 1:
            occurrences[label] += 1
            name = short_name(factor)
            labels[factor] = f"{name}#{occurrences[label]}{label.removeprefix(name)}"
    return labels


def make_term(
    weight: Tensor, factors: Sequence[Kernel], share: Tensor, labels: Mapping[Kernel, str]
) -> Term:
    """Return a term with its label; weight and share are numbers without a batch."""
    ordered = sorted(factors, key=lambda factor: (short_name(factor), labels[factor]))
    powers = Counter(ordered).items()
    parts = [labels[factor] + (f"^{power}" if power > 1 else "") for factor, power in powers]
    label = "*".join(parts) or "constant"
    if weight.dim() == 0:
        return Term(weight.item(), tuple(ordered), share.item(), label)
    return Term(weight, tuple(ordered), share, label)


def constant_kernel(value: float) -> Kernel:
    """Return a constant kernel of a positive value in float64."""
    kernel = ConstantKernel().double()
    kernel.constant = torch.tensor([value], dtype=torch.float64)
    return kernel


def _tensor(value: float | Tensor) -> Tensor:
    """Convert to a float64 tensor."""
    return torch.as_tensor(value, dtype=torch.float64)
