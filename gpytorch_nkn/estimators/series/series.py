"""A series in the order of time, as candidates see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.initialization import candidate_periods

__all__ = ["Series"]

_STEPS = 4  # per unit of time, without a season
# Hyperparameters are learned from the last rows: at least so many, more where these hold few of
# the longest season.
_ROWS, _MAX_ROWS, _LONGEST_SEASONS = 600, 1500, 2.5
_SEARCHED = 2000  # last rows in which periods are looked for, at quadratic cost
_SHORTEST, _LONGEST = 3.0, 1 / 2.5  # periods, in steps and in spans of the series
_HARMONICS = 6


@dataclass(frozen=True)
class Series:
    """A series in the order of time.

    Attributes:
        time, values: ``N`` each.
        seasons: Known periods, shortest first, in units of time.
        horizon: Steps to forecast.
        covariates: Scaled columns ``N x C``; None for none.
        curves: Numbers, from 1 on, of the covariates of more than two values.
    """

    time: np.ndarray
    values: np.ndarray
    seasons: list[float]
    horizon: int
    covariates: np.ndarray | None = None
    curves: tuple[int, ...] = ()

    @property
    def rows(self) -> np.ndarray:
        """Time and covariates ``N x (1 + C)``."""
        if self.covariates is None:
            return self.time[:, None]
        return np.column_stack([self.time, self.covariates])

    @property
    def step(self) -> float:
        """The typical step."""
        return typical_step(self.time)

    @property
    def unit(self) -> float:
        """The unit of time of the priors: the shortest season of at least two steps."""
        long = [period for period in self.seasons if period >= 2 * self.step]
        return long[0] if long else _STEPS * self.step

    def last(self, rows: int) -> Series:
        """The same with its last rows only."""
        return self.select(slice(-rows, None))

    def select(self, rows: slice | np.ndarray) -> Series:
        """The same with some of its rows."""
        return replace(
            self,
            time=self.time[rows],
            values=self.values[rows],
            covariates=None if self.covariates is None else self.covariates[rows],
        )

    @property
    def num_trained(self) -> int:
        """Number of last rows that hyperparameters are learned from."""
        longest = self.seasons[-1] / self.step if self.seasons else 0.0
        return min(len(self.time), max(_ROWS, int(_LONGEST_SEASONS * longest)), _MAX_ROWS)

    @property
    def is_long(self) -> bool:
        """Whether hyperparameters are learned from a part of the rows."""
        return self.num_trained < len(self.time)

    @property
    def first_origin(self) -> int:
        """First row that is forecast from the rows before it: after two seasons, or a third."""
        n = len(self.time)
        seasons = int(np.ceil(2 * self.seasons[0] / self.step)) if self.seasons else 0
        return min(max(n // 3, min(seasons, n // 2), 1), n - 1)

    @property
    def num_windows(self) -> float:
        """Number of disjoint windows of the horizon after the first origin."""
        scored = self.last(self.num_trained)
        return (len(scored.time) - scored.first_origin) / self.horizon

    def cycle(self) -> tuple[float, float] | None:
        """The period that stands out beside seasons and covariates, and how often it came."""
        recent = self.last(_SEARCHED)
        time, values = recent.time, recent.values
        phases = [
            2 * np.pi * number * time / period
            for period in self.seasons
            for number in range(1, min(int(period / recent.step / 2), _HARMONICS) + 1)
        ]
        span = float(np.ptp(time))
        columns = [np.ones_like(time), (time - time[-1]) / span]
        columns += [*map(np.sin, phases), *map(np.cos, phases), *recent.rows.T[1:]]
        design = np.stack(columns, 1)
        scaled = (values - values.mean()) / np.ptp(values)
        residual = scaled - design @ np.linalg.lstsq(design, scaled, rcond=None)[0]
        if residual.std() <= 1e-9 * scaled.std():  # rounding errors alone
            return None
        for period in candidate_periods(time, residual, num_candidates=10).tolist():
            distances = [abs(1 / period - round(own / period) / own) for own in self.seasons]
            is_new = all(distance > 1.5 / span for distance in distances)
            if is_new and _SHORTEST * recent.step <= period <= _LONGEST * span:
                return period, span / period
        return None
