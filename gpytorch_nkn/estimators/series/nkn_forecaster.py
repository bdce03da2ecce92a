"""Forecasts of one-dimensional series by Gaussian processes of learned structure."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
import torch
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.averaging import (
    TRANSFORMS,
    MixturePredictions,
    PredictiveMixture,
    Transform,
    as_bounds,
    candidate_transforms,
)
from gpytorch_nkn.estimators.series.candidates import QUALITIES, Options
from gpytorch_nkn.estimators.series.covariates import Covariates, covariate_frame
from gpytorch_nkn.estimators.series.member import Member
from gpytorch_nkn.estimators.series.search import search
from gpytorch_nkn.estimators.series.seasons import check_seasons, find_seasons, typical_step
from gpytorch_nkn.estimators.series.series import Series
from gpytorch_nkn.estimators.series.series_input import (
    as_times,
    forecast_columns,
    observations,
    starts,
)
from gpytorch_nkn.estimators.series.time_axis import TimeAxis
from gpytorch_nkn.estimators.table_input import offset_and_scale, refuse_constant
from gpytorch_nkn.fit import (
    FitResult,
    Recipe,
    Session,
    check_counts,
    check_number,
    warn_user,
)
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting import plot_forecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NKNForecaster"]

_STEPS_AHEAD = 6  # that are judged, without a season and a horizon
_SHOWN = 4, 20  # forecasts of history in a plot, and of two of a season at most
_BEYOND = 2  # times the steps that were scored: a longer forecast gets a warning
_OUTLIERS = ("auto", "keep")
# Options of the search for candidates.
_OPTIONS = tuple(field.name for field in fields(Options) if field.name not in ("seed", "begin"))


class NKNForecaster(MixturePredictions, OnCPU, RegressorMixin, BaseEstimator):
    """Mixture of Gaussian processes of several structures, for series over time.

    Candidates are networks of kernels, each for the targets and for transforms of them. By default
    they are sums of random walks, local linear trends, lines, autocorrelated noise and seasons that
    drift or shift, with priors from everyday series
    (:meth:`~gpytorch_nkn.kernels.NeuralKernelNetwork.forecast`); one has a learned cycle. Rolling
    forecasts of the series give each its weight in the mixture, and calibrate its intervals.

    Covariates are columns whose future is known: prices, temperatures, holidays. Each has a linear
    effect, which may drift and depend on the shortest season, and a smooth one if it has more than
    two values; one more candidate does without them.

    Seasons are inferred from the time axis, or given. Time may be irregular, have gaps and repeat.
    Gaussian processes are exact. Of long series they see a part of the points, dense before an
    origin and thinned farther back: 900 points to learn hyperparameters, 500 for each rolling
    forecast over the horizon, and 4,000 to forecast. These points are among the last 24 horizons,
    or four of the longest season.

    Args:
        structure: ``"auto"`` for the candidates of ``quality``; ``"time_series"`` for the network
            of :meth:`~gpytorch_nkn.kernels.NeuralKernelNetwork.time_series` alone (the paper's),
            or any network over one input column (with covariates over time and these,
            standardised), whose start values are taken from the data.
        seasons: ``"auto"`` to infer days, weeks and years from dates, or from the number of steps
            in a unit of time. Or periods in units of time (days for dates), or durations, also as
            ``"7D"``, ``"24h"``, ``"1Y"``; an empty list for none. Periods of which the data hold
            less than two are not used.
        transform: ``"identity"`` models the targets; ``"log"`` their logarithms, for variation
            that grows with the level; ``"sqrt"``, between the two, their square roots (of counts
            plus 3/8); ``"log1p"`` logarithms of targets plus one (or the smallest positive target,
            unless they are whole numbers); ``"logit"`` log odds between ``bounds``. ``"auto"`` has
            candidates for the targets, for square roots if none is negative, for logarithms if all
            are positive, and for log odds if both bounds are given. Counts whose mean is less than
            10 have square roots and an ordered probit (``"probit"`` in ``scores_``).
        bounds: Numbers between which all targets lie, and all forecasts will (``None`` or infinite
            for no bound): ``(0, 1)`` for shares. Logarithms and roots count from the lower one.
            ``None`` for 0 and no upper bound if targets are not negative and the transform is not
            ``"identity"``. Bounds with targets on them have a probability of their own. Whole
            numbers with a lower bound are counts: quantiles and paths are whole numbers,
            densities are probabilities.
        horizon: Steps of rolling forecasts and of :meth:`forecast`; ``None`` for one season (6
            without one). Steps are different times; intervals are calibrated by the time ahead, in
            multiples of the median time that so many steps take.
        quality: ``"fast"`` for two structures, ``"default"`` for up to six.
        outliers: ``"auto"`` leaves outliers out of the training (with a warning): targets whose
            error, predicted from all other values, is more than 12 times the others' on each scale
            that is modelled; at most one in 50 (and one more). ``"keep"`` uses them.
        priors: Log-normal priors (maximum a posteriori); ``False`` for maximum likelihood.
        restarts: Starts of networks with learned wiring; ``None`` takes 20 up to 250 points and
            6 beyond. The others have one.
        recipe: Optimiser settings of a start; ``None`` for the default of each structure.
        budget: Wall time in seconds of a fit; ``None`` for no limit.
        n_jobs: Processes, over candidates.
        device: Torch device of the computation, such as ``"cuda"``; ``None`` is the CPU, whatever
            PyTorch's default device is.
        random_state: Seed, or NumPy random state; an integer makes fits reproducible.
        progress: Show progress bars on a terminal.

    Attributes:
        members_: The processes that forecast, of the highest weight first, each with ``name``,
            ``transform``, ``model``, ``weight``, ``log_density`` and ``result``.
        scores_: All candidates, as a data frame: structure, transform, mean log density of
            rolling forecasts (per target, natural logarithm), weight, seconds, status.
        seasons_: The seasons that are used, in units of time.
        horizon_: Steps that :meth:`forecast` goes ahead.
        outliers_: The times of outliers, which do not count.
        observed_: The series without its gaps, in the order of time, as a pandas series.
        covariates_: Which covariates there are, with ``names``.
        observed_covariates_: Their values, as a data frame beside ``observed_``.
        result_: Record of the training of the first member, :class:`gpytorch_nkn.fit.FitResult`.
        model_: The first member's Gaussian process, over scaled time and targets.
        transform_: What it models of the targets, with ``name``, ``forward`` and ``inverse``.
        model_weight_, model_spread_: Its weight, and the calibration factor of its standard
            deviations.
        x_offset_, x_scale_, y_offset_, y_scale_: Its scales.
        time_is_date_: Whether time is dates.
        n_features_in_: Always 1.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> months = pd.period_range("2015-01", periods=60, freq="M")
        >>> series = pd.Series(np.sin(2 * np.pi * np.arange(60) / 12), months)
        >>> forecaster = NKNForecaster(quality="fast", random_state=0).fit(series)
        >>> forecaster.forecast(12).index[0]
        Period('2020-01', 'M')
        >>> median, std = forecaster.predict(months[:3] + 60, return_std=True)

    Reference: Sun et al. (2018), section 5.1; their experiment is ``structure="time_series"`` with
    ``recipe=Recipe.paper()`` and ``priors=False``. Judging by rolling forecasts, walks and
    mixtures are not theirs.
    """

    def __init__(
        self,
        structure: Literal["auto", "time_series"] | NeuralKernelNetwork = "auto",
        *,
        seasons: str | float | ArrayLike = "auto",
        transform: Literal["auto", "identity", "log", "log1p", "sqrt", "logit"] = "auto",
        bounds: Sequence[float | None] | None = None,
        horizon: int | None = None,
        quality: Literal["fast", "default"] = "default",
        outliers: Literal["auto", "keep"] = "auto",
        priors: bool = True,
        restarts: int | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self.structure = structure
        self.seasons = seasons
        self.transform = transform
        self.bounds = bounds
        self.horizon = horizon
        self.quality = quality
        self.outliers = outliers
        self.priors = priors
        self.restarts = restarts
        self.recipe = recipe
        self.budget = budget
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(
        self, x: ArrayLike, y: ArrayLike | None = None, *, covariates: ArrayLike | None = None
    ) -> NKNForecaster:
        """Learn the structure of a series.

        Ctrl-C ends the training; what has been trained by then forecasts.

        Args:
            x: Time ``N`` or ``N x 1``: numbers, durations, or dates (``datetime64``, pandas with or
                without time zone, periods, ``datetime``). Without ``y``, a pandas series (or frame
                of one column) over its index, in which missing values are gaps.
            y: Targets ``N``.
            covariates: Columns ``N x C`` of numbers, whose values at new times every forecast
                asks for: an array, or a data frame with columns of any order (and rows, if both
                indices hold dates). Constant columns are left out, with a notice.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: Values are NaN or infinite, lengths differ, there are fewer than 3 points
                or fewer than 2 different times, the targets are constant, the transform has no
                value for one of them (logarithms of what is not positive) or it lies beyond the
                bounds, or an option has no meaning.
            TypeError: Time or targets are not numbers or dates, or ``structure`` is neither a
                name nor a network.
            RuntimeError: No candidate could be trained; the message lists why.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of another fit: a failure of this one must not predict
        self._check_parameters()
        index, target = observations(x, y)
        begin = clock.monotonic()
        axis = TimeAxis.of(index)
        time = axis.numbers(index)
        seen = ~np.isnan(target)
        frame = covariate_frame(covariates, index)[seen]
        index, time, target = index[seen], time[seen], target[seen]
        self._check_data(time, target)
        known = Covariates.of(frame, by_name=isinstance(covariates, pd.DataFrame))
        self._check_structure(len(known.names))
        order = np.argsort(time, kind="stable")
        series = self._series(time[order], target[order], axis.in_days)
        if known.names:
            curves = tuple((np.flatnonzero(~known.is_switch[known.used]) + 1).tolist())
            scaled = known.scaled(frame)[order]
            series = replace(series, covariates=scaled, curves=curves)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = {name: getattr(self, name) for name in _OPTIONS}
        found = search(Options(**options, seed=seed, begin=begin), series)
        self._was_interrupted = found.interrupted
        if not found.members:
            reasons = "; ".join(f"{m.key[0]}, {m.key[1].name}: {m.status}" for m in found.trained)
            raise RuntimeError(f"Every candidate failed ({reasons}).")
        label = x.name if y is None and isinstance(x, pd.Series) else None
        self.observed_ = pd.Series(target[order], index[order], name=label)
        self.covariates_, self.observed_covariates_ = known, frame.iloc[order]
        self.time_axis_, self.time_is_date_, self.n_features_in_ = axis, axis.has_dates, 1
        self.outliers_ = self.observed_.index[found.outliers]
        if self.outliers_.size:
            times = ", ".join(self.outliers_.astype(str))
            warn_user(
                f"{self.outliers_.size} of {len(series.time)} observations are outliers and are "
                f"not used, at {times}; outliers='keep' uses them."
            )
        self.seasons_ = series.seasons
        self.horizon_ = self._usual_horizon(series.time, series.seasons)
        self._scored = series.horizon, series.num_windows
        self._set_members(found.members)
        self.scores_ = pd.DataFrame(
            [
                {
                    "structure": one.key[0],
                    "transform": one.key[1].name,
                    "log_density": getattr(one.candidate, "log_density", np.nan),
                    "weight": getattr(one.candidate, "weight", 0.0),
                    "seconds": one.seconds,
                    "status": one.status,
                }
                for one in found.trained
            ]
        )
        return self

    @overload
    def predict(
        self, x: ArrayLike, return_std: Literal[False] = ..., *, covariates: ArrayLike | None = ...
    ) -> np.ndarray: ...

    @overload
    def predict(
        self, x: ArrayLike, return_std: Literal[True], *, covariates: ArrayLike | None = ...
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(
        self, x: ArrayLike, return_std: bool = False, *, covariates: ArrayLike | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Median of new observations, and their standard deviation on request.

        The median has the least absolute error; unlike the mean it stays sound where a part of
        the forecast is log-normal and wide.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.
            return_std: Also return the standard deviation (noise included), infinite where a
                log-normal part is very wide.
            covariates: Their values ``M x C`` at these times, if :meth:`fit` had some.

        Returns:
            Median ``M``, or median and standard deviation, in units of the targets.
        """
        mixture = self.predict_distribution(x, covariates=covariates)
        median = mixture.quantile(0.5)
        return (median, mixture.std()) if return_std else median

    def predict_distribution(  # type: ignore[override]
        self, x: ArrayLike, /, *, covariates: ArrayLike | None = None
    ) -> PredictiveMixture:
        """Distributions of new observations, to ask for several things at the cost of one.

        Args:
            x: Time ``M`` or ``M x 1``.
            covariates: As in :meth:`predict`.

        Returns:
            The mixture, with ``quantile(p)`` and ``std()``, each ``M``, and ``log_density(y)`` of
            observations ``M``, in units of the targets.
        """
        return self._mixture_at(self._rows(x, covariates))

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        covariates: ArrayLike | None = None,
    ) -> float:
        """Coefficient of determination of the medians, as of scikit-learn's regressors.

        Args:
            X: Time ``M`` or ``M x 1``.
            y: Observations ``M``.
            sample_weight: Weights ``M``.
            covariates: As in :meth:`predict`.
        """
        return r2_score(y, self.predict(X, covariates=covariates), sample_weight=sample_weight)

    def forecast(
        self,
        horizon: int | None = None,
        *,
        level: float | Sequence[float] | None = (80, 95),
        covariates: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Forecast of the times that follow the series, over the continued index.

        Args:
            horizon: Steps ahead; ``None`` for those of the estimator, or one season (6 without
                one). Times go on by the frequency of a pandas index, or by the rule of the dates
                (the 30th, last days at work, third Fridays), at the times of the week that occur
                (Monday to Saturday, opening hours), or else by the usual step.
            level: Per cent of the central bands; ``None`` for none.
            covariates: Their values ``horizon x C`` at the times that follow, if :meth:`fit` had
                some; of a data frame over dates, which may hold others, too, these are found.

        Returns:
            Rows ``horizon`` with the columns ``median``, ``lo-80``, ``hi-80``, ... in units of
            the targets. (:func:`forecast_many` calls them ``NKN``, ``NKN-lo-80``, ...: in the long
            form of Nixtla's tools, columns of several models stand side by side.)
        """
        check_is_fitted(self, "members_")
        return self._table(self.time_axis_.next(self._steps(horizon)), level, covariates)

    def cross_validation(
        self,
        x: ArrayLike,
        y: ArrayLike | None = None,
        *,
        horizon: int | None = None,
        windows: int = 3,
        step: int | None = None,
        level: float | Sequence[float] | None = (80, 95),
        refit: bool = True,
        covariates: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Forecasts from several origins, each from what came before, beside what was observed.

        The estimator itself stays as it is. The last window ends at the end of the series. A
        window that cannot be forecast has NaN, and a warning says why; Ctrl-C keeps those that are
        finished.

        Args:
            x, y: The series, as in :meth:`fit`.
            horizon: Observations of a window; ``None`` for that of the estimator, or one season
                (6 without one).
            windows: How many.
            step: Observations from one window to the next; ``None`` for ``horizon``.
            level: Per cent of the central bands; ``None`` for none.
            refit: Train before each window; else before the first only, and :meth:`update`.
            covariates: As in :meth:`fit`; those of a window are known to its forecast.

        Returns:
            Rows ``windows * horizon``: ``cutoff`` (the last time that was known), ``time``, ``y``
            and the columns of :meth:`forecast`.

        Raises:
            ValueError: Fewer than 3 observations come before the first window.
        """
        self._check_parameters()
        index, target = observations(x, y)
        axis = TimeAxis.of(index)
        time = axis.numbers(index)
        order = np.argsort(time, kind="stable")
        order = order[~np.isnan(target[order])]
        frame = covariate_frame(covariates, index).iloc[order]
        index, target = index[order], target[order]
        self._check_data(time[order], target)
        if covariates is not None:
            Covariates.of(frame, by_name=True)
            covariates = frame
        if horizon is None:
            horizon = self._usual_horizon(time[order], self._seasons(time, axis.in_days))
        step = horizon if step is None else step
        check_counts(1, horizon=horizon, windows=windows, step=step)
        columns = forecast_columns(level)
        cutoffs = [len(target) - horizon - k * step for k in reversed(range(windows))]
        if cutoffs[0] < 3:
            raise ValueError(
                f"{windows} windows of {horizon} observations need at least "
                f"{3 + horizon + (windows - 1) * step}, got {len(target)}."
            )
        session = Session(progress=self.progress)
        parts: list[pd.DataFrame] = []
        fitted: NKNForecaster | None = None
        with session.bar(windows, "windows") as bar, session.interruptible(lambda: parts):
            for cutoff in cutoffs:
                if session.interrupted:
                    break
                ahead = slice(cutoff, cutoff + horizon)
                part = pd.DataFrame({"cutoff": index[cutoff - 1], "time": index[ahead]})
                part["y"] = target[ahead]
                past = index[:cutoff], target[:cutoff]
                known, later = (
                    None if covariates is None else frame.iloc[rows]
                    for rows in (slice(cutoff), ahead)
                )
                try:
                    if refit or fitted is None:
                        fresh = clone(self).set_params(progress=False, horizon=horizon)
                        fitted = fresh.fit(*past, covariates=known)
                        session.interrupted = fitted._was_interrupted
                    else:
                        fitted.update(*past, covariates=known)
                    found = fitted._table(index[ahead], level, later).to_numpy()
                except (ValueError, RuntimeError) as error:
                    warn_user(f"The window after {index[cutoff - 1]} has no forecast: {error}")
                    found = np.full((horizon, len(columns)), np.nan)
                part[list(columns)] = found
                parts.append(part)
                bar.update()
        return pd.concat(parts, ignore_index=True)

    def sample_paths(
        self,
        num_paths: int = 100,
        *,
        horizon: int | None = None,
        x: ArrayLike | None = None,
        covariates: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Joint draws of new observations: sums, maxima and waiting times can be read of them.

        Args:
            num_paths: Paths ``S``.
            horizon: Steps ahead, as in :meth:`forecast`.
            x: Times ``M`` in place of steps.
            covariates: As in :meth:`predict`, at these times or those of the steps.
            random_state: Seed of the draws; ``None`` for that of the estimator.

        Returns:
            ``M x S``, a path a column, in units of the targets.
        """
        check_is_fitted(self, "members_")
        check_counts(1, num_paths=num_paths)
        if x is not None and horizon is not None:
            raise ValueError("x and horizon are two ways to say the same; give one of them.")
        times = self.time_axis_.next(self._steps(horizon)) if x is None else as_times(x)
        seed = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(seed).randint(2**31 - 1))
        rows = self._rows(times, covariates)
        mixture = self._mixture_at(rows)

        def scores(number: int, count: int) -> np.ndarray:
            return self.members_[number].scores(rows, count, rng)

        return pd.DataFrame(mixture.sample(num_paths, rng, scores).T, times)

    def update(
        self, x: ArrayLike, y: ArrayLike | None = None, *, covariates: ArrayLike | None = None
    ) -> NKNForecaster:
        """Forecast from new observations, too, without training anew.

        Hyperparameters and weights of the members stay. An observation of a time that was
        observed already replaces what was there. Outliers of :meth:`fit` stay unused.

        Args:
            x, y: New part of the series, as in :meth:`fit`.
            covariates: Their values at its times, if :meth:`fit` had some.

        Returns:
            The estimator.

        Raises:
            ValueError: Targets lie beyond the bounds, no member's transform has values for them,
                or those of the fit were counts and these are not whole numbers.
        """
        check_is_fitted(self, "members_")
        index, target = observations(x, y)
        self._time(index)  # must be of the same kind
        kinds = [i.dtype for i in (self.observed_.index, index)]
        if kinds[0] != kinds[1] and any(isinstance(kind, pd.PeriodDtype) for kind in kinds):
            raise TypeError(f"The series was fitted over {kinds[0]}, got {kinds[1]}.")
        frame = self.covariates_.frame(covariates, index)[~np.isnan(target)]
        fresh = pd.Series(target, index).dropna()
        kept = ~self.observed_.index.isin(fresh.index)
        both = pd.concat([self.observed_[kept], fresh]) if kept.any() else fresh
        order = np.argsort(self._time(both.index), kind="stable")
        frame = pd.concat([self.observed_covariates_[kept], frame]).iloc[order]
        both = both.iloc[order]
        rows = self._rows(both.index, None if covariates is None else frame)
        outliers = self.outliers_[~self.outliers_.isin(fresh.index)]
        counts = ~both.index.isin(outliers)
        rows, values = rows[counts], both.to_numpy()[counts]
        if any(member.scales.transform.whole for member in self.members_) and (values % 1).any():
            raise ValueError(
                f"{values[values % 1 > 0][0]:g} is not a whole number, as all targets of the fit "
                "were: fit anew."
            )
        members = [m for m in self.members_ if m.holds(values, strict=self.bounds is not None)]
        if not members:
            names = sorted({member.transform for member in self.members_})
            raise ValueError(
                f"Targets from {values.min()} to {values.max()} do not suit the transforms of this "
                f"fit ({', '.join(names)}; bounds={self.bounds}): fit anew."
            )
        whole = self.time_axis_.index.append(index)
        for member in members:
            member.condition(rows, values)
        total = sum(member.weight for member in members)
        for member in members:
            member.weight /= total
        self._set_members(members)
        self.outliers_ = outliers
        self.observed_ = both.rename(self.observed_.name)
        self.observed_covariates_ = frame
        self.time_axis_ = self.time_axis_.extended(whole)
        return self

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
        """Draw the end of the series and its forecast.

        Args:
            horizon: Steps ahead, as in :meth:`forecast`.
            level: Per cent of the central bands.
            held_out: Observations that came later, over their times; the forecast then ends with
                the last of them, if ``horizon`` is not given.
            history: Observations that are drawn; ``None`` for four times the forecast, or two
                of a season of up to ten forecasts.
            covariates: As in :meth:`forecast`.
            ax: Axes to draw on; ``None`` for a new figure of pyplot.

        Returns:
            The axes.
        """
        check_is_fitted(self, "members_")
        ends = list(forecast_columns(level))[1:]
        if not ends:
            raise ValueError("A plot needs the level of at least one band.")
        if held_out is not None and horizon is None:
            index = as_times(held_out.index)
        else:
            index = self.time_axis_.next(self._steps(horizon))
        table = self._table(index, level, covariates)
        if history is None:
            step = typical_step(self._time(self.observed_.index))
            seasons = [round(2 * period / step) for period in self.seasons_]
            most = _SHOWN[1] * len(table)
            history = max(_SHOWN[0] * len(table), 30, *(n for n in seasons if n <= most))
        check_counts(1, history=history)
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        shown = self.observed_.iloc[-history:]
        bands = table[ends].to_numpy().T
        name = self.observed_.name
        return plot_forecast(
            ax,
            _drawn(index),
            table["median"].to_numpy(),
            bands[::2],
            bands[1::2],
            train=(_drawn(shown.index), shown.to_numpy()),
            test=None if held_out is None else (_drawn(held_out.index), held_out.to_numpy()),
            level=[float(name[3:]) / 100 for name in ends[::2]],
            y_label="value" if name is None else str(name),
        )

    def standardised_time(self, x: ArrayLike) -> np.ndarray:
        """Time as ``model_`` takes it.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.

        Raises:
            TypeError: Dates came where the fit was over numbers, or the reverse.
        """
        return (self._time(x) - self.x_offset_) / self.x_scale_

    def standardised_rows(self, x: ArrayLike, covariates: ArrayLike | None = None) -> np.ndarray:
        """Time and covariates ``M x (1 + C)`` as ``model_`` takes them.

        Args:
            x: Time ``M`` or ``M x 1``, of the same kind as in :meth:`fit`.
            covariates: As in :meth:`predict`.
        """
        rows = self._rows(x, covariates)
        rows[:, 0] = (rows[:, 0] - self.x_offset_) / self.x_scale_
        return rows

    def original_time(self, scaled: ArrayLike) -> np.ndarray:
        """Time, as dates if the fit was over dates, of that of ``model_``.

        Args:
            scaled: Time ``M`` as :meth:`standardised_time` returns it.
        """
        check_is_fitted(self, "members_")
        scaled = np.asarray(scaled)
        if scaled.dtype.kind not in "fiu" or not np.isfinite(scaled).all():
            raise ValueError(f"scaled must hold finite numbers, got {scaled}.")
        return self.time_axis_.times(self.x_offset_ + self.x_scale_ * scaled)

    def _set_members(self, members: list[Member]) -> None:
        self.members_ = members
        first, scales = members[0], members[0].scales
        self.result_: FitResult = first.result
        self.model_: ExactGP = first.model
        self.model_weight_, self.model_spread_ = first.weight, first.spread
        self.transform_: Transform = scales.transform
        self.x_offset_, self.x_scale_ = scales.x_offset, scales.x_scale
        self.y_offset_, self.y_scale_ = scales.y_offset, scales.y_scale

    def _time(self, x: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "members_")
        return self.time_axis_.numbers(x)

    def _steps(self, horizon: int | None) -> int:
        if horizon is None:
            horizon = self.horizon_
        check_counts(1, horizon=horizon)
        scored, windows = self._scored
        if horizon > _BEYOND * scored:
            advice = f"set NKNForecaster(horizon={horizon}) to score all of them."
            if self.horizon is not None and self.horizon > scored:
                advice = "the series is too short to score all of them."
            warn_user(
                f"The forecast is {horizon} steps long, but candidates were scored and intervals "
                f"calibrated {scored} steps ahead, in {windows:.0f} windows: {advice}"
            )
        return horizon

    def _table(
        self,
        times: pd.Index,
        level: float | Sequence[float] | None,
        covariates: ArrayLike | None,
    ) -> pd.DataFrame:
        """Medians and bands at times ``M``, which are the index."""
        columns = forecast_columns(level)
        found = self.predict_quantiles(times, list(columns.values()), covariates=covariates)
        return pd.DataFrame(found, times, list(columns))

    def _rows(self, x: ArrayLike, covariates: ArrayLike | None) -> np.ndarray:
        """Time and covariates ``M x (1 + C)``, the latter as members have them."""
        time = self._time(x)
        frame = self.covariates_.frame(covariates, as_times(x))
        return np.column_stack([time, self.covariates_.scaled(frame)])

    def _mixture_at(self, rows: np.ndarray) -> PredictiveMixture:
        moments = [member.moments(rows) for member in self.members_]
        return PredictiveMixture(
            weights=np.array([member.weight for member in self.members_]),
            means=np.stack([mean for mean, _ in moments]),
            stds=np.stack([std for _, std in moments]),
            transforms=tuple(member.scales.transform for member in self.members_),
        )

    def _series(self, time: np.ndarray, target: np.ndarray, in_days: bool) -> Series:
        seasons = self._seasons(time, in_days)
        horizon = min(self._usual_horizon(time, seasons), max(len(np.unique(time)) // 4, 1))
        return Series(time, target, seasons, horizon)

    def _seasons(self, time: np.ndarray, in_days: bool) -> list[float]:
        if isinstance(self.seasons, str) and self.seasons == "auto":
            return find_seasons(time, in_days=in_days)
        return check_seasons(self.seasons, time, in_days=in_days)

    def _usual_horizon(self, time: np.ndarray, seasons: Sequence[float]) -> int:
        if self.horizon is not None:
            return self.horizon
        return max(round(seasons[0] / typical_step(time)), 1) if seasons else _STEPS_AHEAD

    def _check_parameters(self) -> None:
        if isinstance(self.structure, str):
            if self.structure not in ("auto", "time_series"):
                raise ValueError(
                    f"structure must be 'auto', 'time_series' or a network, got {self.structure!r}."
                )
        elif not isinstance(self.structure, NeuralKernelNetwork):
            raise TypeError(
                f"structure must be a name or a NeuralKernelNetwork, got {self.structure!r}."
            )
        for name, value, known in (
            ("transform", self.transform, ("auto", *TRANSFORMS)),
            ("quality", self.quality, tuple(QUALITIES)),
            ("outliers", self.outliers, _OUTLIERS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}.")
        as_bounds(self.bounds)
        if self.horizon is not None:
            check_counts(1, horizon=self.horizon)
        if self.restarts is not None:
            check_counts(1, restarts=self.restarts)
        if self.budget is not None:
            check_number("budget", self.budget, positive=True, infinite=True)
        check_counts(None, n_jobs=self.n_jobs)
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be a number of processes, or negative for all, got 0.")
        if not (self.recipe is None or isinstance(self.recipe, Recipe)):
            raise TypeError(f"recipe must be a Recipe, got {self.recipe!r}.")

    def _check_structure(self, num_covariates: int) -> None:
        if isinstance(self.structure, NeuralKernelNetwork):
            _check_network(self.structure, 1 + num_covariates)

    def _check_data(self, time: np.ndarray, target: np.ndarray) -> None:
        if time.size < 3:
            raise ValueError(f"A series needs at least 3 points, got {time.size}.")
        if np.ptp(time) == 0:
            raise ValueError(f"All {time.size} points have the same time.")
        step = typical_step(time)
        if step < 1e-7 * time.std():
            raise ValueError(
                f"Half of the steps between times are at most {step:g} while the times "
                f"spread over {np.ptp(time):g}: no structure can be resolved. Fit the parts apart."
            )
        refuse_constant(target)
        offset_and_scale(target)  # refuses what is too large
        candidate_transforms(self.transform, target, as_bounds(self.bounds))  # refuses what it must


def _drawn(index: pd.Index) -> np.ndarray:
    """Times as matplotlib takes them."""
    if isinstance(index, pd.PeriodIndex):
        index = starts(index)
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        index = index.tz_localize(None)
    return index.to_numpy()


def _check_network(network: NeuralKernelNetwork, width: int) -> None:
    """Refuse a network of the caller's that is not one kernel over these input columns."""
    kernel = deepcopy(network).double()
    rows = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1).expand(3, width)
    columns = "one input column" if width == 1 else f"{width} input columns (time and covariates)"
    expected = f"structure must be one kernel over {columns}"
    try:
        with torch.no_grad():
            shape = tuple(kernel(rows).to_dense().shape)
    except (IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"{expected}: {error}") from error
    if shape != (3, 3):
        raise ValueError(f"{expected}, got covariances of shape {shape} for 3 times.")
