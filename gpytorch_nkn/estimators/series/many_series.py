"""Forecasts of many series in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from gpytorch_nkn._devices import on_cpu
from gpytorch_nkn.estimators.series.nkn_forecaster import NKNForecaster
from gpytorch_nkn.estimators.series.series_input import as_time, as_times, forecast_columns
from gpytorch_nkn.estimators.series.time_axis import TimeAxis
from gpytorch_nkn.estimators.table_input import is_constant
from gpytorch_nkn.fit import Session, as_finished, check_counts, warn_user

__all__ = ["forecast_many"]

_NAME = "NKN"


@on_cpu()
def forecast_many(
    frame: pd.DataFrame,
    horizon: int,
    *,
    level: float | Sequence[float] | None = (80, 95),
    future: pd.DataFrame | None = None,
    id_col: str = "unique_id",
    time_col: str = "ds",
    target_col: str = "y",
    noise_col: str | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = 0,
    progress: bool = True,
    **options: Any,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Forecast many series, each with its own :class:`NKNForecaster`.

    Data are in long form, with the column names of Nixtla's statsforecast. Missing targets are
    gaps. A constant series is continued with intervals of zero width. A forecast fails if a series
    has fewer than 3 points, infinite values, or missing or repeated times, or if no candidate can
    be trained. A failed forecast has missing values and a row in the table of failures.

    Series are processed in parallel with one thread each, in processes or on the backend of
    ``joblib.parallel_config(backend=...)``: threads, Dask, Ray. Without a ``budget``, a forecast
    does not depend on the other series, their order or the number of jobs.

    Args:
        frame: One row per observation: series, time, target. Further columns are covariates.
        horizon: Number of steps to forecast, also in the rolling forecasts that score candidates.
        level: Coverage of the central intervals in per cent; ``None`` for no interval.
        future: Covariates after the end of each series, in long form: series, time, and the further
            columns of ``frame``. Rows at other times are ignored.
        id_col: Column of the names of the series.
        time_col: Column of times: dates (strings in ISO 8601 only), periods, durations or numbers.
            Series may have different time zones; each forecast has the zone of its series.
        target_col: Column of targets.
        noise_col: Column of known noise variances, as in :meth:`NKNForecaster.fit`.
        n_jobs: Number of processes, negative as in joblib; ``None`` for the setting of
            ``joblib.parallel_config``, or 1 without a setting.
        random_state: Seed of every series; ``None`` draws one.
        progress: Show a progress bar on a terminal.
        **options: Options of :class:`NKNForecaster`, such as ``quality="fast"``; ``budget`` is per
            series.

    Returns:
        Forecasts with ``horizon`` rows per series, in the order in which series first appear. The
        columns are name, time, the median ``NKN`` and intervals ``NKN-lo-80``, ``NKN-hi-80``, ...
        A second table lists failed series with reasons and, after Ctrl-C, the remaining series.

    Raises:
        TypeError, ValueError: Columns are missing or of another type, or an option is invalid.
        KeyboardInterrupt: Ctrl-C was pressed before any series was finished.

    Example:
        >>> months = pd.date_range("2015-01-01", periods=48, freq="MS")
        >>> wave = np.sin(2 * np.pi * np.arange(48) / 12)
        >>> frame = pd.concat(
        ...     pd.DataFrame({"unique_id": name, "ds": months, "y": level + wave})
        ...     for name, level in [("tea", 5.0), ("coffee", 8.0)]
        ... )
        >>> forecasts, failures = forecast_many(frame, 12, quality="fast", n_jobs=2)
        >>> forecasts.columns[:4].tolist()
        ['unique_id', 'ds', 'NKN', 'NKN-lo-80']
    """
    check_counts(1, horizon=horizon)
    if n_jobs is not None:
        check_counts(None, n_jobs=n_jobs)
    columns = forecast_columns(level)
    forecaster = _forecaster(options, horizon, random_state)
    roles = (id_col, time_col, target_col, *([] if noise_col is None else [noise_col]))
    names, tasks = _tasks(frame, future, roles)
    forecaster._check_structure(frame.shape[1] - len(roles))
    percents = tuple(np.ravel([] if level is None else level).tolist())
    quantiles: dict[int, np.ndarray] = {}
    reasons: dict[int, str] = {}
    notices: dict[int, str] = {}
    session = Session(progress=progress)
    default_reason = "not reached: interrupted"
    shared, jobs = (forecaster, horizon, percents), ((task,) for task in tasks)
    with (
        session.bar(len(tasks), "series", "series") as bar,
        session.interruptible(lambda: quantiles),
        torch.random.fork_rng(devices=[]),  # threads share one random state
        closing(as_finished(_forecast, jobs, n_jobs, shared=shared)) as results,
    ):
        try:
            for number, (values, reason) in results:
                if values is None:
                    reasons[number] = reason
                else:
                    quantiles[number] = values
                    notices |= {number: reason} if reason else {}
                bar.update()
        except Exception as error:  # an error of the pool, because jobs return their errors
            if not quantiles:
                raise
            default_reason = f"not reached: {type(error).__name__}: {error}"
    failed = [number for number in range(len(tasks)) if number not in quantiles]
    why = pd.Series([reasons.get(number, default_reason) for number in failed], dtype=object)
    failures = pd.DataFrame({id_col: names[failed], "reason": why})
    if failed:
        first = failures.iloc[0]
        warn_user(
            f"{len(failures)} of {len(tasks)} series have no forecast (the first, "
            f"{first[id_col]!r}: {first['reason']}); the second frame returned lists them."
        )
    if notices:
        first_long = min(notices)
        warn_user(
            f"Intervals of {len(notices)} of {len(tasks)} series (the first, "
            f"{names[first_long]!r}) are not calibrated up to step {horizon}. {notices[first_long]}"
        )
    empty = np.full((horizon, len(columns)), np.nan)
    table = np.concatenate([quantiles.get(number, empty) for number in range(len(tasks))])
    times = [_next_times(task.target.index, horizon) for task in tasks]
    labels = [_NAME if column == "median" else f"{_NAME}-{column}" for column in columns]
    forecasts = pd.DataFrame(
        {
            id_col: names.repeat(horizon),
            time_col: times[0].append(times[1:]),
            **dict(zip(labels, table.T, strict=True)),
        }
    )
    return forecasts, failures


