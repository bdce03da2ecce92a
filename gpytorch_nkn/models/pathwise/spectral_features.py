"""Random features of networks, sums and products of kernels for BoTorch's pathwise sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn.kernels import (
    ComplexKernel,
    NeuralKernelNetwork,
    NonStationarySpectralKernel,
    spec_of_values,
)
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.kernels.measures import Draws, Measure, RandomFeatures, allocated, flat
from gpytorch_nkn.layers import Operation, operation_of
from gpytorch_nkn.linalg import check_counts

__all__ = ["SpectralFeatureMap", "spectral_features"]


# Fraction of features allocated evenly to the terms of a sum. Terms of small weight can dominate
# the posterior variance near data, and the variance of linear factors depends on the input scale.
_EVEN_SHARE = 0.25


class SpectralFeatureMap(FeatureMap):
    r"""Random features whose inner product is a kernel in expectation.

    .. math::
        \phi(x) = \bigl(a_r \sin(\omega_r^\top x) \prod_j f_{rj}(x),\;
            a_r \cos(\omega_r^\top x) \prod_j f_{rj}(x)\bigr)_{r = 1, \dots, R}

    Linear kernels have linear factors :math:`f_{rj}(x) = x_d - c`, and the frequency pairs of
    :class:`.NonStationarySpectralKernel` have cosine factors. Stationary kernels have no factors,
    and :math:`\phi(x)^\top \phi(x) = k(0)` exactly.

    Args:
        kernel: Kernel from which ``features`` were drawn; the map keeps no reference to it.
        features: Drawn features, ``R`` rows per batch element.
        mass: Value of the kernel at zero distance for each batch element.
    """

    frequency: Tensor
    amplitude: Tensor
    slopes: Tensor
    offsets: Tensor
    cosine_slopes: Tensor
    cosine_offsets: Tensor
    active_dims: Tensor | None

    def __init__(self, kernel: Kernel, features: RandomFeatures, mass: Tensor):
        super().__init__()
        self.input_transform = self.output_transform = None
        self.batch_shape = kernel.batch_shape
        num_rows, num_columns = features.frequency.shape
        num_rows //= len(mass)
        shape = torch.Size([*self.batch_shape, num_rows])
        self.num_outputs = 2 * num_rows
        amplitude = mass.div(num_rows).sqrt().repeat_interleave(num_rows)
        amplitude = amplitude * features.log_amplitude.div(2).exp()
        slopes, offsets = _stacked(features, features.factors, 1.0)
        cosine_slopes, cosine_offsets = _stacked(features, features.cosines, 0.0)
        buffers = {
            "frequency": features.frequency.view(*shape, num_columns),
            "amplitude": amplitude.view(shape),
            "slopes": slopes.view(len(slopes), *shape, num_columns),
            "offsets": offsets.view(len(slopes), *shape),
            "cosine_slopes": cosine_slopes.view(len(cosine_slopes), *shape, num_columns),
            "cosine_offsets": cosine_offsets.view(len(cosine_slopes), *shape),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value.to(device=kernel.device, dtype=kernel.dtype))
        self.register_buffer("active_dims", kernel.active_dims)

    def forward(self, x: Tensor) -> Tensor:
        """Return features ``... x N x 2R`` of inputs ``... x N x D``."""
        if self.active_dims is not None:
            x = x.index_select(-1, self.active_dims)
        angle = x @ self.frequency.mT
        amplitude = self.amplitude.unsqueeze(-2)
        for slope, offset in zip(self.slopes, self.offsets, strict=True):
            amplitude = amplitude * (x @ slope.mT + offset.unsqueeze(-2))
        for slope, offset in zip(self.cosine_slopes, self.cosine_offsets, strict=True):
            amplitude = amplitude * (x @ slope.mT + offset.unsqueeze(-2)).cos()
        return torch.cat([amplitude * angle.sin(), amplitude * angle.cos()], -1)


def spectral_features(kernel: Kernel, *, num_inputs: int, num_outputs: int) -> SpectralFeatureMap:
    r"""Draw a feature map with :math:`k(x, x') \approx \phi(x)^\top \phi(x')`.

    BoTorch's ``draw_matheron_paths`` and ``PathwiseThompsonSampling`` call this function for
    kernels without features in BoTorch, such as networks and sums of kernels. It draws from the
    exact spectral measure of the kernel, using PyTorch's global random state. Each batch element
    has its own frequencies.

    The features are unbiased, but the posterior variance of a single map has an error. The error is
    large for noise-free data and kernels with heavy spectral tails (rational quadratic kernels).
    More features reduce the error. Models of this package use up to 16 maps.

    Args:
        kernel: A network, or a kernel that a network may contain. Inputs of linear kernels
            should be of order one. A :class:`.NonStationarySpectralKernel` has finitely many
            features; the map uses all of them and is exact.
        num_inputs: Number of input dimensions.
        num_outputs: Number of features, even; ignored for kernels with finitely many features.

    Raises:
        UnsupportedError: ``num_outputs`` is odd or not positive.
        NotImplementedError: Random features of a sub-kernel are not implemented.

    References: Rahimi and Recht (2007), Random Features for Large-Scale Kernel Machines; Wilson et
    al. (2020), Efficiently Sampling Functions from Gaussian Process Posteriors.
    """
    check_counts(1, num_inputs=num_inputs)
    if num_outputs < 2 or num_outputs % 2:
        raise UnsupportedError(f"num_outputs must be even and positive, got {num_outputs}.")
    num_columns = num_inputs if kernel.active_dims is None else len(kernel.active_dims)
    inner, _ = unwrap_scales(kernel)
    finite = isinstance(inner, NonStationarySpectralKernel)
    num_rows = inner.num_features if finite else num_outputs // 2
    features, mass = _draw_random_features(kernel, num_columns, num_rows)
    return SpectralFeatureMap(kernel, features, mass)


def _stacked(
    features: RandomFeatures, factors: list[tuple[Tensor, Tensor, Tensor]], none: float
) -> tuple[Tensor, Tensor]:
    """Stack slopes ``J x R x D`` and offsets ``J x R``; missing factors get 0 and ``none``."""
    num_rows, num_columns = features.frequency.shape
    if not factors:
        empty = features.frequency.new_zeros(0, num_rows, num_columns)
        return empty, empty[..., 0]
    row, slope, offset = (torch.cat(parts) for parts in zip(*factors, strict=True))
    order = row.argsort(stable=True)
    row, slope, offset = row[order], slope[order], offset[order]
    count = row.bincount(minlength=num_rows)
    index = torch.arange(len(row), device=row.device)
    number = index - (count.cumsum(0) - count)[row]  # index of the factor within its row
    slopes = offset.new_zeros(int(count.max()), num_rows, num_columns)
    slopes[number, row] = slope
    offsets = offset.new_full(slopes.shape[:-1], none)
    offsets[number, row] = offset
    return slopes, offsets


def _draw_random_features(
    kernel: Kernel, num_columns: int, num_rows: int
) -> tuple[RandomFeatures, Tensor]:
    r"""Draw simple kernels whose expectation, times a mass, is ``kernel``.

    The spectral measure of a sum of kernels is a mixture of their measures. A constant has
    frequency zero. The frequency of a product is the sum of independent frequencies of its
    factors, and a power series is a mixture of products. A draw therefore proceeds from a
    network's output to its primitives.

    The kernel is a network, sum, product or ScaleKernel, whose ``active_dims`` have been applied.
    Return ``B * num_rows`` rows on the CPU in float64, and the masses ``B`` of the batch elements.
    """
    with torch.device("cpu"):
        measure = _measure(kernel, torch.arange(num_columns), kernel.batch_shape)
        row = torch.arange(kernel.batch_shape.numel() * num_rows)
        sign = torch.ones(len(row), dtype=torch.float64)
        draws = Draws(row, torch.zeros_like(row), sign, num_rows)
        frequency = torch.zeros(len(draws), num_columns, dtype=torch.float64)
        log_amplitude = torch.zeros(len(draws), dtype=torch.float64)
        features = RandomFeatures(frequency, log_amplitude)
        measure.draw(draws, features)
    return features, measure.mass


def _selected(kernel: Kernel, columns: Tensor) -> Tensor:
    """Return the kernel's input dimensions among the given ones."""
    return columns if kernel.active_dims is None else columns[kernel.active_dims.cpu()]


