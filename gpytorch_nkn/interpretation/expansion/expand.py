"""Expansion of a kernel into products, by arithmetic of polynomials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import check_counts, check_flags
from gpytorch_nkn.interpretation.expansion.factors import Columns, ProductRules, on_columns
from gpytorch_nkn.interpretation.expansion.polynomial import (
    Bounds,
    Polynomials,
    constant,
    monomial,
    stack,
)
from gpytorch_nkn.interpretation.expansion.terms import (
    Expansion,
    evaluate_groups,
    labels_of,
    make_term,
)
from gpytorch_nkn.interpretation.source import FittedGP, Source, source_of
from gpytorch_nkn.interpretation.units import Units
from gpytorch_nkn.kernels import (
    ComplexKernel,
    NeuralKernelNetwork,
    columns_of,
    least_columns,
    own_spec,
    variances_of,
)
from gpytorch_nkn.layers import Operation, operation_of

__all__ = ["expand", "expand_source", "with_posterior_shares"]

_TOLERANCE = 1e-12  # share of every unit below which terms are dropped
_SAMPLE = 256  # inputs over which intermediate monomials are compared


def expand(
    kernel: Any,
    x: Tensor | None = None,
    *,
    max_terms: int = 10_000,
    merge: bool = True,
    split: bool = True,
    columns: Sequence[str] | None = None,
) -> Expansion:
    r"""Write a kernel as a weighted sum of products of its primitives.

    .. math:: k(x, x') = \sum_t w_t \prod_{p} k_p(x, x')^{e_{tp}}, \qquad w_t \ge 0

    Networks are polynomials of their primitives with non-negative coefficients (theorem 3), and so
    are sums, products and scaled kernels. The coefficients are computed layer by layer. They are
    exact except for dropped terms: shares below 1e-12 in every unit, terms beyond ``max_terms``,
    and the tails of exponentials. A network with a complex-valued primitive is one factor.

    Args:
        kernel: A kernel, a fitted ExactGP (including SingleTaskGP), or an estimator of this
            package.
        x: Untransformed inputs ``... x N x D`` over which shares are averaged; default: the
            training inputs of a model. Not needed if the kernel's diagonal is constant.
        max_terms: Largest number of terms, also of intermediate polynomials.
        merge: Replace products of kernels of one class by one kernel where this is exact, as for
            RBF kernels, or periodic kernels with equal periods.
        split: Split periodic kernels over one column into a constant and a zero-mean part. Split a
            linear kernel, if it is the only factor, into one per column.
        columns: Names of the input columns, for labels.

    Raises:
        ValueError: ``x`` has a wrong shape, or is missing although the diagonal varies, or the
            kernel has several outputs per input.
        NotImplementedError: A network has an unregistered layer class.

    Reference: Sun et al. (2018), theorem 3 and appendix I.4.

    Example:
        >>> from gpytorch_nkn.kernels import NeuralKernelNetwork
        >>> x = torch.linspace(-1.5, 1.5, 30).unsqueeze(-1)
        >>> len(expand(NeuralKernelNetwork.time_series(), x, merge=False, split=False).terms)
        495
    """
    source = source_of(kernel, x)
    if columns is not None:
        width = len(columns) if source.inputs is None else source.inputs.size(-1)
        units = (source.units or Units.plain(width)).named(columns)
        source = replace(source, units=units)
    return expand_source(source, max_terms, merge, split)


def expand_source(
    source: Source | FittedGP, max_terms: int = 10_000, merge: bool = True, split: bool = True
) -> Expansion:
    """Expand the kernel of a source, see :func:`expand`."""
    check_counts(1, max_terms=max_terms)
    check_flags(merge=merge, split=split)
    with torch.no_grad():
        builder = _Builder(source, max_terms)
        polynomial = builder.of(source.kernel, builder.all_columns)
        products = builder.products(polynomial, merge, split)
        return builder.finish(products)


class _Builder:
    """Writes kernels as polynomials of elementary kernels, the ``atoms``."""

    def __init__(self, source: Source | FittedGP, max_terms: int):
        self.source = source
        inputs = source.inputs
        self.all_columns: Columns = None if inputs is None else tuple(range(inputs.size(-1)))
        self.sample = _sample_inputs(source)
        _check_inputs(source.kernel, self.sample)
        self.like = next(
            (p for p in source.kernel.parameters() if p.is_floating_point()), self.sample
        )
        self.atoms: list[Kernel] = []
        self._diagonals: list[Tensor] = []  # each ... x S
        self._indices: dict[object, int] = {}
        self._products: dict[Kernel, list[list[Kernel]]] = {}
        self.bounds = Bounds(self._sizes, max_terms, _TOLERANCE)

    def of(self, kernel: Kernel, columns: Columns) -> Polynomials:
        """Return the polynomial of a kernel with ``active_dims`` among ``columns``."""
        return self._of_base(kernel, _pick(columns, kernel))

    def _of_base(self, kernel: Kernel, columns: Columns) -> Polynomials:
        """Return the polynomial of a kernel over these columns."""
        if type(kernel) is ScaleKernel:
            # a ScaleKernel has selected the columns of its base kernel
            return self._of_base(kernel.base_kernel, columns).scale(kernel.outputscale)
        if type(kernel) is ConstantKernel:
            return constant(kernel.constant)
        if type(kernel) is AdditiveKernel:
            return self._of_products([[part] for part in kernel.kernels], columns)
        if type(kernel) is ProductKernel:
            return self._of_products([list(kernel.kernels)], columns)
        if isinstance(kernel, NeuralKernelNetwork):
            if any(isinstance(primitive, ComplexKernel) for primitive in kernel.primitives):
                return self._atom(kernel, columns)
            return self._of_network(kernel, columns)
        spec = own_spec(kernel)
        if spec is None or spec.products is None:
            return self._atom(kernel, columns)
        if kernel not in self._products:  # cached, because kernels are compared by identity
            self._products[kernel] = spec.products(kernel)
        return self._of_products(self._products[kernel], columns)

    def _of_products(self, products: list[list[Kernel]], columns: Columns) -> Polynomials:
        """Return the polynomial of a sum of products."""
        parts = []
        for product in products:
            first, *others = [self.of(factor, columns) for factor in product]
            parts.append(reduce(lambda left, right: left.times(right, self.bounds), others, first))
        return stack(parts).total()

    def _of_network(self, network: NeuralKernelNetwork, columns: Columns) -> Polynomials:
        stage = primitives = stack([self.of(part, columns) for part in network.primitives])
        layers: list[Any] = list(network.layers)
        for number, layer in enumerate(layers, start=1):
            if network.skip and number == len(network.layers):
                stage = stack([stage, primitives])  # in the order of the layer's inputs
            operation = operation_of(layer)
            if operation is Operation.SUMS:
                stage = stage.linear(layer.weight, layer.bias)
            elif operation is Operation.PRODUCTS:
                stage = stage.product(layer.groups, self.bounds)
            elif operation is Operation.SERIES:
                coefficients = layer.coefficients
                if isinstance(coefficients, str):
                    stage = stage.exponential(self.bounds)
                else:
                    stage = stage.power_series(tuple(coefficients), self.bounds)
            else:
                raise NotImplementedError(
                    f"Layers of type {type(layer).__name__} cannot be expanded: register the class "
                    "by gpytorch_nkn.layers.register_layer."
                )
        return stage.prune(self.bounds)

    def _atom(self, kernel: Kernel, columns: Columns) -> Polynomials:
        key = (kernel, columns)
        if key not in self._indices:
            self._indices[key] = len(self.atoms)
            self._add(on_columns(kernel, columns))
        return monomial(self._indices[key], self.like)

    def _add(self, kernel: Kernel) -> None:
        if self.source.inputs is None and not kernel.is_stationary:
            raise ValueError(
                f"The diagonal of a {type(kernel).__name__} depends on the input: pass x, the "
                "inputs over which shares are averaged."
            )
        self.atoms.append(kernel)
        self._diagonals.append(variances_of(kernel, self.sample).clamp_min(0).to(self.like))

    def _sizes(self, exponents: np.ndarray) -> Tensor:
        """Return mean diagonals of monomials ``... x M``."""
        batch = torch.broadcast_shapes(*[d.shape[:-1] for d in self._diagonals], torch.Size())
        present = np.flatnonzero(exponents.any(0)).tolist()
        used = [i for i in present if bool((self._diagonals[i] != 1).any())]
        if not used:  # all kernels are correlations
            return self.like.new_ones(*batch, len(exponents))
        product = self.like.new_ones(*batch, len(exponents), self.sample.size(-2))
        for i in used:
            powers = torch.as_tensor(exponents[:, i].astype(np.int64)).to(product)
            product *= self._diagonals[i].unsqueeze(-2) ** powers.unsqueeze(-1)
        return product.mean(-1)

    def products(
        self, polynomial: Polynomials, merge: bool, split: bool
    ) -> dict[tuple[int, ...], tuple[list[Kernel], Tensor]]:
        """Return factors and weight ``...`` of every distinct product."""
        algebra = ProductRules(merge, split)
        result: dict[tuple[int, ...], tuple[list[Kernel], Tensor]] = {}
        weights = polynomial.weights[..., 0, :]
        for number, row in enumerate(polynomial.exponents):
            (used,) = np.nonzero(row)
            powers = [(self.atoms[i], int(row[i])) for i in used]
            for factors, share in algebra.parts(powers):
                key = tuple(sorted(map(id, factors)))
                _, before = result.get(key, (factors, 0.0))
                result[key] = factors, before + weights[..., number] * share
        return result

    def finish(self, products: dict[tuple[int, ...], tuple[list[Kernel], Tensor]]) -> Expansion:
        inputs = self.sample if self.source.inputs is None else self.source.inputs
        units = self.source.units or Units.plain(inputs.size(-1))
        total = variances_of(self.source.kernel, inputs).mean(-1)
        batch = torch.broadcast_shapes(total.shape, *[w.shape for _, w in products.values()])
        diagonal_of = cache(lambda factor: variances_of(factor, inputs))
        parts = []
        for factors, weight in products.values():
            diagonal = math.prod(map(diagonal_of, factors), start=inputs.new_ones(inputs.size(-2)))
            weight = weight.expand(batch)
            share = weight * diagonal.mean(-1) / total.where(total > 0, 1)  # the kernel may be zero
            parts.append((weight, factors, share))
        parts = sorted(parts, key=lambda part: -float(part[2].mean()))[: self.bounds.max_terms]
        labels = labels_of((factor for _, factors, _ in parts for factor in factors), units)
        terms = tuple(make_term(*part, labels) for part in parts)
        dropped = float((total > 0).double().mean()) - sum(term.mean_share() for term in terms)
        return Expansion(terms, max(0.0, dropped), units, batch)


def _check_inputs(kernel: Kernel, inputs: Tensor) -> None:
    """Raise a ValueError if a kernel rejects the inputs or has several outputs per input."""
    try:
        diagonal = kernel(inputs[..., :1, :], diag=True)
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"The kernel does not accept inputs with {inputs.size(-1)} columns: {error}"
        ) from error
    if diagonal.size(-1) != 1:
        raise ValueError(
            "Only kernels with one output per input can be expanded, got a "
            f"{type(kernel).__name__} with {diagonal.size(-1)}."
        )


def _pick(columns: Columns, kernel: Kernel) -> Columns:
    """Return the input columns that a kernel selects among ``columns``."""
    if (picked := columns_of(kernel)) is None:
        return columns
    return picked if columns is None else tuple(columns[i] for i in picked)


def _sample_inputs(source: Source | FittedGP) -> Tensor:
    if source.inputs is not None:
        rows = source.inputs.size(-2)
        if rows <= _SAMPLE:
            return source.inputs
        chosen = permutation(rows, torch.Generator().manual_seed(0))[:_SAMPLE]
        # include the extremes of every column, because a column may be constant in most rows
        columns = source.inputs.reshape(-1, rows, source.inputs.size(-1))
        ends = torch.cat([columns.argmin(1), columns.argmax(1)]).flatten().cpu()
        return source.inputs[..., torch.cat([chosen, ends]).unique().to(columns.device), :]
    parameter = next(source.kernel.parameters(), torch.zeros(1))
    width = least_columns(source.kernel)
    return torch.zeros(1, width, dtype=parameter.dtype, device=parameter.device)


def with_posterior_shares(expansion: Expansion, gp: FittedGP) -> Expansion:
    r"""Return the expansion with the share of each term in the variance of the posterior mean.

    .. math:: \mathrm{cov}(m_t, m) / \mathrm{var}(m), \qquad m_t = w_t K_t\, \alpha

    Here m is the posterior mean minus the mean function at the training inputs. Shares are averaged
    over outputs and sum to one if no term was dropped. A term that is negatively correlated with m
    has a negative share.
    """
    alpha = gp.posterior.alpha.unsqueeze(-1)
    groups = [[term] for term in expansion.terms]
    means = evaluate_groups(groups, gp.inputs, gp.inputs, then=lambda _, __, k: k @ alpha)[..., 0]
    centered = means - means.mean(-1, keepdim=True)  # T x ... x N
    total = gp.covariance @ alpha
    total = (total - total.mean(-2, keepdim=True))[..., 0]
    variance = total.square().mean(-1).clamp_min(1e-300)
    shares = ((centered * total).mean(-1) / variance).reshape(len(means), -1).mean(-1)
    terms = tuple(
        replace(term, posterior_share=share)
        for term, share in zip(expansion.terms, shares.tolist(), strict=True)
    )
    return replace(expansion, terms=terms)
