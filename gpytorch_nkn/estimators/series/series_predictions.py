"""Forecasts of a fitted series: medians, intervals, samples, plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn._optional import needs
from gpytorch_nkn.averaging import MixturePredictions, PredictiveMixture
from gpytorch_nkn.estimators.series.covariates import Covariates
from gpytorch_nkn.estimators.series.member import Member
from gpytorch_nkn.estimators.series.seasons import typical_step
from gpytorch_nkn.estimators.series.series_input import as_times, forecast_columns, local
from gpytorch_nkn.estimators.series.time_axis import TimeAxis
from gpytorch_nkn.fit import check_counts, check_flags, warn_user
from gpytorch_nkn.plotting import plot_forecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SeriesPredictions"]

_ROUNDING = 1e-3  # largest rounding error of a time, in steps
_SHOWN = 4, 20  # history in a plot, in lengths of the forecast: default, and limit of two seasons


class SeriesPredictions(MixturePredictions, OnCPU):
    """Predictions from the fitted attributes of :class:`NKNForecaster`."""

    bounds: Sequence[float | None] | None
    horizon: int | None
    random_state: int | np.random.RandomState | None
    members_: list[Member]
    seasons_: list[float]
    horizon_: int
    observed_: pd.Series
    outliers_: pd.Index
    covariates_: Covariates
    time_axis_: TimeAxis
    x_offset_: float
    x_scale_: float
    _scored: tuple[int, float, int]  # steps and windows of rolling forecasts, possible steps
    _warns = True  # whether a forecast beyond these steps gives a warning

    @overload
    def predict(
        self, x: ArrayLike, return_std: Literal[False] = ..., *, covariates: ArrayLike | None = ...
    ) -> np.ndarray: ...

    @overload
    def predict(
        self, x: ArrayLike, return_std: Literal[True], *, covariates: ArrayLike | None = ...
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def predict(
        self, x: ArrayLike, return_std: bool, *, covariates: ArrayLike | None = ...
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...

    def predict(
        self, x: ArrayLike, return_std: bool = False, *, covariates: ArrayLike | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict medians ``M`` in units of the targets and, on request, standard deviations.

        The median minimises the absolute error. Unlike the mean, it is robust to wide log-normal
        components of the mixture.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.
            return_std: Also return the standard deviation, noise included; infinite if the variance
                of a log-normal component overflows.
            covariates: Covariates ``M x C`` at these times, if :meth:`fit` had covariates.

        Raises:
            TypeError: Times are of another kind than in the fit.
            ValueError: A time or covariate is missing, or the covariates have other columns.
        """
        check_flags(return_std=return_std)
        mixture = self.predict_distribution(x, covariates=covariates)
        median = mixture.quantile(0.5)
        return (median, mixture.std()) if return_std else median

    def predict_distribution(  # type: ignore[override]
        self, x: ArrayLike, /, *, covariates: ArrayLike | None = None
    ) -> PredictiveMixture:
        """Predict the mixture distributions of new observations, in units of the targets.

        The result has ``quantile(p)`` and ``std()``, each ``M``, and ``log_density(y)`` of ``M``
        values.

        Args:
            x, covariates: As in :meth:`predict`.
        """
        rows = self._rows(x, covariates)
        self._warn_of_long(as_times(x))
        mixture = self._mixture_at(rows)
        lower, seen = self.members_[0].scales.transform.lower, self.observed_
        is_falling = seen.iloc[-1] == seen.min() and (seen == lower).sum() < 2
        if self.bounds is None and is_falling and (mixture.quantile(0.5) <= lower).any():
            warn_user(
                f"Forecasts stop at {lower:g}, because no target is negative; if later targets may "
                "be negative, set transform='identity'."
            )
        return mixture

    def forecast(
        self,
        horizon: int | None = None,
        *,
        level: float | Sequence[float] | None = (80, 95),
        covariates: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Forecast the series at the times after its end.

        Args:
            horizon: Steps ahead; ``None`` for ``horizon_``. Times continue with the frequency of a
                pandas index, or the rule of the dates: the 30th, last business days, third Fridays,
                opening hours. Otherwise they are one median step apart.
            level: Coverage of the central intervals in per cent; ``None`` for no interval.
            covariates: Covariates ``horizon x C`` at the times that follow, if :meth:`fit` had
                covariates. Rows of a data frame with dates as index are selected by date.

        Returns:
            Data frame of ``horizon`` rows with columns ``median``, ``lo-80``, ``hi-80``, ... in
            units of the targets. (:func:`forecast_many` calls them ``NKN``, ``NKN-lo-80``, ..., as
            Nixtla's tools do.)
        """
        check_is_fitted(self, "members_")
        return self._table(self._next(horizon), level, covariates)

    def sample_paths(
        self,
        num_paths: int = 100,
        *,
        horizon: int | None = None,
        x: ArrayLike | None = None,
        covariates: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw a data frame ``M x S`` of joint samples, for sums, maxima and waiting times.

        Each column is a path in units of the targets.

        Args:
            num_paths: Number of paths ``S``.
            horizon, x: Steps ahead, as in :meth:`forecast`, or times ``M``.
            covariates: Covariates at these times, as in :meth:`predict`.
            random_state: Seed of the draws; ``None`` for the seed of the estimator.
        """
        check_is_fitted(self, "members_")
        check_counts(1, num_paths=num_paths)
        if x is not None and horizon is not None:
            raise ValueError("At most one of x and horizon can be set, got both: give one of them.")
        times = self._next(horizon) if x is None else as_times(x)
        seed = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(seed).randint(2**31 - 1))
        rows = self._rows(times, covariates)
        self._warn_of_long(times)
        mixture = self._mixture_at(rows)

        def scores(number: int, count: int) -> np.ndarray:
            return self.members_[number].scores(rows, count, rng)

        return pd.DataFrame(mixture.sample(num_paths, rng, scores).T, times)

    def plot(
        self,
        horizon: int | None = None,
        *,
        level: float | Sequence[float] | None = (80, 95),
        held_out: pd.Series | None = None,
        history: int | None = None,
        covariates: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot the end of the series, without excluded outliers, and its forecast.

        Args:
            horizon, level, covariates: As in :meth:`forecast`.
            held_out: Later observations, indexed by time; without ``horizon``, the forecast is at
                these times.
            history: Number of observations shown. ``None`` shows four times the length of the
                forecast, or two seasons if a season is at most ten times as long as the forecast.
            ax: Axes to draw on; ``None`` for a new figure of pyplot.
        """
        check_is_fitted(self, "members_")
        ends = list(forecast_columns(level))[1:]
        if not ends:
            raise ValueError("level must have at least one number for a plot, got none.")
        test = None
        if held_out is not None:
            later = self.time_axis_.in_zone(as_times(held_out.index))
            test = later, held_out.to_numpy()
        index = self._next(horizon) if test is None or horizon is not None else later
        table = self._table(index, level, covariates)
        if history is None:
            step = typical_step(self._time(self.observed_.index))
            seasons = [round(2 * period / step) for period in self.seasons_]
            most = _SHOWN[1] * len(table)
            history = max(_SHOWN[0] * len(table), 30, *(n for n in seasons if n <= most))
        check_counts(1, history=history)
        if ax is None:
            with needs("The plot of a forecast"):
                from matplotlib import pyplot
            _, ax = pyplot.subplots(figsize=(9, 4.5), layout="constrained")

        def drawn(times: pd.Index) -> np.ndarray:
            days = isinstance(times, pd.TimedeltaIndex)
            return self._time(times) if days else local(times).to_numpy()

        shown, limits = self.observed_.iloc[-history:], table[ends].to_numpy().T
        shown = shown[~shown.index.isin(self.outliers_)]
        return plot_forecast(
            ax,
            drawn(index),
            table["median"].to_numpy(),
            limits[::2],
            limits[1::2],
            train=(drawn(shown.index), shown.to_numpy()),
            test=None if test is None else (drawn(test[0]), test[1]),
            level=[float(name[3:]) / 100 for name in ends[::2]],
            y_label="value" if shown.name is None else str(shown.name),
        )

    def standardised_time(self, x: ArrayLike) -> np.ndarray:
        """Convert times ``M`` or ``M x 1`` to inputs of ``model_``.

        Raises:
            TypeError: ``x`` holds dates and the fit was over numbers, or the reverse.
        """
        return (self._time(x) - self.x_offset_) / self.x_scale_

    def standardised_rows(self, x: ArrayLike, covariates: ArrayLike | None = None) -> np.ndarray:
        """Convert times ``M`` and covariates, as in :meth:`predict`, to inputs ``M x (1 + C)``."""
        rows = self._rows(x, covariates)
        rows[:, 0] = (rows[:, 0] - self.x_offset_) / self.x_scale_
        return rows

    def original_time(self, scaled: ArrayLike) -> np.ndarray:
        """Convert inputs ``M`` of ``model_`` to times: dates if the fit was over dates."""
        check_is_fitted(self, "members_")
        scaled = np.asarray(scaled)
        if scaled.dtype.kind not in "fiu" or not np.isfinite(scaled).all():
            raise ValueError(f"scaled must hold finite numbers, got {scaled}.")
        return self.time_axis_.times(self.x_offset_ + self.x_scale_ * scaled)

    def _time(self, x: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "members_")
        return self.time_axis_.numbers(x)

    def _next(self, horizon: int | None) -> pd.Index:
        """Return the times of a forecast."""
        horizon = self.horizon_ if horizon is None else horizon
        check_counts(1, horizon=horizon)
        return self.time_axis_.next(horizon)

    def _table(
        self, times: pd.Index, level: float | Sequence[float] | None, covariates: ArrayLike | None
    ) -> pd.DataFrame:
        """Return medians and intervals in a data frame indexed by times ``M``."""
        columns = forecast_columns(level)
        quantiles = self.predict_quantiles(times, list(columns.values()), covariates=covariates)
        return pd.DataFrame(quantiles, times, list(columns))

    def _rows(self, x: ArrayLike, covariates: ArrayLike | None) -> np.ndarray:
        """Return time and scaled covariates ``M x (1 + C)``."""
        time = self._time(x)
        frame = self.covariates_.frame(covariates, as_times(x))
        return np.column_stack([time, self.covariates_.scaled(frame)])

    def _warn_of_long(self, times: pd.Index) -> None:
        if self._warns and (notice := self._notice(times)):
            warn_user(notice)

    def _notice(self, times: pd.Index) -> str:
        """Return a notice if times ``M`` are beyond the steps of the rolling forecasts, or ""."""
        (scored, windows, longest), axis = self._scored, self.time_axis_
        past, new = np.unique(self._time(self.observed_.index)), self._time(times)
        ahead, step = np.unique(new[new > past[-1]]) - past[-1], typical_step(past)
        if not ahead.size or ahead[-1] <= (scored + _ROUNDING) * step:
            return ""
        last, end = axis.next(scored)[-1:], times[[new.argmax()]]
        excess = ahead[-1] + past[-1] - self._time(last)[0]
        # As many irregular times may take longer than in the past, and longer than regular ones.
        irregular = 2 * (float((past[scored:] - past[:-scored]).max()) - scored * step)
        if excess <= _ROUNDING * step or (ahead.size <= scored and excess <= irregular):
            return ""
        wanted = ahead.size if ahead.size > scored else scored + int(np.ceil(excess / step))
        advice = "the series is too short to score all steps."
        if longest > scored:
            aim = "all steps" if wanted <= longest else "as many steps as possible"
            advice = f"set NKNForecaster(horizon={min(wanted, longest)}) to score {aim}."
        count = max(int(windows), 1)
        return (
            f"The forecast goes to {end.astype(str)[0]}, but candidates were scored and intervals "
            f"calibrated up to step {scored} ({last.astype(str)[0]}), in {count} "
            f"window{'s' if count > 1 else ''} of {scored} step{'s' if scored > 1 else ''}: "
            f"{advice}"
        )

    def _mixture_at(self, rows: np.ndarray) -> PredictiveMixture:
        """Predict at rows ``M x (1 + C)``."""
        means, stds = zip(*(member.moments(rows) for member in self.members_), strict=True)
        return PredictiveMixture(
            weights=np.array([member.weight for member in self.members_]),
            means=np.stack(means),
            stds=np.stack(stds),
            transforms=tuple(member.scales.transform for member in self.members_),
        )
