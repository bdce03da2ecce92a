"""Spectral measures of kernels, for random features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from scipy.special import gammaincinv, ive
from torch import Tensor

from gpytorch_nkn.kernels.measures.draws import Draws, RandomFeatures, choose, stratified

__all__ = [
    "Constant",
    "Frequencies",
    "Linear",
    "Measure",
    "Pairs",
    "complex_exponential",
    "flat",
    "matern",
    "periodic",
    "rational_quadratic",
    "rbf",
    "spectral_component",
]


class Measure:
    """Spectral measure: the kernel is the mass times the mean of randomly drawn simple kernels.

    Attributes:
        mass: Variance per batch element, with linear factors set to one.
        is_stationary: Whether the simple kernels are stationary.
    """

    mass: Tensor
    is_stationary = True

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        """Add the draws to ``features``."""
        raise NotImplementedError


class Frequencies(Measure):
    """Measure with mass one that maps uniform numbers ``n x U`` to frequencies ``n x D``."""

    def __init__(
        self,
        columns: Tensor,
        num_elements: int,
        num_uniforms: int,
        frequency: Callable[[Tensor, Tensor], Tensor],
    ):
        self.mass = torch.ones(num_elements, dtype=torch.float64)
        self._columns = columns
        self.num_uniforms = num_uniforms
        self._frequency = frequency

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        features.pending.append((self, draws))

    def add(self, points: Tensor, draws: Draws, features: RandomFeatures) -> None:
        """Add the frequencies for uniform numbers ``n x U``; further columns are ignored."""
        points = points[:, : self.num_uniforms]
        frequency = draws.sign.unsqueeze(-1) * self._frequency(points, draws.element)
        index = (draws.row.unsqueeze(-1), self._columns)
        features.frequency.index_put_(index, frequency, accumulate=True)


class Constant(Measure):
    """Measure with frequency zero."""

    def __init__(self, kernel: Any, columns: Tensor, batch_shape: torch.Size, value: Tensor):
        self.mass = value

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        pass


class Linear(Measure):
    """Measure that draws a column with probability proportional to its variance."""

    is_stationary = False

    def __init__(
        self,
        kernel: Any,
        columns: Tensor,
        batch_shape: torch.Size,
        variance: Tensor,
        center: Tensor | None = None,
    ):
        self.mass = variance.sum(-1)
        self._columns = columns
        self._variance = variance
        self._center = torch.zeros_like(variance) if center is None else center

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        choice = stratified(self._variance, draws.element, draws.slot)
        center = self._center[draws.element, choice]
        features.factors.append((draws.row, self._columns[choice], center))


class Pairs(Measure):
    """Uniform measure over frequency pairs, each a wave with a sinusoidal envelope."""

    def __init__(self, kernel: Any, columns: Tensor, shape: torch.Size):
        if len(columns) != kernel.input_dim:
            raise ValueError(f"Inputs must have {kernel.input_dim} columns, got {len(columns)}.")
        scale = flat(kernel.lengthscale, 2, shape)
        pairs = flat(kernel.frequencies, 3, shape) / scale.unsqueeze(-3)
        self.mass = flat(kernel.outputscale, 0, shape)
        self._columns = columns
        self._mean = (pairs[:, 0] + pairs[:, -1]) / 2  # B x R x D
        self._difference = (pairs[:, 0] - pairs[:, -1]) / 2
        self._center = flat(kernel.center, 2, shape).squeeze(-2)
        self._envelope_phases: Tensor | None = None  # B x R
        if not kernel.stationary:
            self._envelope_phases = flat(kernel.envelope_phases, 1, shape)
        self._phases: Tensor | None = None  # B x R, only for "phi"
        if kernel.feature_map == "phi":
            self._phases = flat(kernel.phases, 1, shape)

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        weights = torch.ones(self._mean.shape[:-1], dtype=torch.float64)
        element = draws.element
        choice = stratified(weights, element, draws.slot)
        mean = self._mean[element, choice]
        if self._envelope_phases is not None:
            phases = self._envelope_phases[element, choice]
            self._add_wave(draws, self._difference[element, choice], phases, features)
        if self._phases is None:
            index = (draws.row.unsqueeze(-1), self._columns)
            frequency = draws.sign.unsqueeze(-1) * mean
            features.frequency.index_put_(index, frequency, accumulate=True)
        else:  # a product of waves in x and in x', instead of a wave in x - x'
            self._add_wave(draws, mean, self._phases[element, choice], features)
            twice = torch.full_like(mean[:, 0], math.log(2.0))
            features.log_amplitude.index_add_(0, draws.row, twice)

    def _add_wave(
        self, draws: Draws, slope: Tensor, phase: Tensor, features: RandomFeatures
    ) -> None:
        wide = features.frequency.new_zeros(len(draws), features.frequency.size(-1))
        wide[:, self._columns] = slope
        offset = phase - (slope * self._center[draws.element]).sum(-1)
        features.waves.append((draws.row, wide, offset))


def flat(value: Tensor, event_dims: int, batch_shape: torch.Size) -> Tensor:
    """Return the current value ``... x E`` of a parameter as ``B x E``, float64 on the CPU."""
    event = value.shape[value.dim() - event_dims :]
    value = value.detach().cpu().to(torch.float64)
    return value.expand(torch.Size([*batch_shape, *event])).reshape(batch_shape.numel(), *event)


def rbf(kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor) -> Measure:
    def frequency(points: Tensor, element: Tensor) -> Tensor:
        return torch.special.ndtri(points) / lengthscale[element]

    return Frequencies(columns, len(lengthscale), len(columns), frequency)


def _gaussian_mixture(columns: Tensor, lengthscale: Tensor, shape: Tensor, power: float) -> Measure:
    """Return normal frequencies times a power of a gamma variable with mean one."""

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        shapes = shape[element]
        gamma = torch.as_tensor(gammaincinv(shapes.numpy(), points[:, -1].numpy())) / shapes
        # gamma variables with tiny shapes underflow
        scale = gamma.clamp_min(torch.finfo(gamma.dtype).tiny) ** power
        return torch.special.ndtri(points[:, :-1]) * scale.unsqueeze(-1) / lengthscale[element]

    return Frequencies(columns, len(lengthscale), len(columns) + 1, frequency)


def periodic(
    kernel: Any,
    columns: Tensor,
    batch_shape: torch.Size,
    lengthscale: Tensor,
    period: Tensor,
    zero_mean: bool = False,
) -> Measure:
    """Return harmonics, weighted by modified Bessel functions.

    exp(z cos a) = I_0(z) + 2 sum_n I_n(z) cos(n a): signed harmonics with weights I_|n|(z) and
    standard deviation sqrt(z).
    """
    concentration = lengthscale.reciprocal()
    most = math.ceil(10 * math.sqrt(float(concentration.max()))) + 20
    order = torch.arange(-most, most + 1)
    weights = torch.as_tensor(ive(order.abs().numpy(), concentration.unsqueeze(-1).numpy()))
    if zero_mean:
        weights[..., most] = 0.0
    weights = weights.flatten(0, 1)  # one row per element and column
    num_columns = len(columns)

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        group = element.unsqueeze(-1) * num_columns + torch.arange(num_columns)
        harmonic = order[choose(weights, group.flatten(), points.flatten())].view_as(points)
        return 2 * math.pi * harmonic / period[element]

    return Frequencies(columns, len(period), num_columns, frequency)


def matern(kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor) -> Measure:
    # a Matern kernel's frequencies have a multivariate t distribution with 2 nu degrees of freedom
    nu = torch.full((len(lengthscale),), float(kernel.nu), dtype=torch.float64)
    return _gaussian_mixture(columns, lengthscale, nu, -0.5)


def rational_quadratic(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, alpha: Tensor, lengthscale: Tensor
) -> Measure:
    return _gaussian_mixture(columns, lengthscale, alpha, 0.5)


def complex_exponential(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, frequency: Tensor
) -> Measure:
    return Frequencies(columns, len(frequency), 0, lambda points, element: frequency[element])


def spectral_component(
    kernel: Any, columns: Tensor, batch_shape: torch.Size, lengthscale: Tensor, center: Tensor
) -> Measure:
    def frequency(points: Tensor, element: Tensor) -> Tensor:
        sign = torch.where(points[:, -1:] < 0.5, -1.0, 1.0)
        deviation = torch.special.ndtri(points[:, :-1]) / lengthscale[element]
        return sign * center[element] + deviation

    return Frequencies(columns, len(lengthscale), len(columns) + 1, frequency)
