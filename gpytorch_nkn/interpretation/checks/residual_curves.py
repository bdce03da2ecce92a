"""Draws of residuals, their autocorrelation and their periodogram, for many draws at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import fft, linalg

__all__ = [
    "autocorrelations",
    "in_chunks",
    "lomb_scargle",
    "periodogram_of",
    "residual_draws",
    "standardize",
]

_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1)  # in variances of the noise
_OFF_GRID = 0.01  # times this far from a regular grid, in steps, count as evenly spaced
_OVERSAMPLING = 2  # frequencies per resolution element of unevenly spaced times
_WORK = 8e9  # products of draws, times and frequencies for a periodogram of uneven times
_CHUNK = 4_000_000  # numbers in a temporary matrix


def residual_draws(center: np.ndarray, covariance: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Draws ``S x N`` of the residuals, everything in standard deviations of the noise.

    Args:
        center: Targets minus posterior mean, ``N``.
        covariance: Posterior covariance ``N x N``; its diagonal is overwritten.
        drawn: Standard normal numbers ``S x N``.
    """
    added = 0.0
    for jitter in _JITTERS:
        added += jitter
        np.fill_diagonal(covariance, covariance.diagonal() + jitter)
        try:
            factor = linalg.cholesky(covariance, lower=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        # A jitter is noise on top of that of the data: after this division, the residuals of a
        # right model are exactly standard normal again.
        return (center - drawn @ factor.T) / np.sqrt(1 + added)
    raise ValueError(
        "covariance must be positive semi-definite, got one with an eigenvalue below "
        f"{-_JITTERS[-1]:g} variances of the noise; is it in single precision?"
    )


def standardize(residuals: np.ndarray) -> np.ndarray:
    """Rows of mean zero and variance one; rows of equal numbers become zero."""
    centered = residuals - residuals.mean(-1, keepdims=True)
    std = centered.std(-1, keepdims=True)
    return centered / np.where(std > 0, std, 1.0)


def in_chunks(function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The function of all rows, evaluated for some of them at a time to save memory."""
    size = max(1, _CHUNK // (2 * rows.shape[1]))
    return np.concatenate([function(rows[i : i + size]) for i in range(0, len(rows), size)])


def autocorrelations(residuals: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelations ``S x lags`` of standardised residuals ``S x N``, from lag 1."""
    n = residuals.shape[1]
    length = fft.next_fast_len(n + lags, real=True)

    def evaluate(part: np.ndarray) -> np.ndarray:
        power = np.abs(fft.rfft(part, length)) ** 2
        return fft.irfft(power, length)[:, 1 : lags + 1] / n

    return in_chunks(evaluate, residuals)


def periodogram_of(
    x: np.ndarray, draws: int
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], int]:
    """Frequencies, a function from ``S x N`` residuals to power, and for how many draws."""
    n, span = x.size, x[-1] - x[0]
    step = span / (n - 1)
    if np.abs(x - np.linspace(x[0], x[-1], n)).max() <= _OFF_GRID * step:
        count = (n - 1) // 2

        def power(residuals: np.ndarray) -> np.ndarray:
            return in_chunks(
                lambda part: np.abs(fft.rfft(part)[:, 1 : count + 1]) ** 2 / n, residuals
            )

        return np.arange(1, count + 1) / (n * step), power, draws
    different = np.unique(x)
    resolution = (different.size - 1) / (different.size * span)
    highest = 0.5 / np.median(np.diff(different))
    # From one cycle per span on; the small number keeps the Nyquist frequency despite rounding.
    count = min(_OVERSAMPLING * n, int(_OVERSAMPLING * highest / resolution + 1e-9))
    numbers = np.arange(_OVERSAMPLING, max(count, _OVERSAMPLING) + 1)
    frequencies = numbers * resolution / _OVERSAMPLING
    used = min(draws, max(1, int(_WORK / (n * frequencies.size))))
    return frequencies, lambda residuals: lomb_scargle(x, residuals, frequencies), used


def lomb_scargle(x: np.ndarray, residuals: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """As scipy.signal.lombscargle, with sines shared by all the rows of residuals ``S x N``."""
    n = x.size
    power = np.empty((len(residuals), frequencies.size))
    size = max(1, _CHUNK // n)
    for start in range(0, frequencies.size, size):
        part = slice(start, start + size)
        angle = 2 * np.pi * (x - x.mean())[:, None] * frequencies[part]
        cos, sin = np.cos(angle), np.sin(angle)
        doubled = (cos * cos - sin * sin).sum(0) + 1j * (2 * cos * sin).sum(0)
        shift, length = np.angle(doubled) / 2, np.abs(doubled)
        # After a shift in time, the sum of the products of sine and cosine is zero.
        along, across = residuals @ cos, residuals @ sin
        in_phase = along * np.cos(shift) + across * np.sin(shift)
        quadrature = across * np.cos(shift) - along * np.sin(shift)
        rest = n - length  # zero where the sine vanishes at all times
        quadrature = np.where(rest > 1e-9 * n, quadrature, 0.0)
        rest = np.where(rest > 1e-9 * n, rest, 1.0)
        power[:, part] = in_phase**2 / (n + length) + quadrature**2 / rest
    return power
