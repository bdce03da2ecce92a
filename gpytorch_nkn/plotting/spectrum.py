"""The periodogram that a kernel predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from scipy.signal import lombscargle

from gpytorch_nkn.plotting.inputs import InputLine, kernel_values, line_of_inputs
from gpytorch_nkn.plotting.style import (
    BLUE,
    ORANGE,
    PERIODS_HEIGHT,
    add_periods_above,
    as_array,
    draw_band,
    finish,
    put_legend_above,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_spectrum", "prior_periodogram", "quadratic_form_quantiles"]

_LEVEL = 0.9  # of the range
_MAX_GRID = 2_000  # points: a matrix of so many rows and columns is transformed
_MANY_FREQUENCIES = 20  # from which on a logarithmic axis shows more
_SMALLEST = 1e-9  # of the largest ordinate; below it there is rounding only


def plot_spectrum(
    ax: Axes,
    kernel: Kernel,
    x: Any,
    *,
    y: ArrayLike | None = None,
    noise: float = 0.0,
    x_offset: float = 0.0,
    x_scale: float = 1.0,
    x_label: str = "unit of x",
) -> Axes:
    r"""Draw the expected periodogram of functions drawn from a kernel, and the range of 90 %.

    On an evenly spaced grid over the range of ``x``, with as many points as ``x`` (at most
    2,000), the periodogram of a function :math:`f` is :math:`I_k = |(F f)_k|^2 / N`, :math:`F`
    being the discrete Fourier transform, and its expectation is the diagonal of
    :math:`F K F^H / N`, for any kernel, stationary or not. The frequency zero, which holds the
    mean, is not drawn. Periods stand above.

    Args:
        ax: Axes to draw on.
        kernel: A kernel without batch dimensions and with one output per input.
        x: Inputs ``N``, or ``N x D`` of which one column varies; at least four different ones.
            That column is in your units, in which frequencies are counted, too.
        y: Data ``N`` at ``x``, whose periodogram is drawn, too: without their mean, by Fourier
            transform if ``x`` is evenly spaced, and after Lomb and Scargle else.
        noise: Variance of white noise on top of the functions.
        x_offset: The kernel is evaluated at ``(x - x_offset) / x_scale``; a forecaster, say, has
            ``x_offset_`` and ``x_scale_``, which for dates are days since 1970.
        x_scale: Likewise; positive.
        x_label: The unit of ``x`` in the singular, such as ``year``.
    """
    line = line_of_inputs(kernel, x, x_offset, x_scale)
    if not noise >= 0 or not np.isfinite(noise):
        raise ValueError(f"noise must be a variance, not negative, got {noise}.")
    place = line.place
    different = len(np.unique(place))
    if different < 4:
        raise ValueError(f"At least four different inputs are needed, got {different}.")
    n = min(len(place), _MAX_GRID)
    grid = line.at(np.linspace(place[0], place[-1], n))
    covariance = kernel_values(kernel, grid, grid).double().cpu().numpy() + noise * np.eye(n)
    mean, lower, upper = prior_periodogram(covariance, level=_LEVEL)
    step = (place[-1] - place[0]) / (n - 1)
    frequencies = np.arange(1, len(mean) + 1) / (n * step)
    floor = _SMALLEST * upper.max()
    if not floor > 0:
        raise ValueError("The kernel is zero at all frequencies: there is nothing to draw.")
    lower, mean, upper = (np.maximum(part, floor) for part in (lower, mean, upper))
    draw_band(ax, frequencies, lower, upper, _LEVEL)
    ax.plot(frequencies, mean, color=BLUE, linewidth=1.5, label="expected")
    if y is not None:
        observed = _data_periodogram(line, as_array("y", y), frequencies).clip(floor)
        style = "o-" if n < 200 else "-"
        options: Any = {"linewidth": 0.9, "markersize": 2.2, "zorder": 3}
        ax.plot(frequencies, observed, style, color=ORANGE, label="data", **options)
    ax.set_yscale("log")
    if len(frequencies) >= _MANY_FREQUENCIES:
        _make_logarithmic(ax, frequencies[0] / 1.05, frequencies[-1] * 1.05)
    else:
        ax.set_xlim(0, 1.04 * frequencies[-1])
    finish(ax, f"frequency (cycles per {x_label})", "power")
    add_periods_above(ax, x_label)
    put_legend_above(ax, offset=PERIODS_HEIGHT)
    return ax


def _make_logarithmic(ax: Axes, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers, more of them where it spans few decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())


def prior_periodogram(
    covariance: np.ndarray, *, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Expectation and range of the periodogram of Gaussian vectors with mean zero.

    The Fourier coefficient :math:`z = (F f)_k / \sqrt N` is a Gaussian pair (real and imaginary
    part) with :math:`P = E|z|^2 = (F K F^H)_{kk} / N` and
    :math:`C = E z^2 = (F K F^\top)_{kk} / N`. The covariance of the pair has the eigenvalues
    :math:`(P \pm |C|) / 2`, so that the ordinate :math:`|z|^2` is the sum of two squared standard
    normals with these weights: its quantiles are exact. For long stationary series :math:`C`
    vanishes and the ordinate is exponential; for a kernel of rank one, and at the highest
    frequency of an even number of points, :math:`|C| = P`.
    """
    n = len(covariance)
    rows = np.fft.fft(covariance, axis=0)
    chosen = slice(1, n // 2 + 1)
    power = np.fft.ifft(rows, axis=1).diagonal().real[chosen].clip(0)
    pseudo = np.abs(np.fft.fft(rows, axis=1).diagonal()[chosen]) / n
    pseudo = np.minimum(pseudo, power)
    tail = (1 - level) / 2
    lower, upper = (
        quadratic_form_quantiles((power + pseudo) / 2, (power - pseudo) / 2, probability)
        for probability in (tail, 1 - tail)
    )
    return power, lower, upper


def quadratic_form_quantiles(
    first: np.ndarray, second: np.ndarray, probability: float
) -> np.ndarray:
    r"""Quantiles of :math:`\lambda_1 u^2 + \lambda_2 v^2` for standard normal :math:`u, v`.

    In polar coordinates the squared radius is exponential with mean 2 and independent of the
    angle, hence :math:`P(I > t) = E_\theta \exp(-t / (2 (\lambda_1 \cos^2 \theta +
    \lambda_2 \sin^2 \theta)))`: a smooth periodic integral, solved for ``t`` by bisection.
    """
    total = first + second
    share = np.divide(second, total, out=np.zeros_like(total), where=total > 0)
    angles = (np.arange(256) + 0.5) * (np.pi / 512)  # the other quadrants are alike
    weights = 2 * (
        (1 - share)[:, None] * np.cos(angles) ** 2 + share[:, None] * np.sin(angles) ** 2
    )
    low, high = np.full(len(total), -40.0), np.full(len(total), 5.0)  # logarithms of t / total
    for _ in range(50):
        middle = (low + high) / 2
        above = np.exp(-np.exp(middle)[:, None] / weights).mean(1)
        low, high = np.where(above > 1 - probability, (middle, high), (low, middle))
    return total * np.exp((low + high) / 2)


def _data_periodogram(line: InputLine, y: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Periodogram of the data, in the order in which they came in, at the frequencies."""
    place = line.place
    if y.shape != place.shape:
        raise ValueError(f"y must have one value per input, {place.shape}, got shape {y.shape}.")
    y = y[line.order] - y.mean()
    steps = np.diff(place)
    even = np.ptp(steps) <= 1e-3 * steps.mean()
    if even and len(y) // 2 == len(frequencies):
        return np.abs(np.fft.rfft(y)[1:]) ** 2 / len(y)
    return np.asarray(lombscargle(place - place[0], y, 2 * np.pi * frequencies))
