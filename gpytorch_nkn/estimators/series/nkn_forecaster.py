"""Forecasts of time series by Gaussian processes with learned structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from gpytorch_nkn.averaging import TRANSFORMS, Transform, as_bounds
from gpytorch_nkn.estimators.estimator import Estimator, forgets_failures
from gpytorch_nkn.estimators.series.candidates import QUALITIES, check_network
from gpytorch_nkn.estimators.series.covariates import Covariates
from gpytorch_nkn.estimators.series.member import Member
from gpytorch_nkn.estimators.series.observations import Observations
from gpytorch_nkn.estimators.series.search import search
from gpytorch_nkn.estimators.series.seasons import (
    check_seasons,
    find_seasons,
    repeated_periods,
    typical_step,
)
from gpytorch_nkn.estimators.series.series import Series
from gpytorch_nkn.estimators.series.series_input import forecast_columns
from gpytorch_nkn.estimators.series.series_predictions import SeriesPredictions
from gpytorch_nkn.fit import FitResult, Recipe, Session, check_counts, warn_user
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = ["NKNForecaster"]

_STEPS_AHEAD = 6  # default horizon of a series without a season


class NKNForecaster(SeriesPredictions, RegressorMixin, Estimator):
    """Forecaster of a time series by a mixture of Gaussian processes with several structures.

    Each candidate is a network of kernels for the targets or a transform of them. By default, the
    networks are sums of random walks, local linear trends, lines, autocorrelated noise and seasonal
    terms, with priors learned from other series
    (:meth:`~gpytorch_nkn.kernels.NeuralKernelNetwork.forecast`). One candidate has a learned cycle.
    Rolling forecasts determine the weights of the mixture and calibrate its intervals.

    Up to four changes of level or slope are detected in the series. An additional candidate
    includes them.

    Covariates are columns with known future values, such as prices, temperatures or holidays. Each
    has a linear effect, which may drift and vary with the shortest season, and a smooth effect if
    it has more than two values. An additional candidate ignores the covariates.

    Times may be irregular, repeat and have gaps. For a long series, the exact Gaussian processes
    use 900 points for the hyperparameters, 500 for each rolling forecast and 4,000 for the
    forecast. Points are dense before the forecast origin and thinned farther back. All are from the
    last 600 points, 24 horizons or four longest seasons, whichever is longest.

    Args:
        structure: ``"auto"`` for the candidates of ``quality``, or ``"time_series"`` for
            :meth:`~gpytorch_nkn.kernels.NeuralKernelNetwork.time_series`, the paper's network. Your
            own network has time and standardised covariates as inputs, and start values from data.
            If it has no priors, noise and mean have none (maximum likelihood).
        seasons: ``"auto"`` infers days, weeks and years from dates, or from the number of steps in
            a unit of time. If none applies, and the times are not dates a day or more apart, it
            uses up to two periods that the values repeat. Otherwise, periods in units of time (days
            for dates) or durations such as ``"7D"``, ``"24h"``, ``"1Y"``; an empty list for no
            season. The data must cover each period twice.
        transform: Transform of the targets, ``"identity"`` for none. Use ``"log"`` if the variation
            grows with the level. ``"sqrt"`` adds 3/8 to counts. ``"logit"`` is the log odds between
            ``bounds``. ``"log1p"`` is the logarithm of counts plus 1, or of other targets plus the
            smallest positive one. ``"auto"`` compares the targets, square roots of non-negative
            targets, logarithms of positive targets, and log odds if both bounds are given. For
            counts with a mean or median below 10 that do not grow, it compares square roots and an
            ordered probit (``"probit"`` in ``scores_``).
        bounds: Lower and upper bound of targets and forecasts (``None`` or infinite for no bound),
            such as ``(0, 1)`` for fractions. ``None`` for 0 and no upper bound if targets are
            non-negative and the transform is not ``"identity"``. A bound that equals some targets
            has a positive probability. Integer targets with a lower bound are counts: quantiles and
            paths are integers, densities are probabilities.
        horizon: Number of steps of rolling forecasts and of :meth:`forecast`; ``None`` for one
            season (6 without a season). Intervals are calibrated on forecasts of this length or,
            in short series, of half to two thirds of the series. Longer forecasts give a warning.
        quality: ``"fast"`` for up to three structures, ``"default"`` for up to seven.
        outliers: ``"auto"`` excludes outliers from training, with a warning, and detects changes of
            level and slope. The leave-one-out error of an outlier exceeds 12 times the RMS of
            smaller errors, with and without a transform. At most 2 % of the targets plus one are
            outliers. ``"keep"`` uses all targets and detects no changes.
        restarts: Number of starts for networks with learned wiring; ``None`` for 20 up to 250
            points and 6 above. Other candidates have one start.
        recipe: Optimiser settings of a start; ``None`` for the default of each structure.
        budget: Wall time in seconds of a fit; ``None`` for no limit.
        n_jobs: Number of processes that train candidates.
        <shared computation>

    Attributes:
        members_: Gaussian processes of the mixture, largest weight first, each with ``name``,
            ``transform``, ``model``, ``weight``, ``log_density`` and ``result``.
        scores_: Data frame of all candidates: structure, transform, mean log density of rolling
            forecasts (per target, natural logarithm), weight, seconds, status
            (``untrained`` if the training ended before).
        seasons_: Seasons in use, in units of time.
        horizon_: Default number of steps of :meth:`forecast`.
        outliers_: Times of excluded outliers.
        shifts_: Times of changes of level or slope, if most of the weight is on members with them.
        observed_: Series without gaps in order of time, as a pandas series.
        covariates_, observed_covariates_: Covariates (with ``names``), and a data frame of their
            values at the times of ``observed_``.
        time_axis_, time_is_date_: Conversion of times to numbers, and whether times are dates.
        result_: Training record of the first member, :class:`gpytorch_nkn.fit.FitResult`.
        model_: Gaussian process of the first member, on scaled inputs and targets.
        transform_: Target transform of the first member, with ``name``, ``forward``, ``inverse``.
        model_weight_, calibration_factor_: Weight of the first member, and calibration factor of
            its standard deviations.
        x_offset_, x_scale_, y_offset_, y_scale_: Offsets and scales of the first member.
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

    Reference: Sun et al. (2018), section 5.1; their experiment is
    ``structure=NeuralKernelNetwork.time_series(priors=False)`` with ``recipe=Recipe.paper()``.
    Rolling forecasts, random walks and mixtures are not in the paper.
    """

    _private_state = ("_was_interrupted", "_observations", "_scored")

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
        restarts: int | None = None,
        recipe: Recipe | None = None,
        budget: float | None = None,
        n_jobs: int = 1,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ):
        self._set_options(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    @forgets_failures
    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike | None = None,
        *,
        covariates: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> NKNForecaster:
        """Learn the structure of a series.

        Ctrl-C ends the training and keeps the candidates trained so far.

        Args:
            x: Times ``N`` or ``N x 1``: numbers, durations, or dates (``datetime64``, ``datetime``,
                pandas with or without time zone, periods). Without ``y``, a pandas series (or frame
                of one column) indexed by time, in which missing values are gaps.
            y: Targets ``N``, in the order of ``x`` or indexed by the same dates.
            covariates: Numeric columns ``N x C``; every forecast needs their values at new times.
                The columns of a data frame may be in any order, and so may its rows if both indices
                contain dates. Constant columns give a warning and are not used.
            noise_variance: Known variances of the measurement errors, in squared units of the
                targets: one number, or ``N`` in the order of ``x`` or indexed by the same dates.
                Additional noise is learned. The noise of new observations is the learned noise plus
                the mean of the known variances. With a transform of the targets, a variance is
                multiplied by the transform's squared derivative at the target (delta method).

        Raises:
            ValueError, TypeError: The data or an option are invalid.
            RuntimeError: No candidate could be trained; the message lists the reasons.
        """
        self._check_parameters()
        self._warn_of_order(x, y=y)
        observed = Observations.read(x, y, covariates, noise_variance)
        observed.check(self.transform, self.bounds)
        frame = observed.covariates
        known = Covariates.of(frame, by_name=isinstance(covariates, pd.DataFrame))
        self._check_structure(len(known.names))
        time = observed.time
        seasons = self._seasons(observed)
        horizon = self._default_horizon(time, seasons)
        series = Series(
            time,
            observed.target.to_numpy(),
            seasons,
            horizon,
            known.scaled(frame) if known.names else None,
            tuple((np.flatnonzero(~known.is_binary[known.used]) + 1).tolist()),
            noise=observed.noise if observed.noise.any() else None,
        )
        longest = series.max_horizon
        series = replace(series, horizon=min(horizon, longest))
        result = search(self, series)
        if not result.members:
            reasons = "; ".join(f"{m.key[0]}, {m.key[1].name}: {m.status}" for m in result.trained)
            raise RuntimeError(f"Every candidate failed ({reasons}).")
        self._was_interrupted = result.interrupted
        self._scored = series.horizon, series.num_windows, longest
        self.covariates_, self.seasons_, self.horizon_ = known, seasons, horizon
        self.n_features_in_ = 1
        self._set_observations(observed)
        self._outlying = self.observed_[result.outliers]
        self.outliers_ = self._outlying.index
        if self.outliers_.size:
            times = ", ".join(self.outliers_.astype(str))
            warn_user(
                f"{self.outliers_.size} of {len(time)} observations are outliers and are "
                f"not used, at {times}; outliers='keep' uses them."
            )
        changes = np.array(result.shifts) - 1e-6 * typical_step(time)  # to before rounding
        after = np.unique(np.searchsorted(time, changes))
        self.shifts_ = self.observed_.index[after]
        self._set_members(result.members)
        keys = [(trial.key[0], trial.key[1].name) for trial in result.trained]
        table = self.scores_ = pd.DataFrame(keys, columns=["structure", "transform"])
        for name, default in (("log_density", np.nan), ("weight", 0.0)):
            table[name] = [getattr(trial.candidate, name, default) for trial in result.trained]
        for name in ("seconds", "status"):
            table[name] = [getattr(trial, name) for trial in result.trained]
        return self

    def cross_validation(
        self,
        x: ArrayLike,
        y: ArrayLike | None = None,
        *,
        horizon: int | None = None,
        windows: int = 3,
        step: int | None = None,
        level: float | Sequence[float] | None = (80, 95),
        covariates: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Backtest forecasts from several origins, each given only the observations before it.

        This estimator is not changed. The last window ends at the end of the series. A failed
        forecast is NaN, with a warning that gives the reason. Ctrl-C keeps the finished windows.

        Args:
            x, y: The series, as in :meth:`fit`.
            horizon: Number of observations per window; ``None`` for the horizon of the estimator,
                or one season (6 without a season).
            windows: Number of windows.
            step: Number of observations between starts of windows; ``None`` for ``horizon``.
            level: Coverage of the central intervals in per cent; ``None`` for no interval.
            covariates: As in :meth:`fit`; forecasts use the values inside their window.
            noise_variance: As in :meth:`fit`.

        Returns:
            Data frame of ``windows * horizon`` rows, with the columns ``cutoff`` (last known time),
            ``time``, ``y`` and the columns of :meth:`forecast`.

        Raises:
            ValueError: Fewer than 3 observations come before the first window.
        """
        self._check_parameters()
        observed = Observations.read(x, y, covariates, noise_variance)
        observed.check(self.transform, self.bounds)
        if horizon is None:
            seasons = self._seasons(observed)
            horizon = self._default_horizon(observed.time, seasons)
        step = horizon if step is None else step
        check_counts(1, horizon=horizon, windows=windows, step=step)
        columns = list(forecast_columns(level))
        index, target = observed.target.index, observed.target.to_numpy()
        cutoffs = [len(target) - horizon - k * step for k in reversed(range(windows))]
        if cutoffs[0] < 3:
            raise ValueError(
                f"{windows} windows of {horizon} observations need at least "
                f"{3 + horizon + (windows - 1) * step}, got {len(target)}."
            )
        if covariates is not None:
            Covariates.of(observed.covariates, by_name=True)  # raises if values are invalid
        session = Session(progress=self.progress)
        parts: list[pd.DataFrame] = []
        notices: list[str] = []
        with session.bar(windows, "windows") as bar, session.interruptible(lambda: parts):
            for cutoff in cutoffs:
                if session.interrupted:
                    break
                ahead = slice(cutoff, cutoff + horizon)
                part = pd.DataFrame({"cutoff": index[cutoff - 1], "time": index[ahead]})
                part["y"] = target[ahead]
                past = index[:cutoff], target[:cutoff]
                known, later = (
                    None if covariates is None else observed.covariates.iloc[rows]
                    for rows in (slice(cutoff), ahead)
                )
                try:
                    fresh = clone(self).set_params(progress=False, horizon=horizon)
                    noise = observed.noise[:cutoff]
                    fitted = fresh.fit(*past, covariates=known, noise_variance=noise)
                    session.interrupted = fitted._was_interrupted
                    notices.append(fitted._notice(index[ahead]))
                    fitted._warns = False
                    part[columns] = fitted._table(index[ahead], level, later).to_numpy()
                except (ValueError, RuntimeError) as error:
                    warn_user(f"The window after {index[cutoff - 1]} has no forecast: {error}")
                    part[columns] = np.nan
                parts.append(part)
                bar.update()
        if long := [*filter(None, notices)]:
            warn_user(
                f"Intervals of {len(long)} of {windows} windows are not calibrated up to step "
                f"{horizon}. {long[0]}"
            )
        return pd.concat(parts, ignore_index=True)

    def _warn_of_order(self, X: Any, **of_rows: Any) -> None:
        dates = pd.DatetimeIndex | pd.PeriodIndex  # targets at dates are matched by date
        if not isinstance(getattr(of_rows["y"], "index", None), dates):
            super()._warn_of_order(X, **of_rows)

    def update(
        self,
        x: ArrayLike,
        y: ArrayLike | None = None,
        *,
        covariates: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> NKNForecaster:
        """Add new observations without new training.

        Hyperparameters and weights of the members do not change. A new observation replaces an
        earlier observation at the same time. Outliers of :meth:`fit` remain excluded.

        Args:
            x, y: New part of the series, as in :meth:`fit`.
            covariates: Covariates at the new times, if :meth:`fit` had covariates.
            noise_variance: As in :meth:`fit`; ``None`` for the mean of the known variances.

        Raises:
            ValueError: Targets exceed the bounds, no member's transform is defined for them, or
                they are not integers although the fit was to counts.
        """
        check_is_fitted(self, "members_")
        past = self._observations
        self._warn_of_order(x, y=y)
        observed = past.updated(x, y, covariates, noise_variance, self.covariates_)
        frame = None if covariates is None else observed.covariates
        outlying = self._outlying[~self._outlying.index.isin(observed.fresh)]
        target = observed.target
        used = ~(target.index.isin(outlying.index) & target.isin(outlying)).to_numpy()
        rows = self._rows(target.index, frame)[used]
        values = target.to_numpy()[used]
        if any(member.scales.transform.whole for member in self.members_) and (values % 1).any():
            raise ValueError(
                "Targets must be integers as in the fit, got "
                f"{values[values % 1 > 0][0]:g}: call fit with all observations."
            )
        members = [m for m in self.members_ if m.accepts(values, strict=self.bounds is not None)]
        if not members:
            names = sorted({member.transform for member in self.members_})
            raise ValueError(
                f"Targets must suit the transforms of the fit ({', '.join(names)}; bounds="
                f"{self.bounds}), got {values.min():g} to {values.max():g}: call fit with all "
                "observations."
            )
        is_known = past.noise.any() or observed.noise.any()
        noise = observed.noise[used] if is_known else None
        total = sum(member.weight for member in members)
        for member in members:
            member.condition(rows, values, noise)
            member.weight /= total
        self._set_members(members)
        self._set_observations(observed)
        self._outlying, self.outliers_ = outlying, outlying.index
        return self

    def _set_observations(self, observed: Observations) -> None:
        self._observations = observed
        self.observed_, self.observed_covariates_ = observed.target, observed.covariates
        self.time_axis_, self.time_is_date_ = observed.axis, observed.axis.has_dates

    def _set_members(self, members: list[Member]) -> None:
        self.members_ = members
        first, scales = members[0], members[0].scales
        self.result_: FitResult = first.result
        self.model_: ExactGP = first.model
        self.model_weight_, self.calibration_factor_ = first.weight, first.calibration
        self.transform_: Transform = scales.transform
        self.x_offset_, self.x_scale_ = scales.x_offset, scales.x_scale
        self.y_offset_, self.y_scale_ = scales.y_offset, scales.y_scale

    def _seasons(self, observed: Observations) -> list[float]:
        time, in_days = observed.time, observed.axis.in_days
        if not (isinstance(self.seasons, str) and self.seasons == "auto"):
            return check_seasons(self.seasons, time, in_days=in_days)
        known = find_seasons(time, in_days=in_days)
        if known or (observed.axis.has_dates and typical_step(time) >= 1):
            return known
        return repeated_periods(time, observed.target.to_numpy())

    def _default_horizon(self, time: np.ndarray, seasons: Sequence[float]) -> int:
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
        for name, known in (
            ("transform", ("auto", *TRANSFORMS)),
            ("quality", tuple(QUALITIES)),
            ("outliers", ("auto", "keep")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")
        as_bounds(self.bounds)
        if self.horizon is not None:
            check_counts(1, horizon=self.horizon)
        self._check_training_options()

    def _check_structure(self, num_covariates: int) -> None:
        if isinstance(self.structure, NeuralKernelNetwork):
            check_network(self.structure, 1 + num_covariates)