class _Task(NamedTuple):
    """Data of one series."""

    target: pd.Series  # targets, indexed by time
    known: pd.DataFrame | None  # covariates at the times of the targets
    later: pd.DataFrame | None  # covariates at later times
    noise: pd.DataFrame  # known noise variances, one column or none


def _forecaster(
    options: dict[str, Any], horizon: int, random_state: int | np.random.RandomState | None
) -> NKNForecaster:
    """Return a forecaster with checked options and a seed."""
    seed = random_state
    if not isinstance(seed, int | np.integer):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
    check_random_state(seed)
    forecaster = NKNForecaster(**options, horizon=horizon, random_state=seed, progress=False)
    forecaster._check_parameters()
    return forecaster


def _tasks(
    frame: pd.DataFrame, future: pd.DataFrame | None, roles: Sequence[str]
) -> tuple[pd.Index, list[_Task]]:
    """Return the names of the series, in order of first appearance, and a task for each."""
    _check_columns(frame, "frame", roles)
    id_col, time_col, target_col, *noise_col = roles
    times = _times(frame[time_col], time_col)
    target = pd.Series(_numbers(frame[target_col], target_col), times)
    extra = [column for column in frame.columns if column not in roles]
    names = pd.Index(frame[id_col].unique())
    later: dict[Any, pd.DataFrame | None] = dict.fromkeys(names)
    if extra and future is None:
        raise ValueError(
            f"frame has the further columns {', '.join(map(str, extra))}. Covariates need their "
            "future values (future=...); other columns must be dropped."
        )
    if future is not None:
        _check_columns(future, "future", (id_col, time_col, *extra))
        if not extra:
            raise ValueError("future must have the covariates of frame, but frame has none.")
        ahead = future[extra].set_axis(_times(future[time_col], time_col))
        later = dict.fromkeys(names, ahead.iloc[:0])
        later |= dict(iter(_groups(ahead, future[id_col])))
    rows = _groups(frame[[*extra, *noise_col]].set_axis(times), frame[id_col])
    return names, [
        _Task(series, known[extra] if extra else None, later[name], known[noise_col])
        for (name, series), (_, known) in zip(_groups(target, frame[id_col]), rows, strict=True)
    ]


def _groups(rows: Any, names: pd.Series) -> Iterator[tuple[Any, Any]]:
    """Yield the name and the rows of each series, in order of first appearance."""
    for name, group in rows.groupby(names.to_numpy(), sort=False):
        is_mixed = group.index.dtype == object  # series in several time zones
        yield name, group.set_axis(as_times(group.index.to_numpy())) if is_mixed else group


def _check_columns(frame: pd.DataFrame, argument: str, needed: Sequence[str]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"{argument} must be a pandas data frame, got {type(frame).__name__}.")
    if len(set(needed)) < len(needed):
        raise ValueError(f"The *_col arguments must be different columns, got {list(needed)}.")
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise ValueError(
            f"{argument} has no column {missing[0]!r}; its columns are "
            f"{', '.join(map(str, frame.columns))}."
        )
    if not frame.columns.is_unique:
        raise ValueError(f"{argument} has duplicate column names: {list(frame.columns)}.")
    if not len(frame):
        raise ValueError(f"{argument} has no rows.")
    unnamed = frame[needed[0]].isna().sum()
    if unnamed:
        raise ValueError(f"{argument} has rows without {needed[0]!r}: {unnamed}.")


