"""Random features of single kernels: frequencies from their spectral densities."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
)
from scipy.special import gammaincinv, ive
from torch import Tensor

from gpytorch_nkn.kernels import (
    CenteredLinearKernel,
    ComplexExponentialKernel,
    ComplexKernel,
    NonStationarySpectralKernel,
    SpectralComponentKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.models.pathwise.frequency_draws import (
    Draws,
    RandomFeatures,
    choose,
    stratified,
    uniforms,
)

__all__ = ["Measure", "flat", "primitive_measure"]


class Measure:
    """A kernel as a mass times a mean of simple kernels, from which it draws.

    Attributes:
        mass: Value at ``x = x'``, one per element of the batch; of a kernel that is not
            stationary, that where all linear factors are one.
        is_stationary: Whether draws never get linear factors.
    """

    mass: Tensor
    is_stationary = True

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        """Add what is drawn to ``features``."""
        raise NotImplementedError


class _Frequencies(Measure):
    """Frequencies from uniform numbers."""

    def __init__(
        self,
        columns: Tensor,
        num_elements: int,
        num_uniforms: int,
        frequency: Callable[[Tensor, Tensor], Tensor],
    ):
        self.mass = torch.ones(num_elements, dtype=torch.float64)
        self._columns = columns
        self._num_uniforms = num_uniforms
        self._frequency = frequency

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        for slot in draws.slot.unique():
            part = draws[draws.slot == slot]
            points = uniforms(part.element, self._num_uniforms)
            frequency = part.sign.unsqueeze(-1) * self._frequency(points, part.element)
            index = (part.row.unsqueeze(-1), self._columns)
            features.frequency.index_put_(index, frequency, accumulate=True)


class _Constant(Measure):
    """The frequency zero."""

    def __init__(self, value: Tensor):
        self.mass = value

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        pass


class _Linear(Measure):
    """A column, in proportion to its variance."""

    is_stationary = False

    def __init__(self, columns: Tensor, variance: Tensor, center: Tensor):
        self.mass = variance.sum(-1)
        self._columns = columns
        self._variance = variance
        self._center = center

    def draw(self, draws: Draws, features: RandomFeatures) -> None:
        choice = stratified(self._variance, draws.element, draws.slot)
        center = self._center[draws.element, choice]
        features.factors.append((draws.row, self._columns[choice], center))


class _Pairs(Measure):
    """Pairs of frequencies, equally often: a wave of their mean times one of half the difference.

    Its draws have factors, but bounded ones: the mass is the largest value, as of the others.
    """

    def __init__(self, kernel: NonStationarySpectralKernel, columns: Tensor, shape: torch.Size):
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
        self._phases: Tensor | None = None  # B x R, of one feature per pair
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
        else:  # no wave of x - x', but one of x times one of x'
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


def primitive_measure(kernel: Kernel, columns: Tensor, batch_shape: torch.Size) -> Measure:
    """The measure of a kernel that is not made of others.

    A :class:`ComplexKernel` keeps its complex values.

    Args:
        kernel: The kernel, with its parameters as they are now.
        columns: The columns that it sees.
        batch_shape: A shape to which its batch shape broadcasts.

    Raises:
        NotImplementedError: No features of this kernel are known.
        ValueError: It has a parameter per column, for another number of columns.
    """
    # a subclass has the density of its base only while it has the values of its base
    values = "complex_values" if isinstance(kernel, ComplexKernel) else "forward"
    make = _MAKERS.get(getattr(type(kernel), values))
    if make is None:
        raise NotImplementedError(
            f"No random features are known for {type(kernel).__name__}. Draw from the posterior "
            "at points with model.posterior(X).rsample(), or choose among candidates with "
            "botorch.generation.MaxPosteriorSampling."
        )

    def parameter(name: str) -> Tensor:
        value = flat(getattr(kernel, name), 2, batch_shape).squeeze(-2)
        if value.size(-1) not in (1, len(columns)):
            raise ValueError(
                f"{type(kernel).__name__} has a {name} of size {value.size(-1)}, got "
                f"{len(columns)} columns."
            )
        return value.expand(-1, len(columns))

    return make(kernel, columns, batch_shape, parameter)


def flat(value: Tensor, event_dims: int, batch_shape: torch.Size) -> Tensor:
    """A parameter ``... x E`` as it is now, as ``B x E`` in float64 on the CPU."""
    event = value.shape[value.dim() - event_dims :]
    value = value.detach().cpu().to(torch.float64)
    return value.expand(torch.Size([*batch_shape, *event])).reshape(batch_shape.numel(), *event)


Parameter = Callable[[str], Tensor]


def _gaussian(columns: Tensor, lengthscale: Tensor) -> Measure:
    def frequency(points: Tensor, element: Tensor) -> Tensor:
        return torch.special.ndtri(points) / lengthscale[element]

    return _Frequencies(columns, len(lengthscale), len(columns), frequency)


def _gaussian_mixture(columns: Tensor, lengthscale: Tensor, shape: Tensor, power: float) -> Measure:
    """Normal frequencies times the power of a gamma variable of mean one."""

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        shapes = shape[element]
        gamma = torch.as_tensor(gammaincinv(shapes.numpy(), points[:, -1].numpy())) / shapes
        # zero for tiny shapes only, below the smallest number
        scale = gamma.clamp_min(torch.finfo(gamma.dtype).tiny) ** power
        return torch.special.ndtri(points[:, :-1]) * scale.unsqueeze(-1) / lengthscale[element]

    return _Frequencies(columns, len(lengthscale), len(columns) + 1, frequency)


def _harmonics(columns: Tensor, lengthscale: Tensor, period: Tensor, zero_mean: bool) -> Measure:
    """Multiples of the fundamental frequency; their weights are modified Bessel functions.

    exp(z cos a) = I_0(z) + 2 sum_n I_n(z) cos(n a): signed harmonics with the weights I_|n|(z),
    whose standard deviation is the root of z.
    """
    concentration = lengthscale.reciprocal()
    most = math.ceil(10 * math.sqrt(float(concentration.max()))) + 20
    order = torch.arange(-most, most + 1)
    weights = torch.as_tensor(ive(order.abs().numpy(), concentration.unsqueeze(-1).numpy()))
    if zero_mean:
        weights[..., most] = 0.0
    weights = weights.flatten(0, 1)  # a row per element and column
    num_columns = len(columns)

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        group = element.unsqueeze(-1) * num_columns + torch.arange(num_columns)
        harmonic = order[choose(weights, group.flatten(), points.flatten())].view_as(points)
        return 2 * math.pi * harmonic / period[element]

    return _Frequencies(columns, len(period), num_columns, frequency)


def _rbf(kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter) -> Measure:
    return _gaussian(columns, parameter("lengthscale"))


def _matern(kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter) -> Measure:
    lengthscale = parameter("lengthscale")  # multivariate t with 2 nu degrees of freedom
    nu = torch.full((len(lengthscale),), float(kernel.nu), dtype=torch.float64)
    return _gaussian_mixture(columns, lengthscale, nu, -0.5)


def _rational_quadratic(
    kernel: Kernel, columns: Tensor, batch_shape: torch.Size, parameter: Parameter
) -> Measure:
    alpha = flat(kernel.alpha, 1, batch_shape).squeeze(-1)
    return _gaussian_mixture(columns, parameter("lengthscale"), alpha, 0.5)


def _periodic(kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter) -> Measure:
    return _harmonics(columns, parameter("lengthscale"), parameter("period_length"), False)


def _zero_mean_periodic(
    kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter
) -> Measure:
    return _harmonics(columns, parameter("lengthscale"), parameter("period_length"), True)


def _complex_exponential(
    kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter
) -> Measure:
    frequency = parameter("frequency")
    return _Frequencies(columns, len(frequency), 0, lambda points, element: frequency[element])


def _spectral_component(
    kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter
) -> Measure:
    lengthscale, center = parameter("lengthscale"), parameter("frequency")

    def frequency(points: Tensor, element: Tensor) -> Tensor:
        sign = torch.where(points[:, -1:] < 0.5, -1.0, 1.0)
        spread = torch.special.ndtri(points[:, :-1]) / lengthscale[element]
        return sign * center[element] + spread

    return _Frequencies(columns, len(lengthscale), len(columns) + 1, frequency)


def _spectral_pairs(
    kernel: NonStationarySpectralKernel, columns: Tensor, batch_shape: torch.Size, _: Parameter
) -> Measure:
    if len(columns) != kernel.input_dim:
        raise ValueError(f"The kernel expects {kernel.input_dim} columns, got {len(columns)}.")
    return _Pairs(kernel, columns, batch_shape)


def _constant(
    kernel: Kernel, columns: Tensor, batch_shape: torch.Size, parameter: Parameter
) -> Measure:
    return _Constant(flat(kernel.constant, 1, batch_shape).squeeze(-1))


def _linear(kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter) -> Measure:
    variance = parameter("variance")
    return _Linear(columns, variance, torch.zeros_like(variance))


def _centered_linear(
    kernel: Kernel, columns: Tensor, _: torch.Size, parameter: Parameter
) -> Measure:
    return _Linear(columns, parameter("variance"), parameter("center"))


_MAKERS: dict[Callable, Callable[[Kernel, Tensor, torch.Size, Parameter], Measure]] = {
    CenteredLinearKernel.forward: _centered_linear,
    ComplexExponentialKernel.complex_values: _complex_exponential,
    ConstantKernel.forward: _constant,
    LinearKernel.forward: _linear,
    NonStationarySpectralKernel.forward: _spectral_pairs,
    MaternKernel.forward: _matern,
    PeriodicKernel.forward: _periodic,
    RBFKernel.forward: _rbf,
    RQKernel.forward: _rational_quadratic,
    SpectralComponentKernel.forward: _spectral_component,
    ZeroMeanPeriodicKernel.forward: _zero_mean_periodic,
}
