"""Times at which a series changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular

from gpytorch_nkn.initialization.periods import finite_vectors

__all__ = ["ChangePoint", "change_points"]

_MAX_POINTS = 300  # more are averaged in blocks: a scan takes N^3 time
_MAX_CANDIDATES = 60  # that are tried before the neighbours of the best one
_FEWEST = 4  # points on either side
# Variances per typical step of a walk of the level, and of one of the slope, relative to that of
# the noise; those under which seasons may change.
_LEVELS, _SLOPES = (0.0, 0.02, 0.3, 10.0), (0.001, 0.1, 10.0)
_WALKS = tuple([(level, 0.0) for level in _LEVELS] + [(0.0, slope) for slope in _SLOPES])
_OF_SEASONS = _WALKS[:3]
_HARMONICS = 3
_FLOOR = 0.1  # of the typical residual, below which its logarithm is not followed


class ChangePoint(NamedTuple):
    """A time at which a series changes.

    Attributes:
        location: Between two inputs.
        kind: What changes: ``"level"``, ``"slope"``, ``"season"`` or ``"variance"``.
        gain: By how much the log likelihood of the series rises, less what the best of all
            places gains in a series without a change; evidence of one if it is positive.
    """

    location: float
    kind: str
    gain: float


def change_points(
    x: ArrayLike, y: ArrayLike, *, num_candidates: int = 1, seasons: Sequence[float] = ()
) -> list[ChangePoint]:
    """Times at which a series changes in level, slope, season or variance, strongest first.

    For every time in between, two pieces are compared with one by generalised least squares: a
    line with seasons, plus noise and a random walk of the level or the slope, whose variance is
    that of the highest likelihood. The walk tells a shift from a series that wanders. Variances
    are compared by the logarithms of the innovations. Further
    changes are looked for in the pieces. Long series are averaged to 300 points first.

    Args:
        x: Inputs ``N``, in any order.
        y: Targets ``N``.
        num_candidates: Largest number of changes returned, with evidence or without.
        seasons: Known periods, in units of the input.

    Returns:
        Changes, none for fewer than 9 different inputs or constant targets.

    Raises:
        ValueError: ``x`` and ``y`` are not finite vectors of one length.
    """
    x, y = finite_vectors(x, y)
    times, place = np.unique(x, return_inverse=True)
    values = np.bincount(place, y) / np.bincount(place)
    if times.size > _MAX_POINTS:
        blocks = np.arange(times.size) * _MAX_POINTS // times.size
        sizes = np.bincount(blocks)
        times, values = (np.bincount(blocks, part) / sizes for part in (times, values))
    pieces = [(times, values)]
    open_changes = [_strongest(*piece, seasons) for piece in pieces]
    found: list[ChangePoint] = []
    while len(found) < num_candidates:
        gains = [-np.inf if change is None else change.gain for change in open_changes]
        best = int(np.argmax(gains))
        change = open_changes.pop(best)
        if change is None:
            break
        found.append(change)
        t, v = pieces.pop(best)
        if len(found) == num_candidates:
            break
        for side in (t < change.location, t > change.location):
            pieces.append((t[side], v[side]))
            open_changes.append(_strongest(t[side], v[side], seasons))
    return sorted(found, key=lambda change: -change.gain)


def _strongest(
    times: np.ndarray, values: np.ndarray, seasons: Sequence[float]
) -> ChangePoint | None:
    """The change with the largest gain in a piece."""
    n = times.size
    if n <= 2 * _FEWEST or not np.ptp(values) > 0:
        return None
    values = (values - values.mean()) / values.std()
    time = (times - times[0]) / np.median(np.diff(times))
    span = float(time[-1])
    waves = _waves(times, seasons)
    base = np.column_stack([np.ones(n), time / span, *waves])
    base = base[:, : max(2, n // 3)]
    places = np.arange(_FEWEST, n - _FEWEST + 1)
    tried = places[:: max(1, -(-places.size // _MAX_CANDIDATES))]
    scans = {walks: _Scan(time, values, base, *walks) for walks in _WALKS}
    best = max(scans.values(), key=lambda scan: scan.log_likelihood)
    penalty = float(np.log(n)) + 3.0
    changes = []
    for kind in ("level", "slope", "season"):
        used, columns, candidates = list(scans.values()), waves[:0], tried
        if kind == "season":
            used, columns = [scans[walks] for walks in _OF_SEASONS], waves[: n // 6]
            candidates = tried[::2]
            if not columns:
                continue

        def gains(at: np.ndarray, scan: _Scan, kind=kind, columns=columns) -> np.ndarray:
            return (
                scan.log_likelihoods(list(_regressors(kind, time, at, columns)))
                - best.log_likelihood
            )

        by_walk = np.array([gains(candidates, scan) for scan in used])
        number, rough = np.unravel_index(by_walk.argmax(), by_walk.shape)
        step = candidates[1] - candidates[0] if candidates.size > 1 else 1
        near = places[np.abs(places - candidates[rough]) < max(step, 2)]
        fine = gains(near, used[number])
        extra = max(len(columns) - 1, 0)  # of the coefficients
        changes.append((float(fine.max()) - penalty - extra, kind, int(near[fine.argmax()])))
    changes.append(_change_of_variance(best.innovations, places, penalty))
    gain, kind, place = max(changes)
    return ChangePoint(float(times[place - 1] + times[place]) / 2, kind, gain)


class _Scan:
    """Generalised least squares with walks of given variances, relative to that of the noise."""

    def __init__(
        self, time: np.ndarray, values: np.ndarray, base: np.ndarray, walk: float, trend: float
    ):
        self._n = time.size
        self._free = self._n - base.shape[1] - 1
        early, late = np.minimum.outer(time, time), np.maximum.outer(time, time)
        covariance = walk * early + trend * early**2 * (3 * late - early) / 6
        covariance[np.diag_indices(self._n)] += 1.0
        self._factor = cholesky(covariance, lower=True, check_finite=False)
        self._basis, triangle = np.linalg.qr(self._white(base))
        self.innovations = self._rest(self._white(values))
        self._sum = float(self.innovations @ self.innovations)
        # restricted likelihood, with the line and the seasons integrated out
        diagonals = np.abs(np.concatenate([np.diag(self._factor), np.diag(triangle)]))
        self._log_det = float(np.log(diagonals).sum())
        self.log_likelihood = float(self._value(np.zeros(1))[0])

    def log_likelihoods(self, regressors: list[np.ndarray]) -> np.ndarray:
        """With further regressors, one array ``N x P`` by column of each candidate ``P``."""
        blocks = np.stack([self._rest(self._white(part)) for part in regressors], -1)  # N x P x C
        moments = np.einsum("npc,n->pc", blocks, self.innovations)
        gram = np.einsum("npc,npd->pcd", blocks, blocks)
        gram += 1e-9 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(gram.shape[-1])
        gram += np.finfo(float).tiny * np.eye(gram.shape[-1])
        solved = np.linalg.solve(gram, moments[..., None])[..., 0]
        return self._value(np.einsum("pc,pc->p", moments, solved))

    def _value(self, explained: np.ndarray) -> np.ndarray:
        rest = np.maximum(self._sum - explained, 1e-12 * self._n)
        return -0.5 * self._free * np.log(rest) - self._log_det

    def _white(self, columns: np.ndarray) -> np.ndarray:
        return solve_triangular(self._factor, columns, lower=True, check_finite=False)

    def _rest(self, columns: np.ndarray) -> np.ndarray:
        return columns - self._basis @ (self._basis.T @ columns)


def _waves(times: np.ndarray, seasons: Sequence[float]) -> list[np.ndarray]:
    """Harmonics of seasons that the series holds twice."""
    step, span = float(np.median(np.diff(times))), float(np.ptp(times))
    waves = []
    for period in seasons:
        if not 2 * step < period <= span / 2:
            continue
        for number in range(1, _HARMONICS + 1):
            if number * 2 * step < period:
                phase = 2 * np.pi * number * times / period
                waves += [np.sin(phase), np.cos(phase)]
    return waves


def _regressors(
    kind: str, time: np.ndarray, places: np.ndarray, waves: Sequence[np.ndarray]
) -> Iterator[np.ndarray]:
    after = np.arange(time.size)[:, None] >= places
    if kind == "level":
        yield after.astype(float)
    elif kind == "slope":
        yield np.maximum(time[:, None] - time[places - 1], 0.0) / time[-1]
    else:
        for wave in waves:
            yield after * wave[:, None]


def _change_of_variance(
    innovations: np.ndarray, places: np.ndarray, penalty: float
) -> tuple[float, str, int]:
    """Gain, kind and place of the largest change in the size of innovations."""
    sizes = np.abs(innovations)
    # logarithms: one outlier is no change
    logs = np.log(sizes + _FLOOR * max(float(np.median(sizes)), np.finfo(float).tiny))
    n, sums = logs.size, logs.cumsum()
    ahead = sums[places - 1]
    means = (ahead / places, (sums[-1] - ahead) / (n - places))
    explained = places * means[0] ** 2 + (n - places) * means[1] ** 2 - sums[-1] ** 2 / n
    total = float(((logs - logs.mean()) ** 2).sum())
    gains = -0.5 * n * np.log(np.maximum(1 - explained / max(total, 1e-300), 1e-12))
    return float(gains.max()) - penalty, "variance", int(places[gains.argmax()])
