"""Spectral density of a kernel over position and frequency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from gpytorch.kernels import Kernel

from gpytorch_nkn.fit import check_number
from gpytorch_nkn.plotting.inputs import InputLine, kernel_values, line_of_inputs
from gpytorch_nkn.plotting.style import add_bar, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_local_spectrum"]

_POSITIONS, _FREQUENCIES = 161, 160
_GRID = 1200  # usual number of points at which kernels are evaluated; at most four times as many
_REACH = 8.0  # half width of the window in units of tau, where it is 1e-7 of its peak
_MOST_POWER = 0.995  # fraction of the power below the default largest frequency


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
    r"""Draw the expected local spectrum of functions with covariance :math:`k`.

    The expected power of a Fourier transform in a Gaussian window :math:`g` around a position is

    .. math::
        P(x, f) = 2\, \mathrm{E} \Bigl| \int g(u - x) h(u) e^{-2 \pi i f u} du \Bigr|^2
            = 2 \int e^{-2 \pi i f t} e^{-t^2 / 8 \tau^2}
              \int \mathcal{N}(u; x, \tau^2)\, k(u + t/2, u - t/2)\, du\, dt

    for functions :math:`h` with covariance :math:`k`. This is the Wigner-Ville transform of the
    kernel, smoothed over positions by :math:`\tau` and over frequencies by :math:`1 / 4 \pi \tau`.
    The standard deviation of :math:`g^2` is :math:`\tau`. The integral of :math:`P` over all
    :math:`f \ge 0` is the local variance. For a stationary kernel, :math:`P` is its (smoothed)
    spectral density at every position.

    Args:
        ax: Axes to draw on; a colour bar is added beside them.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` with one varying column, whose range is drawn. The kernel
            is also evaluated within eight standard deviations of the window beyond both ends.
        window: :math:`\tau`, in your units; default: 1/24 of the range.
        max_frequency: Largest frequency in cycles per unit; default: nearly all power is below it.
        x_offset: The kernel is evaluated at ``(x - x_offset) / x_scale``.
        x_scale: Positive scale of the inputs.
        x_label: Label of the horizontal axis, with its unit.
        unit: The unit of ``x`` in the singular, such as ``year``.

    Raises:
        TypeError: ``kernel`` is not a kernel, or ``x`` does not hold numbers.
        ValueError: The kernel has a batch shape, or not exactly one column of ``x`` varies. An
            option is not positive or not finite, or more than 4,800 points would be needed.

    Reference: Martin and Flandrin (1985), Wigner-Ville spectral analysis of nonstationary
    processes.
    """
    from matplotlib.colors import PowerNorm

    line = line_of_inputs(kernel, x, x_offset, x_scale)
    low, high = line.x[[0, -1]]
    window = (high - low) / 24 if window is None else window
    check_number("window", window, positive=True)
    positions = np.linspace(low, high, _POSITIONS)
    frequencies, power = _expected_spectrogram(kernel, line, positions, window, max_frequency)
    norm = PowerNorm(0.5, 0.0, float(power.max()) or 1.0)
    ax.grid(False)
    options: Any = {"cmap": "magma", "norm": norm, "shading": "nearest", "rasterized": True}
    mesh = ax.pcolormesh(positions, frequencies, power, **options)
    add_bar(ax, mesh, label=f"power per (cycle per {unit})")
    ax.set(xlim=positions[[0, -1]], ylim=frequencies[[0, -1]])
    finish(ax, x_label, f"frequency (cycles per {unit})")
    return ax


def _expected_spectrogram(
    kernel: Kernel,
    line: InputLine,
    positions: np.ndarray,
    window: float,
    max_frequency: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies ``F`` from 0, and expected power ``F x P`` at the positions ``P``."""
    low, high = positions[0] - _REACH * window, positions[-1] + _REACH * window
    count = _GRID
    if max_frequency is not None:
        check_number("max_frequency", max_frequency, positive=True)
        # frequencies up to twice the largest must not alias
        count = max(count, math.ceil(4 * max_frequency * (high - low)))
    count = max(count, math.ceil(3 * (high - low) / window))
    if count > 4 * _GRID:
        raise ValueError(
            f"Expected at most {4 * _GRID} positions for the range of x, got {count}: "
            f"window={window:.4g} is too small or max_frequency={max_frequency} too large."
        )
    grid = np.linspace(low, high, count)
    step = grid[1] - grid[0]
    covariance = kernel_values(kernel, line.at(grid), line.at(grid)).numpy()
    lags = min(count, math.ceil(2 * _REACH * window / step))
    # covariances at each lag, averaged around each position
    smoothed = np.empty((lags, len(positions)))
    # midpoints of pairs are on the grid for even lags, halfway between for odd ones
    offsets = [(grid + shift - positions[:, None]) / window for shift in (0.0, step / 2)]
    norm = step / (window * math.sqrt(2 * math.pi))
    weights = [np.exp(-0.5 * offset**2) * norm for offset in offsets]
    for lag in range(lags):
        first = lag // 2
        weight = weights[lag % 2][:, first : first + count - lag]
        taper = math.exp(-0.125 * (lag * step / window) ** 2)
        smoothed[lag] = taper * (weight @ covariance.diagonal(lag))
    smoothed[0] /= 2  # other lags count twice, for both signs
    if max_frequency is None:
        max_frequency = _largest_frequency(smoothed, step)
    frequencies = np.linspace(0, max_frequency, _FREQUENCIES)
    cosines = np.cos(2 * math.pi * step * np.outer(frequencies, np.arange(lags)))
    return frequencies, (4 * step * cosines @ smoothed).clip(0)


def _largest_frequency(smoothed: np.ndarray, step: float) -> float:
    """Return a frequency that exceeds nearly all of the resolved power."""
    frequencies = np.linspace(0, 0.5 / step, 4 * len(smoothed))
    cosines = np.cos(2 * math.pi * step * np.outer(frequencies, np.arange(len(smoothed))))
    power = (cosines @ smoothed.sum(1)).clip(0)
    if not power.sum() > 0:
        raise ValueError("The spectrum of the kernel must not vanish, got zero at all frequencies.")
    share = power.cumsum() / power.sum()
    return float(1.1 * frequencies[max(int(np.searchsorted(share, _MOST_POWER)), 1)])
