"""Observations of a series, read from the caller's arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gpytorch_nkn.averaging import as_bounds, candidate_transforms
from gpytorch_nkn.estimators.series.covariates import Covariates, covariate_frame
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_input import times_and_targets
from gpytorch_nkn.estimators.series.time_axis import TimeAxis
from gpytorch_nkn.estimators.table_input import check_varies, offset_and_scale, per_row

__all__ = ["Observations"]


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations in order of time, without missing targets.

    Attributes:
        axis: Conversion of times, including times of missing targets.
        target: Targets ``N``, indexed by their times.
        covariates: Columns ``N x C``, indexed by the same times.
        noise: Known noise variances ``N``, 0 if unknown.
        fresh: Times added by the last update.
    """

    axis: TimeAxis
    target: pd.Series
    covariates: pd.DataFrame
    noise: np.ndarray
    fresh: pd.Index

    @classmethod
    def read(
        cls, x: Any, y: ArrayLike | None, covariates: Any, noise_variance: Any = None
    ) -> Observations:
        """Read the arguments of :meth:`.NKNForecaster.fit`."""
        times, target = times_and_targets(x, y)
        axis = TimeAxis.of(times)
        name = x.name if y is None and isinstance(x, pd.Series) else None
        series, frame = pd.Series(target, times, name=name), covariate_frame(covariates, times)
        noise = _noise(noise_variance, series)
        return cls(axis, series, frame, noise, times[:0])._sorted()

    def updated(
        self, x: Any, y: ArrayLike | None, covariates: Any, noise_variance: Any, known: Covariates
    ) -> Observations:
        """Add new observations, which replace observations at the same times.

        Arguments are as in :meth:`.NKNForecaster.update`; ``known`` are the covariates of the fit.
        """
        times, target = times_and_targets(x, y)
        self.axis.numbers(times)  # raises if the kind of time differs
        times = self.axis.in_zone(times)
        kinds = [index.dtype for index in (self.target.index, times)]
        if kinds[0] != kinds[1] and any(isinstance(kind, pd.PeriodDtype) for kind in kinds):
            raise TypeError(f"The series was fitted over {kinds[0]}, got {kinds[1]}.")
        fresh, seen = pd.Series(target, times), ~np.isnan(target)
        frame = known.frame(covariates, times, seen)
        usual = self.noise.mean() if noise_variance is None else noise_variance
        noise, fresh = _noise(usual, fresh)[seen], fresh[seen]
        kept = ~self.target.index.isin(fresh.index)
        noise = np.concatenate([self.noise[kept], noise])
        both = pd.concat([self.target[kept], fresh]) if kept.any() else fresh
        frame = pd.concat([self.covariates[kept], frame])
        axis = self.axis.extended(times)
        name = self.target.name
        return Observations(axis, both.rename(name), frame, noise, fresh.index)._sorted()

    def _sorted(self) -> Observations:
        time = self.axis.numbers(self.target.index)
        rows = np.argsort(time, kind="stable")
        rows = rows[self.target.notna().to_numpy()[rows]]
        target, frame, noise = self.target.iloc[rows], self.covariates.iloc[rows], self.noise[rows]
        return replace(self, target=target, covariates=frame, noise=noise)

    @property
    def time(self) -> np.ndarray:
        """Times ``N`` as numbers."""
        return self.axis.numbers(self.target.index)

    def check(self, transform: str, bounds: Any) -> None:
        """Raise an error if no model can be fitted to the transformed targets."""
        time, values = self.time, self.target.to_numpy()
        if time.size < 3:
            raise ValueError(f"A series needs at least 3 points, got {time.size}.")
        if np.ptp(time) == 0:
            raise ValueError(f"All {time.size} points have the same time.")
        step = typical_step(time)
        if step < 1e-7 * time.std():
            raise ValueError(
                f"The median step between times is {step:g}, but the times cover {np.ptp(time):g}: "
                "no structure can be resolved. Fit the parts separately."
            )
        check_varies(values)
        offset_and_scale(values)  # raises if values are too large
        candidate_transforms(transform, values, as_bounds(bounds))  # raises if none is defined


def _noise(values: Any, target: pd.Series) -> np.ndarray:
    """Return known noise variances ``N`` of targets, 0 if unknown or if the target is missing."""
    if isinstance(values, pd.Series | pd.DataFrame):
        values = covariate_frame(values, target.index, "noise_variance").to_numpy()
        values = values[:, 0] if values.shape[1] == 1 else values
    if np.shape(values) == target.shape and np.asarray(values).dtype.kind in "fiu":
        values = np.where(target.isna(), 0.0, values)
    count = len(target)
    return per_row("noise_variance", 0.0 if values is None else values, count, positive=False)
