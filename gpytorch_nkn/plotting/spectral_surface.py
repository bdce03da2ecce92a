"""Where the power of a kernel lies: over pairs of frequencies, and over place and frequency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn.kernels import BivariateSpectralMixtureKernel, NonStationarySpectralKernel
from gpytorch_nkn.plotting.inputs import (
    InputLine,
    check_kernel,
    check_positive,
    kernel_values,
    line_of_inputs,
)
from gpytorch_nkn.plotting.style import add_bar, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["expected_spectrogram", "plot_local_spectrum", "plot_spectral_surface", "spectral_bumps"]

_FINE = 60  # deviations of the smoothing within the largest frequency
_CELLS = 301
_PLACES, _FREQUENCIES = 161, 160
_FINEST = 1200  # points of the grid on which kernels are evaluated
_REACH = 8.0  # deviations of the squared window, where the window is 1e-7 of its peak
_MOST_POWER = 0.995  # of it lies below the largest frequency that is drawn by default


def plot_spectral_surface(
    ax: Axes,
    kernel: Kernel,
    *,
    column: int = 0,
    max_frequency: float | None = None,
    x_label: str = "unit of x",
) -> Axes:
    r"""Draw the spectral density of a non-stationary kernel over pairs of frequencies.

    By Yaglom's theorem a kernel is :math:`k(x, x') = \int\!\int e^{2 \pi i (u x - v x')}
    S(u, v)\, du\, dv` with a density that is symmetric in :math:`(u, v)` and under a change of both
    signs. A stationary kernel has all of it on the diagonal, which is dotted. A mass at the
    distance :math:`d` from the diagonal (:math:`u - v = d`) makes the variance beat once per
    :math:`1 / d`.

    A pair of frequencies of a :class:`.NonStationarySpectralKernel` is four masses of equal size,
    :math:`(\omega, \omega')`, :math:`(\omega', \omega)`, :math:`(\omega, \omega)` and
    :math:`(\omega', \omega')`, and their negatives, smoothed by a Gaussian whose deviation is a
    60th of the largest frequency; of ``"phi"`` it is the expectation over the phases. A component
    of a :class:`.BivariateSpectralMixtureKernel` has Gaussians in their places. Of complex masses
    the modulus is drawn.

    Args:
        ax: Axes to draw on; a colour bar is added beside them.
        kernel: One of these kernels, in ScaleKernels or not, without batch dimensions.
        column: Number of the input column, of those that the kernel sees. The density is that
            along a line through the centre on which this column varies.
        max_frequency: Largest frequency, in cycles per unit; by default nearly all masses show.
        x_label: The unit of the input in the singular, such as ``year``.

    Raises:
        TypeError: ``kernel`` is of another kind.
        ValueError: The kernel has a batch shape, there is no such column, or ``max_frequency`` is
            not positive.
    """
    centers, masses, widths, correlations = spectral_bumps(kernel, column)
    if max_frequency is None:
        reach = np.abs(centers).max(1) + 3 * widths
        order = np.argsort(reach)
        share = masses[order].cumsum() / masses.sum()
        largest = reach[order][min(np.searchsorted(share, _MOST_POWER), len(reach) - 1)]
        max_frequency = float(1.08 * largest) or 1.0
    check_positive("max_frequency", max_frequency)
    grid = np.linspace(-max_frequency, max_frequency, _CELLS)
    smoothing = (max_frequency / _FINE) ** 2
    along, across = (
        np.maximum(np.sqrt(widths**2 * part + smoothing), grid[1] - grid[0])
        for part in (1 + correlations, 1 - correlations)
    )
    density = _density(grid, centers, masses, along, across)
    unit = f"cycles per {x_label}"
    _draw_image(ax, grid, grid, density, f"power per ({unit})²")
    ax.plot(grid[[0, -1]], grid[[0, -1]], color="white", linewidth=0.8, linestyle=":", zorder=3)
    ax.set_aspect("equal")
    finish(ax, f"frequency $u$ ({unit})", f"frequency $v$ ({unit})")
    return ax


def spectral_bumps(
    kernel: Kernel, column: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gaussians of a kernel's spectral density, whose masses add up to its value at the centre.

    Centres ``B x 2`` in cycles per unit of the kernel's inputs, masses ``B``, deviations ``B``
    (0 for points) in both frequencies, and correlations ``B``.
    """
    check_kernel(kernel)
    factor = 1.0
    while isinstance(kernel, ScaleKernel):
        factor, kernel = factor * kernel.outputscale.item(), kernel.base_kernel
    if isinstance(kernel, NonStationarySpectralKernel):
        columns = kernel.input_dim
        pairs = kernel.angular_frequencies.transpose(-3, -2)  # R x 2 x D
        weights = (kernel.outputscale / kernel.num_features).expand(kernel.num_features)
        deviations = correlations = pairs.new_zeros(kernel.num_features, columns)
    elif isinstance(kernel, BivariateSpectralMixtureKernel):
        pairs, weights = kernel.frequencies, kernel.mixture_weights
        deviations, correlations = kernel.mixture_scales, kernel.correlations
        columns = pairs.size(-1)
        column = 0 if kernel.ard_num_dims is None else column  # all columns share one
    else:
        raise TypeError(
            "A NonStationarySpectralKernel or a BivariateSpectralMixtureKernel is needed, in "
            f"ScaleKernels or not, got {type(kernel).__name__}."
        )
    if not 0 <= column < columns:
        raise ValueError(f"column must be one of the {columns} that the kernel sees, got {column}.")

    def as_array(values: Tensor) -> np.ndarray:
        return values.detach().double().cpu().numpy()

    first, second = as_array(pairs[..., column]).T / (2 * math.pi)  # each B
    centers = np.concatenate(
        [np.column_stack([u, v]) for u in (first, second) for v in (first, second)]
    )
    masses = np.tile(factor * as_array(weights) / 8, 8)
    widths = np.tile(as_array(deviations[..., column]) / (2 * math.pi), 8)
    tilts = np.tile(as_array(correlations[..., column]), 8)
    return np.concatenate([centers, -centers]), masses, widths, tilts


def _density(
    grid: np.ndarray,
    centers: np.ndarray,
    masses: np.ndarray,
    along: np.ndarray,
    across: np.ndarray,
) -> np.ndarray:
    """Sum of Gaussians ``G x G`` (rows: second frequency) with deviations along the diagonals."""
    total = np.zeros((len(grid), len(grid)))
    u, v = grid, grid[:, None]
    half = len(masses) // 2  # the others are their negatives
    for (a, b), mass, long, short in zip(
        centers[:half], masses[:half], along[:half], across[:half], strict=True
    ):
        if mass <= 0:
            continue
        exponent = ((u - a) + (v - b)) ** 2 / (4 * long**2)
        exponent += ((u - a) - (v - b)) ** 2 / (4 * short**2)
        total += mass / (2 * math.pi * long * short) * np.exp(-exponent)
    return total + total[::-1, ::-1]


def plot_local_spectrum(
    ax: Axes,
    kernel: Kernel,
    x: Any,
    *,
    window: float | None = None,
    max_frequency: float | None = None,
    x_offset: float = 0.0,
    x_scale: float = 1.0,
    x_label: str = "x",
    unit: str = "unit of x",
) -> Axes:
    r"""Draw which frequencies functions drawn from a kernel have where: for any kernel.

    Drawn is the expected power of a Fourier transform within a Gaussian window :math:`g` around
    the place,

    .. math::
        P(x, f) = 2\, \mathrm{E} \Bigl| \int g(u - x) h(u) e^{-2 \pi i f u} du \Bigr|^2
            = 2 \int e^{-2 \pi i f t} e^{-t^2 / 8 \tau^2}
              \int \mathcal{N}(u; x, \tau^2)\, k(u + t/2, u - t/2)\, du\, dt

    for functions :math:`h` with the covariance :math:`k`: its Wigner-Ville transform, smoothed over
    places by :math:`\tau`, the deviation of :math:`g^2`, and over frequencies by
    :math:`1 / 4 \pi \tau`. The integral of :math:`P` over the frequencies from 0 is the variance
    around the place. A stationary kernel has the same column everywhere, its spectral density.

    Args:
        ax: Axes to draw on; a colour bar is added beside them.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` of which one column varies, whose range is drawn. Beyond
            both ends the kernel is evaluated over eight deviations of the window, too.
        window: :math:`\tau`, in your units; a 24th of the range by default.
        max_frequency: Largest frequency, in cycles per unit; by default that below which nearly all
            power lies.
        x_offset: The kernel is evaluated at ``(x - x_offset) / x_scale``.
        x_scale: Likewise; positive.
        x_label: Label of the horizontal axis, with its unit.
        unit: The unit of ``x`` in the singular, such as ``year``.

    Returns:
        The same axes.

    Raises:
        TypeError: ``kernel`` is not a kernel, or ``x`` does not hold numbers.
        ValueError: The kernel has a batch shape, not exactly one column of ``x`` varies,
            ``window``, ``max_frequency`` or ``x_scale`` is not positive, they ask for more than
            4,800 places at which to evaluate the kernel, or a value is not finite.

    Reference: Martin and Flandrin (1985), Wigner-Ville spectral analysis of nonstationary
    processes.
    """
    line = line_of_inputs(kernel, x, x_offset, x_scale)
    low, high = line.place[[0, -1]]
    window = (high - low) / 24 if window is None else window
    check_positive("window", window)
    places = np.linspace(low, high, _PLACES)
    frequencies, power = expected_spectrogram(kernel, line, places, window, max_frequency)
    _draw_image(ax, places, frequencies, power, f"power per (cycle per {unit})")
    finish(ax, x_label, f"frequency (cycles per {unit})")
    return ax


def expected_spectrogram(
    kernel: Kernel,
    line: InputLine,
    places: np.ndarray,
    window: float,
    max_frequency: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies ``F`` from 0, and expected power ``F x P`` of functions at even places ``P``."""
    low, high = places[0] - _REACH * window, places[-1] + _REACH * window
    count = _FINEST
    if max_frequency is not None:
        check_positive("max_frequency", max_frequency)
        # Waves up to twice that frequency must not pass for slower ones.
        count = max(count, math.ceil(4 * max_frequency * (high - low)))
    count = max(count, math.ceil(3 * (high - low) / window))
    if count > 4 * _FINEST:
        raise ValueError(
            f"The kernel would have to be evaluated at {count} places, of which {4 * _FINEST} are "
            f"the most: window={window:.4g} is too small or max_frequency={max_frequency} too "
            "large for the range of x."
        )
    grid = np.linspace(low, high, count)
    step = grid[1] - grid[0]
    covariance = kernel_values(kernel, line.at(grid), line.at(grid)).double().cpu().numpy()
    lags = min(count, math.ceil(2 * _REACH * window / step))
    smoothed = np.empty((lags, len(places)))  # covariance at a lag, averaged around each place
    # Middles of pairs at an even lag are on the grid, those at an odd lag halfway between.
    offsets = [(grid + shift - places[:, None]) / window for shift in (0.0, step / 2)]
    norm = step / (window * math.sqrt(2 * math.pi))
    weights = [np.exp(-0.5 * offset**2) * norm for offset in offsets]
    for lag in range(lags):
        first = lag // 2
        around = weights[lag % 2][:, first : first + count - lag]
        taper = math.exp(-0.125 * (lag * step / window) ** 2)
        smoothed[lag] = taper * (around @ covariance.diagonal(lag))
    smoothed[0] /= 2  # the other lags stand for two, of either sign
    if max_frequency is None:
        max_frequency = _largest_frequency(smoothed, step)
    frequencies = np.linspace(0, max_frequency, _FREQUENCIES)
    waves = np.cos(2 * math.pi * step * np.outer(frequencies, np.arange(lags)))
    return frequencies, (4 * step * waves @ smoothed).clip(0)


def _largest_frequency(smoothed: np.ndarray, step: float) -> float:
    """Frequency below which nearly all power lies, of that which the grid resolves."""
    frequencies = np.linspace(0, 0.5 / step, 4 * len(smoothed))
    waves = np.cos(2 * math.pi * step * np.outer(frequencies, np.arange(len(smoothed))))
    power = (waves @ smoothed.sum(1)).clip(0)
    if not power.sum() > 0:
        raise ValueError("The kernel is zero at all frequencies: there is nothing to draw.")
    share = power.cumsum() / power.sum()
    return float(1.1 * frequencies[max(int(np.searchsorted(share, _MOST_POWER)), 1)])


def _draw_image(ax: Axes, x: np.ndarray, y: np.ndarray, values: np.ndarray, label: str) -> None:
    """Draw values ``Y x X`` in colours that show weak ones, too, with their bar."""
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, 0.0, float(values.max()) or 1.0)
    ax.grid(False)
    mesh = ax.pcolormesh(x, y, values, cmap="magma", norm=norm, shading="nearest", rasterized=True)
    add_bar(ax, mesh, label=label)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
