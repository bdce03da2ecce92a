"""A series in order of time, in the form that candidates use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.initialization import periodogram_peaks

__all__ = ["Series", "view"]

_STEPS_PER_UNIT = 4  # steps per unit of time, without a season
# Least numbers of last rows, longest seasons and horizons that a forecast uses.
_ROWS, _SEASONS, _HORIZONS = 600, 4, 24
_MAX_STUCK_CHANGE = 1e-3  # largest change between equal values, in standard deviations
_MAX_UNITS = 4.0  # longest horizon with the default priors, in units of time
_THINNING = 1.5  # power of the position of a stratum that gives its distance from the dense rows
_LEARNED = 900  # largest number of rows for the hyperparameters
_PERIOD_ROWS = 2000  # number of last rows in which periods are searched, at quadratic cost
_MIN_PERIOD, _MAX_PERIOD = 3.0, 1 / 2.5  # shortest in steps, longest in lengths of the series
_MAX_HARMONICS = 6  # largest number of harmonics of a season


@dataclass(frozen=True)
class Series:
    """A series in order of time.

    Attributes:
        time, values, noise: Times, targets and known noise variances (or ``None``), ``N`` each.
        seasons, horizon: Known periods in units of time, shortest first; steps to forecast.
        covariates: Scaled columns ``N x C``; ``None`` without covariates.
        curves: Columns of ``rows`` with covariates of more than two values.
        shifts, kinks: Times at which the level or the slope may have changed.
    """

    time: np.ndarray
    values: np.ndarray
    seasons: list[float]
    horizon: int
    covariates: np.ndarray | None = None
    curves: tuple[int, ...] = ()
    shifts: tuple[float, ...] = ()
    kinks: tuple[float, ...] = ()
    noise: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """Time and covariates ``N x (1 + C)``."""
        if self.covariates is None:
            return self.time[:, None]
        return np.column_stack([self.time, self.covariates])

    @property
    def step(self) -> float:
        """Median step between distinct times."""
        return typical_step(self.time)

    @property
    def steps(self) -> np.ndarray:
        """Indices ``N`` of the times among the distinct times."""
        return np.unique(self.time, return_inverse=True)[1]

    @property
    def span(self) -> float:
        """Median duration of the horizon."""
        times = np.unique(self.time)
        size = min(self.horizon, len(times) - 1)
        return float(np.median(times[size:] - times[:-size])) * self.horizon / size

    @property
    def unit(self) -> float:
        """Unit of time of the priors: the shortest season of at least two steps, or four steps."""
        long = [period for period in self.seasons if period >= 2 * self.step]
        return long[0] if long else _STEPS_PER_UNIT * self.step

    @property
    def time_scale(self) -> float:
        """Time scale of the priors of levels, trends and lines, in units of :attr:`unit`."""
        return max(1.0, self.horizon * self.step / self.unit / _MAX_UNITS)

    def last(self, rows: int) -> Series:
        """Return the last rows of the series."""
        return self.select(slice(-rows, None))

    def select(self, rows: slice | np.ndarray) -> Series:
        """Return some rows of the series."""
        return replace(
            self,
            time=self.time[rows],
            values=self.values[rows],
            covariates=None if self.covariates is None else self.covariates[rows],
            noise=None if self.noise is None else self.noise[rows],
        )

    @property
    def reach(self) -> int:
        """Number of last rows from which forecasts use a subset.

        At most half of these rows repeat the last value, as with a stuck sensor.
        """
        longest = self.seasons[-1] / self.step if self.seasons else 0.0
        repeats = len(self.time) / len(np.unique(self.time))
        steps = max(_SEASONS * longest, _HORIZONS * self.horizon)
        differ = np.abs(self.values - self.values[-1]) > _MAX_STUCK_CHANGE * self.values.std()
        return max(_ROWS, int(steps * repeats), 2 * int(differ[::-1].argmax()))

    @property
    def learned(self) -> np.ndarray:
        """Indices of the rows for the hyperparameters."""
        return view(len(self.time), self.reach, _LEARNED)

    @property
    def is_long(self) -> bool:
        """Whether hyperparameters are learned from a subset of the rows."""
        return len(self.time) > min(self.reach, _LEARNED)

    @property
    def first_origin(self) -> int:
        """First row of rolling forecasts.

        It comes after a third of the steps, or after two seasons if longer, but at most after half.
        """
        steps = self.steps
        n = int(steps[-1]) + 1
        seasons = int(np.ceil(2 * self.seasons[0] / self.step)) if self.seasons else 0
        return int(np.searchsorted(steps, min(max(n // 3, min(seasons, n // 2), 1), n - 1)))

    @property
    def max_horizon(self) -> int:
        """Number of steps after the first origin."""
        steps = self.steps
        return int(steps[-1] + 1 - steps[self.first_origin])

    @property
    def num_windows(self) -> float:
        """Number of disjoint horizons after the first origin."""
        return self.last(self.reach).max_horizon / self.horizon

    def cycle(self) -> tuple[float, float] | None:
        """Return the strongest period not due to seasons or covariates, and its count of cycles."""
        recent = self.last(_PERIOD_ROWS)
        time, values = recent.time, recent.values
        phases = [
            2 * np.pi * number * time / period
            for period in self.seasons
            for number in range(1, min(int(period / recent.step / 2), _MAX_HARMONICS) + 1)
        ]
        if np.ptp(values) == 0:
            return None
        span = float(np.ptp(time))
        columns = [np.ones_like(time), (time - time[-1]) / span]
        columns += [*map(np.sin, phases), *map(np.cos, phases), *recent.rows.T[1:]]
        design = np.stack(columns, 1)
        scaled = (values - values.mean()) / np.ptp(values)
        residual = scaled - design @ np.linalg.lstsq(design, scaled, rcond=None)[0]
        if residual.std() <= 1e-9 * scaled.std():  # only rounding errors
            return None
        for period in periodogram_peaks(time, residual, num_candidates=10)[0].tolist():
            distances = [abs(1 / period - round(s / period) / s) for s in self.seasons]
            is_new = all(distance > 1.5 / span for distance in distances)
            if is_new and _MIN_PERIOD * recent.step <= period <= _MAX_PERIOD * span:
                return period, span / period
        return None


def view(stop: int, reach: int, count: int) -> np.ndarray:
    """Return indices of at most ``count`` of the ``reach`` rows before row ``stop``.

    Half of them are the last rows. The others are one row from each of several strata, whose width
    grows with the distance, at positions that cover every phase of a season. A Gaussian process is
    consistent under marginalisation, so conditioning on a subset needs no correction.
    """
    first = max(stop - reach, 0)
    if stop - first <= count:
        return np.arange(first, stop)
    dense = count // 2
    edges = (stop - first - dense) * np.linspace(0, 1, count - dense + 1) ** _THINNING
    inside = np.arange(count - dense) * (np.sqrt(5) - 1) / 2 % 1
    lags = np.unique((edges[:-1] + inside * np.diff(edges)).astype(int))
    return np.concatenate([stop - dense - 1 - lags[::-1], np.arange(stop - dense, stop)])
