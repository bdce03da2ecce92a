"""Change points of a series."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular

from gpytorch_nkn.initialization.periods import finite_vectors
from gpytorch_nkn.linalg import check_counts

__all__ = ["ChangePoint", "change_points"]

_MAX_POINTS = 300  # longer series are averaged in blocks, because a scan takes N^3 time
_MAX_CANDIDATES = 60  # locations of the coarse scan; a fine scan follows near the best
_MIN_POINTS = 4  # smallest number of points on either side of a change
# Candidate variances of random walks of the level and the slope, per median step and relative to
# the noise variance, and pairs of them.
_LEVELS, _SLOPES = (0.0, 0.02, 0.3, 10.0), (0.001, 0.1, 10.0)
_WALKS = tuple([(level, 0.0) for level in _LEVELS] + [(0.0, slope) for slope in _SLOPES])
_OFFSET = 0.1  # offset of innovation sizes before the logarithm, relative to their median


class ChangePoint(NamedTuple):
    """A time at which a series changes.

    Attributes:
        location: Midpoint of two inputs.
        kind: What changes: ``"level"``, ``"slope"`` or ``"variance"``.
        gain: Increase of the log likelihood, minus the increase expected by chance at the best
            location. A positive gain is evidence of a change.
    """

    location: float
    kind: str
    gain: float


def change_points(x: ArrayLike, y: ArrayLike, *, num_candidates: int = 1) -> list[ChangePoint]:
    """Find changes of a series in level, slope or variance, strongest first.

    At each candidate location, generalised least squares compares a model of one piece with a
    model of two. A piece is a line plus noise and a random walk of the level or slope. The random
    walk, with maximum likelihood variance, prevents slow drift from looking like a shift. Changes
    of variance are shifts in the log size of innovations. The search continues within the pieces.
    Series longer than 300 points are first averaged in blocks. Remove seasons before the call.

    Args:
        x: Inputs ``N``, in any order.
        y: Targets ``N``.
        num_candidates: Largest number of changes to return, including those without evidence.

    Returns:
        Changes; an empty list for fewer than 9 distinct inputs or constant targets.

    Raises:
        TypeError: ``num_candidates`` is not an integer.
        ValueError: ``x`` and ``y`` are not finite vectors of one length, or ``num_candidates`` is
            below 1.
    """
    x, y = finite_vectors(x, y)
    check_counts(1, num_candidates=num_candidates)
    times, index = np.unique(x, return_inverse=True)
    values = np.bincount(index, y) / np.bincount(index)
    if times.size > _MAX_POINTS:
        blocks = np.arange(times.size) * _MAX_POINTS // times.size
        sizes = np.bincount(blocks)
        times, values = (np.bincount(blocks, array) / sizes for array in (times, values))
    pieces = [(times, values)]
    open_changes = [_strongest(*piece) for piece in pieces]
    changes: list[ChangePoint] = []
    while len(changes) < num_candidates:
        gains = [-np.inf if change is None else change.gain for change in open_changes]
        best = int(np.argmax(gains))
        change = open_changes.pop(best)
        if change is None:
            break
        changes.append(change)
        t, v = pieces.pop(best)
        if len(changes) == num_candidates:
            break
        for side in (t < change.location, t > change.location):
            pieces.append((t[side], v[side]))
            open_changes.append(_strongest(t[side], v[side]))
    return sorted(changes, key=lambda change: -change.gain)


def _strongest(times: np.ndarray, values: np.ndarray) -> ChangePoint | None:
    """Return the change with the largest gain in a piece."""
    n = times.size
    if n <= 2 * _MIN_POINTS or not np.ptp(values) > 0:
        return None
    values = (values - values.mean()) / values.std()
    time = (times - times[0]) / np.median(np.diff(times))
    span = float(time[-1])
    base = np.column_stack([np.ones(n), time / span])
    locations = np.arange(_MIN_POINTS, n - _MIN_POINTS + 1)
    coarse = locations[:: max(1, -(-locations.size // _MAX_CANDIDATES))]
    scans = []
    for walks in _WALKS:
        with suppress(np.linalg.LinAlgError):  # the walk is too large at long gaps
            scans.append(_Scan(time, values, base, *walks))
    best = max(scans, key=lambda scan: scan.log_likelihood)
    penalty = float(np.log(n)) + 3.0  # largest gain by chance over n locations
    changes = []
    for kind in ("level", "slope"):

        def gains(at: np.ndarray, scan: _Scan, kind=kind) -> np.ndarray:
            return scan.log_likelihoods(_regressors(kind, time, at)) - best.log_likelihood

        by_walk = np.array([gains(coarse, scan) for scan in scans])
        number, rough = np.unravel_index(by_walk.argmax(), by_walk.shape)
        step = coarse[1] - coarse[0] if coarse.size > 1 else 1
        near = locations[np.abs(locations - coarse[rough]) < max(step, 2)]
        fine = gains(near, scans[number])
        changes.append((float(fine.max()) - penalty, kind, int(near[fine.argmax()])))
    changes.append(_change_of_variance(best.innovations, locations, penalty))
    gain, kind, index = max(changes)
    return ChangePoint(float(times[index - 1] + times[index]) / 2, kind, gain)


class _Scan:
    """Generalised least squares for given variances of random walks, relative to the noise."""

    def __init__(
        self, time: np.ndarray, values: np.ndarray, base: np.ndarray, level: float, slope: float
    ):
        self._n = time.size
        self._free = self._n - base.shape[1] - 1
        early, late = np.minimum.outer(time, time), np.maximum.outer(time, time)
        covariance = level * early + slope * early**2 * (3 * late - early) / 6
        covariance[np.diag_indices(self._n)] += 1.0
        self._factor = cholesky(covariance, lower=True, check_finite=False)
        self._basis, triangle = np.linalg.qr(self._whiten(base))
        self.innovations = self._residual(self._whiten(values))
        self._sum = float(self.innovations @ self.innovations)
        # restricted likelihood, with the line integrated out
        diagonals = np.abs(np.concatenate([np.diag(self._factor), np.diag(triangle)]))
        self._log_det = float(np.log(diagonals).sum())
        self.log_likelihood = float(self._value(np.zeros(1))[0])

    def log_likelihoods(self, regressors: np.ndarray) -> np.ndarray:
        """Return log likelihoods ``P`` with one additional regressor each, ``N x P``."""
        columns = self._residual(self._whiten(regressors))
        squares = np.square(columns).sum(0)
        squares += 1e-9 * squares + np.finfo(float).tiny
        return self._value((self.innovations @ columns) ** 2 / squares)

    def _value(self, explained: np.ndarray) -> np.ndarray:
        residual = np.maximum(self._sum - explained, 1e-12 * self._n)
        return -0.5 * self._free * np.log(residual) - self._log_det

    def _whiten(self, columns: np.ndarray) -> np.ndarray:
        return solve_triangular(self._factor, columns, lower=True, check_finite=False)

    def _residual(self, columns: np.ndarray) -> np.ndarray:
        return columns - self._basis @ (self._basis.T @ columns)


def _regressors(kind: str, time: np.ndarray, locations: np.ndarray) -> np.ndarray:
    """Return a step or a change of slope, ``N x P``, at each location."""
    if kind == "level":
        return (np.arange(time.size)[:, None] >= locations).astype(float)
    return np.maximum(time[:, None] - time[locations - 1], 0.0) / time[-1]


def _change_of_variance(
    innovations: np.ndarray, locations: np.ndarray, penalty: float
) -> tuple[float, str, int]:
    """Return gain, kind and location of the largest change in the size of innovations."""
    sizes = np.abs(innovations)
    # logarithms reduce the effect of single outliers
    logs = np.log(sizes + _OFFSET * max(float(np.median(sizes)), np.finfo(float).tiny))
    n, sums = logs.size, logs.cumsum()
    ahead = sums[locations - 1]
    means = (ahead / locations, (sums[-1] - ahead) / (n - locations))
    explained = locations * means[0] ** 2 + (n - locations) * means[1] ** 2 - sums[-1] ** 2 / n
    total = float(((logs - logs.mean()) ** 2).sum())
    gains = -0.5 * n * np.log(np.maximum(1 - explained / max(total, 1e-300), 1e-12))
    return float(gains.max()) - penalty, "variance", int(locations[gains.argmax()])
