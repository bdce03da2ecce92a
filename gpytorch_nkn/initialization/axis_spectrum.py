"""Spectra and dominant periods of gridded values along one dimension."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.fft import rfft

__all__ = ["AxisSpectrum", "axis_spectrum"]

_PADDING = 2  # frequency bins per resolution element 1 / span
_FIRST_PEAK = 2.0  # lowest frequency of a peak in cycles per span; slower cycles are trends
_MIN_PEAK_RATIO = 0.6  # smallest height of a peak, relative to the highest
_LINES = 64  # largest number of grid lines in a periodogram of irregular coordinates


class AxisSpectrum(NamedTuple):
    """Power over frequency along one dimension.

    Attributes:
        frequencies: Cycles per unit of the coordinate, ``F``, from 0 on.
        power: Power at the frequencies, ``F``.
        span: Span of the coordinates.
        peaks: Indices of local maxima of at least two cycles per span, strongest first.
    """

    frequencies: np.ndarray
    power: np.ndarray
    span: float
    peaks: np.ndarray

    def period(self, rank: int = 0) -> float:
        """Return the period of a spectral peak, or half the span without a peak.

        Rank 0 is the longest period with at least 60 % of the highest power, because the highest
        peak is often a harmonic. Ranks 1, 2, ... are the strongest peaks in turn.
        """
        if self.peaks.size == 0:
            return self.span / 2
        if rank == 0:
            high = self.peaks[self.power[self.peaks] >= _MIN_PEAK_RATIO * self.power[self.peaks[0]]]
            peak = int(high.min())
        else:
            peak = int(self.peaks[(rank - 1) % self.peaks.size])
        # vertex of the parabola through the logarithms of three bins
        left, top, right = np.log(np.maximum(self.power[peak - 1 : peak + 2], 1e-300))
        curvature = left - 2 * top + right
        shift = 0.5 * (left - right) / curvature if curvature < 0 else 0.0
        step = self.frequencies[1] - self.frequencies[0]
        return 1 / (self.frequencies[peak] + float(np.clip(shift, -0.5, 0.5)) * step)


def axis_spectrum(
    values: np.ndarray, observed: np.ndarray, dim: int, coordinates: np.ndarray
) -> AxisSpectrum | None:
    """Return summed power spectra of a grid's lines along ``dim`` with coordinates ``n_dim``.

    Observed cells are centred, and missing cells are set to zero. Regular coordinates use a tapered
    discrete Fourier transform; others use Lomb-Scargle periodograms of the 64 lines with the most
    observed cells. The result is ``None`` for fewer than 8 distinct coordinates or constant values.
    """
    order = np.argsort(coordinates, kind="stable")
    x = coordinates[order]
    if np.unique(x).size < 8:
        return None
    centred = np.where(observed, values - values[observed].mean(), 0.0)
    if not np.abs(centred).max() > 0:
        return None
    lines = np.moveaxis(centred, dim, -1).reshape(-1, x.size)[:, order]
    is_seen = np.moveaxis(observed, dim, -1).reshape(-1, x.size)[:, order]
    span = float(x[-1] - x[0])
    steps = np.diff(x)
    if steps.max() - steps.min() <= 1e-3 * steps.mean():
        window = np.hanning(x.size + 2)[1:-1]
        transformed = rfft(lines * window, _PADDING * x.size, axis=-1)
        power = (np.abs(transformed) ** 2).sum(0)
        frequencies = np.arange(power.size) / (_PADDING * x.size * steps.mean())
    else:
        from scipy.signal import lombscargle  # takes a second to import

        best = np.argsort(-is_seen.sum(-1), kind="stable")[:_LINES]
        highest = 0.5 / np.median(steps[steps > 0])
        step = 1 / (_PADDING * span)
        frequencies = np.arange(0.0, max(highest, 8 * step), step)
        power = np.zeros(frequencies.size)
        time = (x - x.mean()) / span
        for line, mask in zip(lines[best], is_seen[best], strict=True):
            if mask.sum() > 3 and np.ptp(line[mask]) > 0:
                cycles = 2 * np.pi * span * frequencies[1:]
                power[1:] += lombscargle(time[mask], line[mask], cycles).clip(0)
    if not np.isfinite(power).all() or not power.max() > 0:
        return None
    inner = power[1:-1]
    peaks = 1 + np.flatnonzero((inner >= power[:-2]) & (inner > power[2:]))
    peaks = peaks[frequencies[peaks] * span >= _FIRST_PEAK * (1 - 1e-9)]
    peaks = peaks[np.argsort(-power[peaks], kind="stable")]
    return AxisSpectrum(frequencies, power, span, peaks)