def _measure(kernel: Kernel, columns: Tensor, batch_shape: torch.Size) -> Measure:
    # a subclass with the same forward is treated like its base class
    forward = type(kernel).forward
    if forward is NeuralKernelNetwork.forward:
        return _network_measure(kernel, columns, batch_shape)
    if forward is ScaleKernel.forward:  # its columns are selected by the base kernel
        weight = flat(kernel.outputscale, 0, batch_shape)[:, None, None]
        return _Composite([_measure(kernel.base_kernel, columns, batch_shape)], [_Mixture(weight)])
    if forward in (AdditiveKernel.forward, ProductKernel.forward):
        parts = [_measure(k, _selected(k, columns), batch_shape) for k in kernel.kernels]
        ones = torch.ones(batch_shape.numel(), 1, len(parts), dtype=torch.float64)
        is_sum = forward is AdditiveKernel.forward
        return _Composite(parts, [_Mixture(ones) if is_sum else _Products((len(parts),))])
    measure = _primitive_measure(kernel, columns, batch_shape)
    return _RealPart(measure) if isinstance(kernel, ComplexKernel) else measure


def _primitive_measure(kernel: Kernel, columns: Tensor, batch_shape: torch.Size) -> Measure:
    """Return the measure of a primitive kernel, which is complex for a ComplexKernel."""
    spec = spec_of_values(kernel)
    if spec is None or spec.measure is None:
        raise NotImplementedError(
            f"{type(kernel).__name__} has no random features. Draw from the posterior "
            "at points with model.posterior(X).rsample(), or choose among candidates with "
            "botorch.generation.MaxPosteriorSampling."
        )
    parameters = []
    for name, event_dims in spec.layout:
        value = flat(getattr(kernel, name), event_dims, batch_shape)
        value = value.squeeze(-1) if event_dims == 1 else value
        if event_dims == 2:
            value = value.squeeze(-2)
            if value.size(-1) not in (1, len(columns)):
                raise ValueError(
                    f"{type(kernel).__name__} has a {name} for {value.size(-1)} columns, got "
                    f"{len(columns)} columns."
                )
            value = value.expand(-1, len(columns))
        parameters.append(value)
    return spec.measure(kernel, columns, batch_shape, *parameters)


