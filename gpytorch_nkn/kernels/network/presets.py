"""Primitives, wiring, start values and priors of the presets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from gpytorch_nkn.kernels.categorical_kernel import CategoricalKernel, categorical_columns
from gpytorch_nkn.kernels.network.convex_weights import convex_weights
from gpytorch_nkn.kernels.network.parts import kernel_values
from gpytorch_nkn.kernels.spectral_component_kernel import SpectralComponentKernel
from gpytorch_nkn.layers import (
    PAPER_WIRING,
    Layer,
    Linear,
    LogNormalPrior,
    Product,
    add_prior,
    dimension_scaled_prior,
    log_normal_prior,
    parse_wiring,
)
from gpytorch_nkn.linalg import check_counts, check_flags

__all__ = [
    "Parts",
    "additive",
    "make_options",
    "mixed_parts",
    "optimization",
    "pairs",
    "paper",
    "tabular",
    "with_outputscale",
]

Parts = tuple[list[Kernel], list[Layer]]


class _Options(NamedTuple):
    """Arguments that presets share."""

    wiring: str = PAPER_WIRING
    priors: bool = True
    sparsity: Literal["l1"] | None = None
    batch_shape: torch.Size | None = None


make_options = _Options


class _Columns(NamedTuple):
    """Indices of continuous and categorical input columns."""

    continuous: tuple[int, ...]
    categorical: tuple[int, ...]
    ard: bool = True

    def over_one(self, column: int) -> dict:
        """Return arguments of a kernel over one column."""
        return {} if self._count == 1 else {"active_dims": (column,)}

    @property
    def over_continuous(self) -> dict:
        """Arguments of a kernel over all continuous columns."""
        return self._arguments(self.continuous)

    @property
    def over_categorical(self) -> dict:
        """Arguments of a kernel over all categorical columns."""
        return self._arguments(self.categorical)

    def _arguments(self, columns: tuple[int, ...]) -> dict:
        if self._count == 1:  # last_dim_is_batch requires one lengthscale
            return {}
        dims = {} if len(columns) == self._count else {"active_dims": columns}
        return {**({"ard_num_dims": len(columns)} if self.ard else {}), **dims}

    @property
    def _count(self) -> int:
        return len(self.continuous) + len(self.categorical)


# Priors on lengthscales in the unit cube, chosen on other functions and seeds than those reported.
# BoTorch's wider prior for single columns allowed lengthscales of 0.01 on a function with steep
# valleys.
_SINGLE_LENGTHSCALE = (-1.0, 1.0)  # mean and standard deviation of the logarithm
# Prior on lengthscales of categorical kernels: at 1, two categories have correlation 1 / e.
_CATEGORIES = (1.0, 1.0)  # mode, and standard deviation of the logarithm

# Start values for standardised inputs, one per copy of a primitive, because equal copies would stay
# equal. The paper does not state its values. Short periods alias if inputs are learned.
_LENGTHSCALES = (0.5, 2.0)
_CONVEX = 0.7  # start value of lengthscales of single columns in convex combinations
_PERIODS = (3.0, 6.0)

# Start of the wiring, see _start_near_sum.
_EDGE = 30.0  # magnitude of inputs without standardisation, such as times
_GROWTH = 30.0  # largest growth of a weighted unit from 0 to _EDGE, relative to the sum of all at 0
_CONSTANT = 10.0  # start value of the nearly constant factors of a product
_INPUT_PART = 0.02  # input-dependent part of a nearly constant factor, relative to _CONSTANT


# The paper's primitives over all columns, and their numbers.
_PAPER: dict[str, tuple[tuple[type[Kernel], int], ...]] = {
    "time_series": ((RBFKernel, 2), (PeriodicKernel, 2), (LinearKernel, 2), (RQKernel, 2)),
    "regression": ((RBFKernel, 2), (LinearKernel, 2), (RQKernel, 2)),
    "texture": ((LinearKernel, 1), (RBFKernel, 1), (RQKernel, 1), (PeriodicKernel, 1)),
}


def paper(name: str, input_dim: int, cat_dims: Iterable[int] | None, options: _Options) -> Parts:
    """Create one of the paper's networks, with kernels for categorical columns."""
    columns = _check_columns(input_dim, cat_dims)
    primitives = _categories(columns, options, joint=True)
    for make, count in _PAPER[name]:
        primitives += _joint(make, count, columns, options)
    return _finish(primitives, input_dim, options)