def _times(column: pd.Series, name: str) -> pd.Index:
    """Return times of all series; dates in several time zones as objects."""
    if column.dtype == object and pd.api.types.infer_dtype(column) == "datetime":
        if len({time.tzinfo for time in column.dropna()}) > 1:
            return pd.Index(column, dtype=object, name=None)
    index = as_times(column)
    if pd.api.types.infer_dtype(index) == "string":
        offsets = index.str[10:].str.extract(r"(Z|[+-]\d\d:?\d\d)$", expand=False)
        try:
            if offsets.nunique() > 1:
                return pd.Index(index.map(pd.Timestamp), dtype=object, name=None)
            index = pd.DatetimeIndex(pd.to_datetime(index, format="ISO8601"))
        except ValueError as error:
            raise ValueError(
                f"Column {name!r} must hold dates such as 2024-01-31: convert other formats with "
                f"pandas.to_datetime first ({error})."
            ) from None
    dates = pd.DatetimeIndex | pd.PeriodIndex | pd.TimedeltaIndex
    if not isinstance(index, dates) and not pd.api.types.is_any_real_numeric_dtype(index.dtype):
        raise TypeError(f"Column {name!r} must hold dates or numbers, got {index.dtype}.")
    return index.rename(None)


def _numbers(column: pd.Series, name: str) -> np.ndarray:
    """Return targets, NaN where missing. Infinite targets fail later, with their series only."""
    try:
        numeric = pd.api.types.is_any_real_numeric_dtype(column.dtype)
        if not numeric and column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
            raise TypeError
        return column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        raise TypeError(f"Column {name!r} must hold numbers, got {column.dtype}.") from None


def _forecast(
    shared: tuple[NKNForecaster, int, tuple[float, ...]], task: _Task
) -> tuple[np.ndarray | None, str]:
    """Return the forecast of one series and a notice, or the reason of its failure.

    Ctrl-C is passed on.
    """
    torch.set_num_threads(1)
    try:
        return _values(*shared, task)
    except Exception as error:  # any, because the other series continue
        return None, f"{type(error).__name__}: {error}"


def _values(
    forecaster: NKNForecaster, horizon: int, level: tuple[float, ...], task: _Task
) -> tuple[np.ndarray, str]:
    """Return medians and ends of intervals ``horizon x C``, and a notice if it is long."""
    times, seen = task.target.index, task.target.dropna().to_numpy()
    repeated = times[times.duplicated()].dropna()
    if len(repeated):  # usually a mistake in long form, such as duplicated rows
        raise ValueError(
            f"Rows that repeat a time of the series: {len(repeated)} (the first, {repeated[0]}); "
            "drop or aggregate them."
        )
    is_valid = seen.size >= 3 and np.isfinite(seen).all() and not times.hasnans
    if is_valid and is_constant(seen):
        return np.full((horizon, len(forecast_columns(level))), seen[0]), ""
    noise = task.noise if task.noise.shape[1] else None
    made = clone(forecaster).fit(task.target, covariates=task.known, noise_variance=noise)
    if made._was_interrupted:
        raise KeyboardInterrupt
    later = task.later
    if later is not None and not made.time_axis_.has_dates:
        later = _rows_at(later, made.time_axis_.next(horizon), 1e-3 * made.time_axis_.step)
    made._warns = False
    values = made.forecast(horizon, level=level, covariates=later).to_numpy()
    return values, made._notice(made.time_axis_.next(horizon))


def _rows_at(rows: pd.DataFrame, times: pd.Index, tolerance: float) -> pd.DataFrame:
    """Return the rows at numbers or durations, up to rounding."""
    wanted, given = as_time(times), as_time(rows.index)
    distances = np.abs(given[:, None] - wanted)
    lacking = distances.min(0, initial=np.inf) > tolerance
    if lacking.any():
        raise ValueError(
            f"future must have a row for every time, but {int(lacking.sum())} of {len(times)} have "
            f"none, the first {times[int(lacking.argmax())]}."
        )
    return rows.iloc[distances.argmin(0)]


def _next_times(times: pd.Index, horizon: int) -> pd.Index:
    """Return the times that follow, missing values if they cannot be inferred."""
    known = times.dropna().unique()
    if len(known) > 1 or (len(known) == 1 and isinstance(known, pd.PeriodIndex)):
        return TimeAxis.of(known).next(horizon)
    if len(known) == 1 and pd.api.types.is_integer_dtype(known.dtype):
        return known.repeat(horizon) + np.arange(1, horizon + 1)
    return times[:1].where([False]).repeat(horizon)
