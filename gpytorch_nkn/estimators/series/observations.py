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
from gpytorch_nkn.estimators.table_input import check_varies, offset_and_scale

__all__ = ["Observations"]


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations in order of time, without missing targets.

    Attributes:
        axis: Conversion of times, including times of missing targets.
        target: Targets ``N`` over their times.
        covariates: Columns ``N x C`` over the same times.
        fresh: Times added by the last update.
    """

    axis: TimeAxis
    target: pd.Series
    covariates: pd.DataFrame
    fresh: pd.Index

    @classmethod
    def read(cls, x: Any, y: ArrayLike | None, covariates: Any) -> Observations:
        """Read the arguments of :meth:`.NKNForecaster.fit`."""
        times, target = times_and_targets(x, y)
        axis = TimeAxis.of(times)
        name = x.name if y is None and isinstance(x, pd.Series) else None
        series, frame = pd.Series(target, times, name=name), covariate_frame(covariates, times)
        return cls(axis, series, frame, times[:0])._sorted()

    def updated(
        self, x: Any, y: ArrayLike | None, covariates: Any, known: Covariates
    ) -> Observations:
        """Add new observations, which replace observations at the same times.

        Args:
            x, y, covariates: As in :meth:`.NKNForecaster.update`.
            known: The covariates of the fit.
        """
        times, target = times_and_targets(x, y)
        self.axis.numbers(times)  # raises an error for another kind of time
        kinds = [index.dtype for index in (self.target.index, times)]
        if kinds[0] != kinds[1] and any(isinstance(kind, pd.PeriodDtype) for kind in kinds):
            raise TypeError(f"The series was fitted over {kinds[0]}, got {kinds[1]}.")
        fresh, frame = pd.Series(target, times).dropna(), known.frame(covariates, times)
        kept = ~self.target.index.isin(fresh.index)
        both = pd.concat([self.target[kept], fresh]) if kept.any() else fresh
        frame = pd.concat([self.covariates[kept], frame[~np.isnan(target)]])
        axis = replace(self.axis, index=self.axis.index.append(times))
        return Observations(axis, both.rename(self.target.name), frame, fresh.index)._sorted()

    def _sorted(self) -> Observations:
        time = self.axis.numbers(self.target.index)
        rows = np.argsort(time, kind="stable")
        rows = rows[self.target.notna().to_numpy()[rows]]
        return replace(self, target=self.target.iloc[rows], covariates=self.covariates.iloc[rows])

    @property
    def time(self) -> np.ndarray:
        """Times ``N`` as numbers."""
        return self.axis.numbers(self.target.index)

    def check(self, transform: str, bounds: Any) -> None:
        """Raise an error if no model can be fitted to the targets under a transform."""
        time, values = self.time, self.target.to_numpy()
        if time.size < 3:
            raise ValueError(f"A series needs at least 3 points, got {time.size}.")
        if np.ptp(time) == 0:
            raise ValueError(f"All {time.size} points have the same time.")
        step = typical_step(time)
        if step < 1e-7 * time.std():
            raise ValueError(
                f"Half of the steps between times are at most {step:g}, but the times cover "
                f"{np.ptp(time):g}: no structure can be resolved. Fit the parts separately."
            )
        check_varies(values)
        offset_and_scale(values)  # raises an error for values that are too large
        candidate_transforms(transform, values, as_bounds(bounds))  # raises an error for no value
