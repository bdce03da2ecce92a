"""Sums of products of base kernels: their parameters, their normal form, their models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.kernels import CenteredLinearKernel

__all__ = [
    "Expression",
    "Factor",
    "Kinds",
    "State",
    "Term",
    "ZeroMeanPeriodic",
    "column",
    "make_model",
    "normal_form",
    "read",
    "term_kernels",
    "write",
]

Kinds = tuple[str, ...]  # a product of base kernels, sorted
Expression = tuple[Kinds, ...]  # a sum of products, sorted
Factor = tuple[str, dict[str, float]]  # the kind of a base kernel, its parameters by name


@dataclass(frozen=True)
class Term:
    """A scaled product of base kernels: each a kind and its parameters by name."""

    scale: float
    factors: tuple[Factor, ...]

    @property
    def kinds(self) -> Kinds:
        return tuple(kind for kind, _ in self.factors)


@dataclass(frozen=True)
class State:
    """All parameters of a model, its terms in the order of their kinds."""

    terms: tuple[Term, ...]
    noise: float

    @property
    def expression(self) -> Expression:
        return tuple(term.kinds for term in self.terms)


class _GP(ExactGP):
    """A process whose level is a kernel, so that its likelihood is averaged over levels.

    A mean that is maximised over would count as much as nothing, and favour kernels that leave
    the level to it (LIN * RBF in place of RBF).
    """

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ZeroMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class ZeroMeanPeriodic(PeriodicKernel):
    """GPyTorch's periodic kernel of one input less its mean over a period, with variance one.

    The same function as :class:`gpytorch_nkn.kernels.ZeroMeanPeriodicKernel`, in a third of the
    time under autograd; the difference is inexact only for lengthscales in the millions.
    """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params) -> Tensor:
        """Values ``N x M`` (``N`` with ``diag``)."""
        mean = torch.special.i0e(1 / self.lengthscale).squeeze()
        return (super().forward(x1, x2, diag=diag, **params) - mean) / (1 - mean)


def make_model(x: Tensor, y: Tensor, terms: tuple[Term, ...], *, zero_mean: bool) -> ExactGP:
    """An exact GP whose kernel is the sum of the terms and of a level of variance one.

    Args:
        x: Standardised inputs ``N x D``.
        y: Standardised targets ``N``.
        terms: What the kernel is made of; parameters are set by :func:`write`.
        zero_mean: PER without its constant part.
    """
    return _GP(x, y, _sum(terms, x.size(-1) == 1, zero_mean)).to(x)


def _sum(terms: tuple[Term, ...], single: bool, zero_mean: bool) -> AdditiveKernel:
    level = ConstantKernel()
    level.constant = torch.ones(1)
    level.raw_constant.requires_grad_(False)
    return AdditiveKernel(*(ScaleKernel(_product(t, single, zero_mean)) for t in terms), level)


def _product(term: Term, single: bool, zero_mean: bool) -> Kernel:
    if not single:  # a product of RBFs of columns is one RBF, and far cheaper so
        columns = tuple(column(kind) for kind in term.kinds)
        return RBFKernel(ard_num_dims=len(columns), active_dims=columns)
    parts = [_base_kernel(kind, zero_mean) for kind in term.kinds]
    return parts[0] if len(parts) == 1 else ProductKernel(*parts)


def _base_kernel(kind: str, zero_mean: bool) -> Kernel:
    if kind == "PER":
        return ZeroMeanPeriodic() if zero_mean else PeriodicKernel()
    if kind == "LIN":
        kernel = CenteredLinearKernel(learn_center=True)
        kernel.variance = 1.0
        kernel.raw_variance.requires_grad_(False)  # the term's output scale says it
        return kernel
    return RBFKernel() if kind == "RBF" else RQKernel()


def column(kind: str) -> int:
    """Column, from 0, that ``RBF_d`` sees."""
    return int(kind.removeprefix("RBF_")) - 1


def normal_form(state: State) -> State:
    """The same sum of products with redundant parts merged, sorted by kinds.

    A product of RBFs of one column is an RBF, and two lines with a level are a line.
    """
    terms: list[Term] = []
    for term in state.terms:
        factors: list[Factor] = []
        for kind, values in term.factors:
            same = [k for k, (other, _) in enumerate(factors) if other == kind]
            if kind.startswith("RBF") and same:
                old = factors[same[0]][1]["lengthscale"]
                merged = (old**-2 + values["lengthscale"] ** -2) ** -0.5
                factors[same[0]] = kind, {"lengthscale": merged}
            else:
                factors.append((kind, values))
        factors.sort(key=lambda factor: factor[0])
        new = Term(term.scale, tuple(factors))
        if new.kinds == ("LIN",) and any(new.kinds == other.kinds for other in terms):
            continue
        terms.append(new)
    return replace(state, terms=tuple(sorted(terms, key=lambda term: term.kinds)))


def term_kernels(model: ExactGP) -> list[Kernel]:
    """The scaled kernels of the terms, without the level."""
    return list(model.covar_module.kernels)[:-1]


def _factor_kernels(scaled: Kernel) -> list[Kernel]:
    base = scaled.base_kernel
    return list(base.kernels) if isinstance(base, ProductKernel) else [base]


def write(model: ExactGP, state: State) -> None:
    """Set all parameters of a model of the state's expression."""
    model.likelihood.noise = max(state.noise, 2e-4)
    for scaled, term in zip(term_kernels(model), state.terms, strict=True):
        scaled.outputscale = min(max(term.scale, 1e-4), 1e4)
        kernels = _factor_kernels(scaled)
        if len(kernels) < len(term.factors):  # one RBF of several columns
            values = [values["lengthscale"] for _, values in term.factors]
            kernels[0].lengthscale = torch.tensor(values).to(kernels[0].lengthscale)
            continue
        for kernel, (_, values) in zip(kernels, term.factors, strict=True):
            for name, value in values.items():
                low = -1e4 if name == "center" else 1e-4
                kernel.initialize(**{name: min(max(value, low), 1e4)})


def read(model: ExactGP, like: State) -> State:
    """All parameters of a model whose expression is that of another state."""
    terms = []
    for scaled, term in zip(term_kernels(model), like.terms, strict=True):
        kernels = _factor_kernels(scaled)
        factors = []
        for place, (kind, values) in enumerate(term.factors):
            if len(kernels) < len(term.factors):
                read = {"lengthscale": kernels[0].lengthscale[0, place].item()}
            else:
                read = {name: getattr(kernels[place], name).item() for name in values}
            factors.append((kind, read))
        terms.append(Term(scaled.outputscale.item(), tuple(factors)))
    return State(tuple(terms), model.likelihood.noise.item())
