"""Dominant periods of a series."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gpytorch_nkn.linalg import check_counts

__all__ = ["finite_vectors", "periodogram_peaks"]

_OVERSAMPLING = 10  # number of frequencies per resolution element 1 / span
_MAX_FREQUENCIES = 10_000
_FREQUENCIES = 500  # number of frequencies per call; each needs N floats of memory
_MAX_POINTS = 3_000  # largest number of points, because the smoother needs N^2 memory
_BANDWIDTH = 1 / 16  # bandwidth of the local linear trend, relative to the span


def periodogram_peaks(
    x: ArrayLike, y: ArrayLike, *, num_candidates: int = 6, trend: str = "cubic"
) -> tuple[np.ndarray, np.ndarray]:
    """Find the highest peaks of the Lomb-Scargle periodogram of a detrended series.

    Periods range from twice the median step between inputs to two thirds of the span. Sampling may
    be irregular and inputs may repeat. The result is deterministic.

    Args:
        x: Inputs ``N``, in any order.
        y: Targets ``N``.
        num_candidates: Largest number of peaks.
        trend: Trend to remove: ``"cubic"`` for a cubic polynomial, which keeps slow cycles.
            ``"smooth"`` for a local linear trend over a sixteenth of the span, which reveals weaker
            seasons.

    Returns:
        At most ``num_candidates`` periods in units of the input, strongest first, and the fractions
        of the detrended variance that sinusoids explain. Both are empty for fewer than 8 distinct
        inputs or without variation around the trend.

    Raises:
        ValueError: ``x`` and ``y`` are not finite vectors of one length, or ``trend`` is unknown.
    """
    x, y = finite_vectors(x, y)
    check_counts(1, num_candidates=num_candidates)
    if trend not in ("cubic", "smooth"):
        raise ValueError(f"trend must be 'cubic' or 'smooth', got {trend!r}.")
    if x.size > _MAX_POINTS:  # use a contiguous part, which resolves short periods
        latest = np.argsort(x, kind="stable")[-_MAX_POINTS:]
        x, y = x[latest], y[latest]
    nothing = np.empty(0), np.empty(0)
    different = np.unique(x)
    if different.size < 8:
        return nothing
    span = different[-1] - different[0]
    time = (x - different.mean()) / span
    cubic = trend == "cubic"
    fit = np.polynomial.Polynomial.fit(time, y, 3)(time) if cubic else _smooth_trend(time, y)
    residual = y - fit
    residual = residual - residual.mean()
    rounding = 100 * np.finfo(float).eps * np.abs(y).max()
    if residual.std() <= max(1e-9 * y.std(), rounding):
        return nothing
    highest = 0.5 * span / np.median(np.diff(different))  # cycles per span
    step = max(1 / _OVERSAMPLING, highest / _MAX_FREQUENCIES)
    frequencies = np.arange(1.5, max(highest, 3.0) + step, step)
    parts = np.array_split(2 * np.pi * frequencies, -(-frequencies.size // _FREQUENCIES))
    from scipy.signal import lombscargle  # takes a second to import

    powers = [lombscargle(time, residual, part, normalize=True) for part in parts]
    share = np.nan_to_num(np.concatenate(powers)).clip(0)
    inner = share[1:-1]
    peaks = 1 + np.flatnonzero((inner >= share[:-2]) & (inner > share[2:]))
    peaks = peaks[np.argsort(share[peaks])[::-1]][:num_candidates]
    return span / frequencies[peaks], share[peaks]


def finite_vectors(x: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Convert both to arrays; raise a ValueError unless they are finite and of equal length."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 1 or x.shape != y.shape or not np.isfinite(x).all() or not np.isfinite(y).all():
        raise ValueError(
            f"x and y must be finite vectors of one length, got shapes {x.shape} and {y.shape}."
        )
    return x, y


@np.errstate(under="ignore")  # tiny kernel values round to zero
def _smooth_trend(time: np.ndarray, y: np.ndarray) -> np.ndarray:
    difference = time[None, :] - time[:, None]
    kernel = np.exp(-0.5 * (difference / _BANDWIDTH) ** 2)
    first, second = (kernel * difference).sum(1), (kernel * difference**2).sum(1)
    weights = kernel * (second[:, None] - difference * first[:, None])
    return (weights @ y) / weights.sum(1)