def _network_measure(
    network: NeuralKernelNetwork, columns: Tensor, batch_shape: torch.Size
) -> Measure:
    parts, is_complex = [], False
    for kernel in network.primitives:
        network_columns = _selected(kernel, columns)
        if isinstance(kernel, ComplexKernel):  # the network takes the real part of its output
            parts.append(_primitive_measure(kernel, network_columns, batch_shape))
            is_complex = True
        else:
            parts.append(_measure(kernel, network_columns, batch_shape))
    steps = [_step(layer, batch_shape) for layer in network.layers]
    measure = _Composite(parts, steps, network.skip)
    return _RealPart(measure) if is_complex else measure


def _step(layer: Any, batch_shape: torch.Size) -> _Step:
    operation = operation_of(layer, inherited=True)
    if operation is Operation.SUMS:
        bias = None if layer.bias is None else flat(layer.bias, 1, batch_shape)
        return _Mixture(flat(layer.weight, 2, batch_shape), bias)
    if operation is Operation.PRODUCTS:
        return _Products(layer.groups)
    if operation is Operation.SERIES:
        return _PowerSeries(layer.coefficients)
    raise NotImplementedError(f"The layer {layer!r} has no random features.")


class _Choice:
    """Stratified choice with given weights."""

    def __init__(self, weights: Tensor, even_share: float = _EVEN_SHARE):
        self._weights = weights.flatten(0, 1)  # B O x K
        self._num_units = weights.size(1)
        self._even_share = even_share

    def make(self, draws: Draws, units: Tensor, features: RandomFeatures) -> Tensor:
        group = draws.element * self._num_units + units
        choice = torch.empty_like(group)
        for slot in draws.slot.unique():
            mask = draws.slot == slot
            chosen, log_weight = allocated(self._weights, group[mask], self._even_share)
            features.log_amplitude[draws.row[mask]] += log_weight
            choice[mask] = chosen
        return choice


