"""Residuals of a fitted Gaussian process, compared with the noise that it assumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import fft, linalg, stats

__all__ = ["Check", "ResidualChecks", "check_residuals", "lomb_scargle", "residual_draws"]

_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1)  # in variances of the noise
_OFF_GRID = 0.01  # distance from a regular grid, in steps, of evenly spaced times
_OVERSAMPLING = 2  # frequencies per resolution element of unevenly spaced times
_WORK = 8e9  # products of draws, times and frequencies for a periodogram of uneven times
_CHUNK = 4_000_000  # numbers in a temporary matrix
_MAX_LAGS = 100
_TAIL = 1e-3  # on each side, where the deviation of a quantile counts as 1


@dataclass(frozen=True, eq=False)
class Check:
    """A curve of the residuals, compared with that of noise."""

    p_value: float  #: probability that noise has a statistic as large as the residuals
    statistic: float  #: of the residuals, mean over the draws
    x: np.ndarray  #: M: lags in steps, frequencies in cycles per unit of time, or normal quantiles
    observed: np.ndarray  #: curve M of the residuals, mean over the draws
    lower: np.ndarray  #: ends M of the range that holds 95 % of the curves of noise, at each point
    upper: np.ndarray


@dataclass(frozen=True, eq=False)
class ResidualChecks:
    """What :func:`check_residuals` found."""

    autocorrelation: Check | None  #: by the order of the times; None without times
    periodogram: Check | None  #: by frequency; None without times
    qq: Check  #: sorted residuals against quantiles of the normal distribution


def check_residuals(
    x: np.ndarray | None,
    y: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> ResidualChecks:
    r"""Compare the residuals of a Gaussian process with the noise that it assumes.

    For draws :math:`f_s` from the posterior, :math:`e_s = (y - f_s) / \sqrt{\text{noise}}` is
    compared with vectors :math:`e'` of fresh standard normal noise by the statistics

    - ``autocorrelation``: largest absolute autocorrelation, lags 1 to ``min(N // 2, 100)``, counted
      in steps from one time to the next even if the steps differ;
    - ``periodogram``: largest power, where noise has a mean of 1, by Fourier transform for evenly
      spaced times, else after Lomb and Scargle up to half a cycle per median step;
    - ``qq``: largest distance of a sorted residual from its median under noise, in units of the
      distance where noise is with probability 0.001, on the same side (Beta quantiles).

    If the model and its parameters are right, :math:`e_s` is exactly standard normal and
    :math:`P(T(e') \ge T(e_s))` uniform for each s. The p-value is its mean over the draws: one half
    on average, and below any :math:`\alpha` with probability at most :math:`2\alpha`. The data are
    used twice, for the posterior and for the check, so power is low where the model absorbs the
    misfit as signal; a large p-value does not say that the model is right.

    Times ``N`` come in any order, ``None`` for data without one, which have no autocorrelation and
    no periodogram. Mean ``N`` and covariance ``N x N`` are those of the function at the training
    inputs; the variances of the noise are ``N``.

    Raises:
        ValueError: The covariance is not positive semi-definite.

    References: Meng (1994), Posterior predictive p-values. Lloyd et al. (2014), Automatic
    construction and natural-language description of nonparametric regression models.
    """
    n = y.size
    rng = np.random.default_rng(seed)
    scale = np.sqrt(noise)
    drawn = rng.standard_normal((draws, n))
    residuals = residual_draws((y - mean) / scale, covariance / np.outer(scale, scale), drawn)
    fresh = rng.standard_normal((draws, n))
    autocorrelation = periodogram = None
    if x is not None:
        order = np.argsort(x, kind="stable")
        ordered, pure = _standardize(residuals[:, order]), _standardize(fresh)
        lags = np.arange(1.0, min(n // 2, _MAX_LAGS) + 1)
        curves = (_autocorrelations(part, lags.size) for part in (ordered, pure))
        autocorrelation = _compare(lags, *curves)
        frequencies, power, used = _periodogram_of(x[order], draws)
        periodogram = _compare(frequencies, power(ordered[:used]), power(pure[:used]))
    return ResidualChecks(autocorrelation, periodogram, _compare_quantiles(residuals, fresh))


def residual_draws(center: np.ndarray, covariance: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Draws ``S x N`` of the residuals ``center``, everything in standard deviations of the noise.

    From standard normal numbers ``drawn`` ``S x N``; the covariance's diagonal is overwritten.
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


def _standardize(residuals: np.ndarray) -> np.ndarray:
    """Rows of mean zero and variance one; rows of equal numbers become zero."""
    centered = residuals - residuals.mean(-1, keepdims=True)
    std = centered.std(-1, keepdims=True)
    return centered / np.where(std > 0, std, 1.0)


def _in_chunks(function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The function of all rows, evaluated for some of them at a time to save memory."""
    size = max(1, _CHUNK // (2 * rows.shape[1]))
    return np.concatenate([function(rows[i : i + size]) for i in range(0, len(rows), size)])


def _autocorrelations(residuals: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelations ``S x lags`` of standardised residuals ``S x N``, from lag 1."""
    n = residuals.shape[1]
    length = fft.next_fast_len(n + lags, real=True)

    def evaluate(part: np.ndarray) -> np.ndarray:
        power = np.abs(fft.rfft(part, length)) ** 2
        return fft.irfft(power, length)[:, 1 : lags + 1] / n

    return _in_chunks(evaluate, residuals)


def _periodogram_of(
    x: np.ndarray, draws: int
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], int]:
    """Frequencies, a function from ``S x N`` residuals to power, and for how many draws."""
    n, span = x.size, x[-1] - x[0]
    step = span / (n - 1)
    if np.abs(x - np.linspace(x[0], x[-1], n)).max() <= _OFF_GRID * step:
        count = (n - 1) // 2

        def power(residuals: np.ndarray) -> np.ndarray:
            return _in_chunks(
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


def _p_value(observed: np.ndarray, fresh: np.ndarray) -> float:
    """Mean over the draws of the share of fresh statistics that are as large, never zero."""
    larger = fresh.size - np.searchsorted(np.sort(fresh), observed, side="left")
    return float(np.mean((1 + larger) / (1 + fresh.size)))


def _compare(axis: np.ndarray, curves: np.ndarray, fresh: np.ndarray) -> Check:
    statistic = np.abs(curves).max(-1)
    lower, upper = np.quantile(fresh, [0.025, 0.975], axis=0)
    p_value = _p_value(statistic, np.abs(fresh).max(-1))
    return Check(p_value, float(statistic.mean()), axis, curves.mean(0), lower, upper)


def _compare_quantiles(residuals: np.ndarray, fresh: np.ndarray) -> Check:
    n = residuals.shape[1]
    rank = np.arange(1, n + 1)
    lowest, lower, center, upper, highest = (
        stats.norm.ppf(stats.beta.ppf(share, rank, n + 1 - rank))
        for share in (_TAIL, 0.025, 0.5, 0.975, 1 - _TAIL)
    )

    def deviation(ordered: np.ndarray) -> np.ndarray:
        distance = ordered - center
        return np.maximum(distance / (highest - center), distance / (lowest - center)).max(-1)

    residuals.sort(axis=-1)
    fresh.sort(axis=-1)
    statistic = _in_chunks(deviation, residuals)
    p_value = _p_value(statistic, _in_chunks(deviation, fresh))
    observed = residuals.mean(0)
    return Check(p_value, float(statistic.mean()), center, observed, lower, upper)