def tabular(
    input_dim: int,
    cat_dims: Iterable[int] | None,
    columns: bool,
    spectral: int,
    ard: bool,
    options: _Options,
) -> Parts:
    """Create RBF, Matern-5/2, rational quadratic and linear kernels, and optional primitives."""
    split = _check_columns(input_dim, cat_dims)._replace(ard=ard)
    check_counts(0, spectral=spectral)
    check_flags(columns=columns, ard=ard)
    primitives = _categories(split, options, joint=True)
    for column in split.continuous if columns else ():
        primitives += _copies(RBFKernel, 1, options, **split.over_one(column))
    for number in range(spectral if split.continuous else 0):
        keywords = split._replace(ard=True).over_continuous
        (kernel,) = _copies(SpectralComponentKernel, 1, options, **keywords)
        signs = (-1.0) ** (number * torch.arange(len(split.continuous)))  # alternating
        kernel.initialize(frequency=(1 + number / 2) * signs * kernel.frequency.detach())
        primitives.append(kernel)
    count = 1 if columns else 2
    primitives += _joint(RBFKernel, count, split, options)
    primitives += _joint(MaternKernel, count, split, options, nu=2.5)
    primitives += _joint(RQKernel, 1, split, options)
    if split.continuous:
        primitives += _copies(LinearKernel, 1, options, **split.over_continuous)
    for kernel in (module for primitive in primitives for module in primitive.modules()):
        # distances grow with the square root of the number of columns
        if getattr(kernel, "has_lengthscale", False) and not isinstance(kernel, CategoricalKernel):
            kernel.lengthscale = math.sqrt(_width(kernel, input_dim)) * kernel.lengthscale
    return _finish(primitives, input_dim, options, skip=True)


def additive(input_dim: int, cat_dims: Iterable[int] | None, options: _Options) -> Parts:
    """Create one RBF per input column."""
    columns = _check_columns(input_dim, cat_dims)
    primitives = _categories(columns, options)
    for column in columns.continuous:
        primitives += _copies(RBFKernel, 1, options, **columns.over_one(column))
    # Hidden constants start at 1, the mode of their priors, so that the network starts near a sum.
    # From a product of all primitives, training does not find additive structure.
    return _finish(primitives, input_dim, options, hidden_bias=1.0)


def optimization(input_dim: int, cat_dims: Iterable[int] | None, options: _Options) -> Parts:
    """Create one RBF per input column, a Matern-5/2 over all, and convex combinations."""
    columns = _check_columns(input_dim, cat_dims)
    batch_shape = options.batch_shape
    primitives = _single_columns(columns, options)
    factors: list[Kernel] = []
    if columns.continuous:
        joint = MaternKernel(nu=2.5, batch_shape=batch_shape, **columns.over_continuous)
        joint.lengthscale = _CONVEX * math.sqrt(len(columns.continuous))
        if options.priors:
            add_prior(joint, "lengthscale", dimension_scaled_prior(len(columns.continuous)))
        factors.append(joint)
    if columns.categorical:
        factors.append(_categorical(options, **columns.over_categorical))
    primitives.append(factors[0] if len(factors) == 1 else ProductKernel(*factors))
    layers = parse_wiring(
        options.wiring, len(primitives), batch_shape=batch_shape, weights="simplex", skip=True
    )
    _start_convex(layers, input_dim, 1, "additive", options.priors)
    return primitives, layers


def pairs(input_dim: int, cat_dims: Iterable[int] | None, options: _Options) -> Parts:
    """Create one RBF per input column, and a product of two convex combinations."""
    columns = _check_columns(input_dim, cat_dims)
    primitives = _single_columns(columns, options)
    sums, total = (
        Linear(*sizes, weights="simplex", batch_shape=options.batch_shape)
        for sizes in ((input_dim, 2), (1 + input_dim, 1))
    )
    layers = [sums, Product(2, 1), total]
    _start_convex(layers, input_dim, 0, "center", options.priors)
    return primitives, layers


