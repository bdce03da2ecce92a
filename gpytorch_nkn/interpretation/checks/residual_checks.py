"""Residuals of a fitted Gaussian process, compared with the noise that it assumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft, linalg, stats

__all__ = ["Check", "ResidualChecks", "check_residuals", "residual_draws"]

_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1)  # in variances of the noise
_OVERSAMPLING = 2  # frequencies per resolution element
_WORK = 2e9  # draws x times x frequencies that a periodogram evaluates at most
_CHUNK = 4_000_000  # entries of a temporary matrix
_MAX_LAGS = 100
_TAIL = 1e-3  # tail probability of the quantile whose distance from the median counts as 1


@dataclass(frozen=True, eq=False)
class Check:
    """A curve of the residuals and its range under white noise."""

    p_value: float  #: probability that the statistic of noise is at least as large
    statistic: float  #: largest value of the curve, averaged over posterior draws
    x: np.ndarray  #: M lags in steps, frequencies in cycles per unit of time, or normal quantiles
    observed: np.ndarray  #: curve M of the residuals, averaged over posterior draws
    lower: np.ndarray  #: M, ends of the pointwise 95 % range under noise
    upper: np.ndarray


@dataclass(frozen=True, eq=False)
class ResidualChecks:
    """Result of :func:`check_residuals`."""

    autocorrelation: Check | None  #: None without times
    periodogram: Check | None  #: None without times
    qq: Check  #: sorted residuals against normal quantiles


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

    Draws :math:`f_s` from the posterior give residuals
    :math:`e_s = (y - f_s) / \sqrt{\text{noise}}`. Three statistics compare them with standard
    normal noise :math:`e'`:

    - ``autocorrelation``: largest absolute autocorrelation at lags 1 to ``min(N // 2, 100)``, in
      steps from one time to the next, also where steps differ;
    - ``periodogram``: largest power, which has mean 1 under noise, at frequencies below half a
      cycle per median step;
    - ``qq``: largest distance of a sorted residual from its median under noise, relative to the
      distance that noise exceeds with probability 0.001 on that side (Beta quantiles).

    If the model is right, :math:`e_s` is exactly standard normal and
    :math:`P(T(e') \ge T(e_s))` is uniform for each s. The p-value is its mean over the draws: one
    half on average, and below :math:`\alpha` with probability at most :math:`2\alpha`. The data are
    used twice, so the power is low where the model absorbs the misfit as signal. A large p-value
    does not prove that the model is right.

    Args:
        x: Times ``N`` in any order; None for data without an order.
        y: Targets ``N``.
        mean: Posterior mean ``N`` of the function at the training inputs.
        covariance: Its posterior covariance ``N x N``.
        noise: Noise variances ``N``.
        draws: Number of posterior draws.
        seed: Seed of the draws; the global random state does not change.

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
        frequencies = _frequencies(x)
        used = min(draws, max(1, int(_WORK / (n * frequencies.size))))
        curves = (_powers(x[order], part[:used], frequencies) for part in (ordered, pure))
        periodogram = _compare(frequencies, *curves)
    return ResidualChecks(autocorrelation, periodogram, _compare_quantiles(residuals, fresh))


def residual_draws(center: np.ndarray, covariance: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Draw residuals ``S x N`` in standard deviations of the noise.

    ``drawn`` holds standard normal numbers ``S x N``. The covariance's diagonal is overwritten.
    """
    added = 0.0
    for jitter in _JITTERS:
        added += jitter
        np.fill_diagonal(covariance, covariance.diagonal() + jitter)
        try:
            factor = linalg.cholesky(covariance, lower=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        # the jitter acts as additional noise: the division keeps a right model's residuals standard
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


def _autocorrelations(residuals: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelations ``S x lags`` of standardised residuals ``S x N``, from lag 1."""
    n = residuals.shape[1]
    length = fft.next_fast_len(n + lags, real=True)
    power = np.abs(fft.rfft(residuals, length)) ** 2
    return fft.irfft(power, length)[:, 1 : lags + 1] / n


def _frequencies(x: np.ndarray) -> np.ndarray:
    """Frequencies of times ``N``, from one cycle per span to below half a cycle per median step."""
    times = np.unique(x)
    resolution = (times.size - 1) / (times.size * np.ptp(times))
    highest = 0.5 / np.median(np.diff(times))
    # the small number excludes the Nyquist frequency of even times despite rounding
    count = min(_OVERSAMPLING * x.size, int(_OVERSAMPLING * highest / resolution + 1e-9))
    return np.arange(_OVERSAMPLING, max(count, _OVERSAMPLING + 1)) * resolution / _OVERSAMPLING


def _powers(x: np.ndarray, residuals: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Periodogram ``S x F`` of residuals ``S x N`` at times ``N``."""
    parts = []
    for part in np.array_split(frequencies, 1 + x.size * frequencies.size // _CHUNK):
        angle = 2 * np.pi * np.outer(x - x.mean(), part)
        squares = (residuals @ np.cos(angle)) ** 2 + (residuals @ np.sin(angle)) ** 2
        parts.append(squares / x.size)
    return np.concatenate(parts, axis=1)


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
    statistic = deviation(residuals)
    p_value = _p_value(statistic, deviation(fresh))
    observed = residuals.mean(0)
    return Check(p_value, float(statistic.mean()), center, observed, lower, upper)