class _Mixture:
    """Non-negative combinations ``B x O x C`` with constants ``B x O``.

    ``masses`` maps masses of the inputs ``B x C`` to masses of the outputs ``B x O``. ``descend``
    maps draws of output units to draws of input units.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self._weight = weight
        self._bias = weight.new_zeros(weight.shape[:-1]) if bias is None else bias

    def masses(self, incoming: Tensor, is_stationary: bool) -> Tensor:
        weights = torch.cat([self._weight * incoming.unsqueeze(-2), self._bias.unsqueeze(-1)], -1)
        self._choice = _Choice(weights)
        return weights.sum(-1)

    def descend(
        self, draws: Draws, units: Tensor, features: RandomFeatures
    ) -> tuple[Draws, Tensor]:
        choice = self._choice.make(draws, units, features)
        goes_on = choice < self._weight.size(-1)  # other draws chose the bias, a constant
        return draws[goes_on], choice[goes_on]


class _Products:
    """Products of neighbouring groups."""

    def __init__(self, groups: Sequence[int]):
        self._sizes = torch.tensor(groups)
        self._starts = self._sizes.cumsum(0) - self._sizes

    def masses(self, incoming: Tensor, is_stationary: bool) -> Tensor:
        return torch.stack([g.prod(-1) for g in incoming.split(self._sizes.tolist(), -1)], -1)

    def descend(
        self, draws: Draws, units: Tensor, features: RandomFeatures
    ) -> tuple[Draws, Tensor]:
        draws, origin, number = draws.split(self._sizes[units])
        return draws, self._starts[units[origin]] + number


class _PowerSeries:
    """Power series of each unit; a power ``m`` is a product of ``m`` factors."""

    def __init__(self, coefficients: str | Sequence[float]):
        self._coefficients = coefficients

    def masses(self, incoming: Tensor, is_stationary: bool) -> Tensor:
        if isinstance(self._coefficients, str):
            if not is_stationary:
                raise NotImplementedError(
                    "The exponential of a non-stationary kernel has no random features, "
                    "but a polynomial activation has."
                )
            largest = float(incoming.max())  # powers have a Poisson distribution
            num_powers = math.ceil(largest + 10 * math.sqrt(largest)) + 20
            power = torch.arange(num_powers, dtype=torch.float64)
            log_factorial = torch.lgamma(power + 1)
            weights = (torch.xlogy(power, incoming.unsqueeze(-1)) - log_factorial).exp()
        else:
            coefficients = torch.tensor(self._coefficients, dtype=torch.float64)
            weights = coefficients * incoming.unsqueeze(-1) ** torch.arange(len(coefficients))
        # high powers need many factors and have small weights
        self._choice = _Choice(weights, 0.0 if is_stationary else _EVEN_SHARE)
        return weights.sum(-1)

    def descend(
        self, draws: Draws, units: Tensor, features: RandomFeatures
    ) -> tuple[Draws, Tensor]:
        power = self._choice.make(draws, units, features)
        draws, origin, _ = draws.split(power)
        return draws, units[origin]


_Step = _Mixture | _Products | _PowerSeries


class _Composite(Measure):
    """Layers over primitives; with ``skip``, the last layer also receives the primitives."""

    def __init__(self, parts: Sequence[Measure], steps: Sequence[_Step], skip: bool = False):
        self.is_stationary = all(part.is_stationary for part in parts)
        self._parts = parts
        self._steps = steps
        masses = of_parts = torch.stack([part.mass for part in parts], -1)  # B x P
        self._num_hidden: int | None = None  # number of hidden units before the skipped primitives
        for number, step in enumerate(steps, start=1):
            if skip and number == len(steps):
                self._num_hidden = masses.size(-1)
                masses = torch.cat([masses, of_parts], -1)
            masses = step.masses(masses, self.is_stationary)
        self.mass = masses.squeeze(-1)

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        units = torch.zeros_like(draws.row)
        for number, step in enumerate(reversed(self._steps)):
            draws, units = step.descend(draws, units, features)
            if number == 0 and self._num_hidden is not None:
                skips = units >= self._num_hidden
                self._draw_parts(draws[skips], units[skips] - self._num_hidden, features)
                draws, units = draws[~skips], units[~skips]
        self._draw_parts(draws, units, features)

    def _draw_parts(self, draws: Draws, units: Tensor, features: RandomFeatures) -> None:
        for number, part in enumerate(self._parts):
            part.draw(draws[units == number], features)


class _RealPart(Measure):
    """Average of a measure and its mirror image."""

    def __init__(self, measure: Measure):
        self.mass = measure.mass
        self.is_stationary = measure.is_stationary
        self._measure = measure

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        sign = 2.0 * torch.randint(2, draws.row.shape).to(torch.float64) - 1
        self._measure.draw(replace(draws, sign=sign), features)


_registered = GenKernelFeatures.dispatch(ScaleKernel)
# gpytorch_nkn/__init__.py registers a function that defers the import of this module
_botorch_scale_features = getattr(_registered, "of_scales", _registered)


def _scale_features(kernel: ScaleKernel, *, num_inputs: int, num_outputs: int) -> FeatureMap:
    """Return BoTorch's features of a ScaleKernel if BoTorch supports its base kernel.

    For other kernels, BoTorch's map would select columns twice on a GPU.
    """
    base = kernel.base_kernel
    while isinstance(base, ScaleKernel):
        base = base.base_kernel
    is_spectral = GenKernelFeatures.dispatch(type(base)) is spectral_features
    draw = spectral_features if is_spectral else _botorch_scale_features
    return draw(kernel, num_inputs=num_inputs, num_outputs=num_outputs)


GenKernelFeatures.register(Kernel)(spectral_features)
GenKernelFeatures.register(ScaleKernel)(_scale_features)