def mixed_parts(
    make: Callable[..., Kernel],
    num_columns: int,
    cat_dims: Iterable[int] | None,
    *,
    priors: bool = True,
    weight_priors: bool = True,
) -> Parts:
    """Create a kernel over all columns; with categories a sum as in BoTorch's MixedSingleTaskGP.

    The sum is a convex combination of a continuous kernel, a categorical kernel and their product.
    ``make`` creates the continuous kernel from ``ard_num_dims`` and ``active_dims``. ``priors`` are
    on the weights of the sum (unless ``weight_priors`` is false) and on the categorical kernels.
    """
    columns = _check_columns(num_columns, cat_dims)
    options = _Options(priors=priors)
    if not columns.categorical:
        return [make(**columns.over_continuous)], []
    if not columns.continuous:
        return [_categorical(options, **columns.over_categorical)], []
    first, second = (make(**columns.over_continuous) for _ in range(2))
    categories, factor = (_categorical(options, **columns.over_categorical) for _ in range(2))
    total = Linear(3, 1, weights="simplex", bias=False)
    total.weight = torch.full((1, 3), 1 / 3)
    if priors and weight_priors:
        total.add_raw_priors()
    return [first, categories, ProductKernel(second, factor)], [total]


def with_outputscale(kernel: Kernel, batch_shape: torch.Size) -> Kernel:
    """Add an output scale, with a prior for standardised targets, to a network of unit variance.

    Other kernels are returned unchanged.
    """
    layers = getattr(kernel, "layers", None)  # users' kernels may have another attribute layers
    last = layers[-1] if isinstance(layers, torch.nn.ModuleList) and len(layers) else None
    if not isinstance(last, Linear) or not last.is_simplex:
        return kernel
    scaled = ScaleKernel(kernel, batch_shape=batch_shape)
    scaled.outputscale = 1.0
    add_prior(scaled, "outputscale", log_normal_prior(*_PRIORS["outputscale"]))
    return scaled


def _check_columns(input_dim: int, cat_dims: Iterable[int] | None) -> _Columns:
    check_counts(1, input_dim=input_dim)
    categorical = categorical_columns(cat_dims, input_dim)
    return _Columns(tuple(d for d in range(input_dim) if d not in categorical), categorical)


def _categories(columns: _Columns, options: _Options, joint: bool = False) -> list[Kernel]:
    """Create a kernel per categorical column; ``joint``: one over all, if none is continuous."""
    check_flags(priors=options.priors)
    kernels = [_categorical(options, **columns.over_one(column)) for column in columns.categorical]
    if joint and not columns.continuous:
        kernels.append(_categorical(options, **columns.over_categorical))
    return kernels


def _single_columns(columns: _Columns, options: _Options) -> list[Kernel]:
    """Create one kernel per column, with priors for inputs in the unit cube."""
    kernels = _categories(columns, options)
    for column in columns.continuous:
        kernel = RBFKernel(batch_shape=options.batch_shape, **columns.over_one(column))
        kernel.lengthscale = _CONVEX
        if options.priors:
            add_prior(kernel, "lengthscale", LogNormalPrior(*_SINGLE_LENGTHSCALE))
        kernels.append(kernel)
    return kernels


def _start_convex(
    layers: list[Layer], num_single: int, num_joint: int, near: str, priors: bool
) -> None:
    """Set weights near a structure, and priors centred between the structures."""
    for layer, weight in convex_weights(layers, num_single, num_joint, "center"):
        layer.weight = weight
        if priors:
            layer.add_raw_priors()
    generator = torch.Generator().manual_seed(0)
    for layer, weight in convex_weights(layers, num_single, num_joint, near, generator):
        layer.weight = weight


def _categorical(options: _Options, **kwargs) -> Kernel:
    kernel = CategoricalKernel(batch_shape=options.batch_shape, **kwargs)
    kernel.lengthscale = _CATEGORIES[0]
    if options.priors:
        add_prior(kernel, "lengthscale", log_normal_prior(*_CATEGORIES))
    return kernel


def _joint(
    make: Callable[..., Kernel], count: int, columns: _Columns, options: _Options, **kwargs
) -> list[Kernel]:
    """Create copies over the continuous columns; a categorical kernel multiplies the first."""
    if not columns.continuous:
        return []
    kernels = _copies(make, count, options, **columns.over_continuous, **kwargs)
    if columns.categorical:
        factor = _categorical(options, **columns.over_categorical)
        kernels[0] = ProductKernel(kernels[0], factor)
    return kernels


def _copies(make: Callable[..., Kernel], count: int, options: _Options, **kwargs) -> list[Kernel]:
    kernels = []
    for copy in range(count):
        kernel = make(batch_shape=options.batch_shape, **kwargs)
        if kernel.has_lengthscale:
            kernel.lengthscale = _LENGTHSCALES[copy]
        if hasattr(kernel, "raw_period_length"):
            kernel.period_length = _PERIODS[copy]
        if hasattr(kernel, "raw_variance"):
            kernel.variance = 1.0
            # with one column, the network's weight has the same effect as the variance
            single = kernel.raw_variance.size(-1) == 1
            kernel.raw_variance.requires_grad_(not single)
        kernels.append(kernel)
    return kernels


def _width(kernel: Kernel, input_dim: int) -> int:
    """Return the number of columns of a kernel."""
    return input_dim if kernel.active_dims is None else len(kernel.active_dims)


def _finish(
    primitives: list[Kernel],
    input_dim: int,
    options: _Options,
    *,
    hidden_bias: float = 0.01,
    skip: bool = False,
) -> Parts:
    if options.priors:
        for module in (module for kernel in primitives for module in kernel.modules()):
            for name, (mode, scale) in _PRIORS.items():
                raw = getattr(module, "_parameters", {}).get(f"raw_{name}")
                categorical = isinstance(module, CategoricalKernel)
                if raw is not None and raw.requires_grad and not categorical:
                    if skip and name == "lengthscale":
                        mode = mode * math.sqrt(_width(module, input_dim))
                    add_prior(module, name, log_normal_prior(mode, scale))
    layers = parse_wiring(
        options.wiring,
        len(primitives),
        batch_shape=options.batch_shape,
        priors=options.priors,
        sparsity=options.sparsity,
        hidden_bias=hidden_bias,
        skip=skip,
    )
    _start_near_sum(primitives, layers, input_dim, skip)
    return primitives, layers


@torch.no_grad()
def _start_near_sum(
    primitives: list[Kernel], layers: list[Layer], input_dim: int, skip: bool
) -> None:
    """Set weights and biases for a network near a weighted mean of its primitives.

    The variance is one at the centre and grows at most with the squared inputs. The first factor of
    each product mixes all inputs, and the others are nearly constant, so linear primitives do not
    become polynomials. A large constant changes slowly in training, so the variance of models with
    latent inputs does not collapse. With a skip connection the constant starts near its prior,
    which halves the number of evaluations in a fit.
    """
    x = torch.tensor([[0.0], [_EDGE]]).expand(-1, input_dim)
    parts = [kernel_values(kernel, x, x, diag=True) for kernel in primitives]
    first = torch.stack(parts, -2)  # ... x P x 2
    values = first
    for number, layer in enumerate(layers):
        if skip and number == len(layers) - 1:
            values = torch.cat([values, first.expand(*values.shape[:-2], -1, -1)], -2)
        if isinstance(layer, Linear):
            center, edge = values.unbind(-1)
            weight = layer.weight / torch.maximum(center, (edge - center) / _GROWTH).unsqueeze(-2)
            total = (weight * center.unsqueeze(-2)).sum(-1)
            weight = weight / torch.where(total > 0, total, 1.0).unsqueeze(-1)
            bias = torch.where(total > 0, 0.01, 1.0)
            after = layers[number + 1 :]
            if after and isinstance(after[0], Product):
                group = after[0].in_features // after[0].out_features
                deep = not skip and any(isinstance(later, Linear) for later in after)
                constant = _CONSTANT if deep else 1.0
                nearly_constant = torch.arange(layer.out_features) % group != 0
                weight[..., nearly_constant, :] *= _INPUT_PART * constant
                bias[..., nearly_constant] = constant
            layer.weight, layer.bias = weight, bias
        values = layer(values)


# Mode, and standard deviation of the logarithm, in standardised units. Two standard deviations are
# more than an order of magnitude in each direction.
_PRIORS = {
    "lengthscale": (0.7, 1.5),
    "period_length": (0.5, 1.5),
    "variance": (1.0, 1.5),
    "outputscale": (1.0, 1.5),
    "alpha": (1.0, 1.0),
}
