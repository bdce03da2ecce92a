"""The commands ``gpytorch-nkn forecast`` and ``gpytorch-nkn demo``."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.cli.common import (
    UserError,
    literal,
    make_folder,
    notes,
    save_figure,
    say,
    user_errors,
    write_summary,
)
from gpytorch_nkn.datasets import TimeSeries, load_co2, read_time_series

if TYPE_CHECKING:
    import pandas as pd

    from gpytorch_nkn.estimators import NKNForecaster, TimeAxis

__all__ = ["run_forecast"]

_PRINTED = 12  # largest number of printed steps
_HISTORY = 20  # largest length of the history in the figure, in lengths of the forecast
_TEST_FRACTION = 0.1
_SEASONS = {1.0: "day", 7.0: "week", 365.2425: "year"}  # names of periods in days


def run_forecast(args: argparse.Namespace) -> None:
    """Forecast a series and write its files; a UserError ends the command."""
    with notes() as warned:
        _run(args, warned)


def _run(args: argparse.Namespace, warned: list[str]) -> None:
    from gpytorch_nkn.estimators import TimeAxis

    started = time.perf_counter()
    series = _load(args)
    for notice in series.notices:
        say(f"Note: {notice}")
    axis = TimeAxis.of(series.index)
    task = _split(series, axis, args)
    train, new_x, observed = task.train, task.times, task.observed
    make_folder(args.out)
    if args.report is not None:
        _prepare_report(args.report)
    last, *ahead = series.texts(series.index[train][-1:].append(new_x))
    say(
        f"{series.name}: learning from {train.sum()} rows to {last}; "
        f"{'forecasting' if observed is None else 'holding out'} {len(new_x)} steps, "
        f"{ahead[0]} to {ahead[-1]}."
    )

    training = time.perf_counter()
    forecaster = _fit(series, task, args)
    seasons = _named_seasons(forecaster, series)
    say(f"Seasons: {', '.join(seasons) or 'none found; --season sets them'}.")
    shifts = list(series.texts(forecaster.shifts_))
    if shifts:
        say(f"Changes of level or slope: {', '.join(shifts)}.")
    table, scores = _forecast_all(forecaster, task, training)
    table.insert(0, "time", ahead)

    with user_errors("write to", args.out):
        table.to_csv(args.out / "forecast.csv", index=False, float_format="%.15g")
        figure = _draw(args.out / "forecast.png", series, forecaster, task, table)
        rows = {"total": int(series.y.size), "train": int(train.sum()), "forecast": len(new_x)}
        summary = {
            "series": series.name,
            "notices": [*series.notices, *warned],
            "rows": rows,
            "time": {"first": series.texts(series.index[:1])[0], "last": ahead[-1]},
            "seasons": seasons,
            "shifts": shifts,
            "results": scores,
            "seconds": round(time.perf_counter() - started, 2),
        }
        write_summary(args, summary)
    say(_first_steps(table, series.y_label) if observed is None else _score_table(scores))
    say(f"Forecast and summary: {args.out / 'forecast.csv'}, {args.out / 'summary.json'}")
    if args.report is not None:
        _write_report(args, series, forecaster, task)
    say(figure)


def _prepare_report(path: Path) -> None:
    """End the command before the training if the report cannot be written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("a report needs matplotlib: pip install 'gpytorch_nkn[plot]'")
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    make_folder(path.parent)


def _write_report(
    args: argparse.Namespace, series: TimeSeries, forecaster: NKNForecaster, task: _Task
) -> None:
    from gpytorch_nkn.interpretation import report

    say("Making the report ...")
    past, new = (forecaster.time_axis_.numbers(x) for x in (series.index[task.train], task.times))
    ahead: dict[str, Any] = {"horizon": min(new.max() - past.max(), 10 * np.ptp(past))}
    if forecaster.covariates_.names:
        ahead = {"future": (task.times, task.covariates)}
    with user_errors("write", args.report):
        made = report(
            forecaster,
            **ahead,
            title=f"Report on {series.name}",
            columns=None if series.has_dates else [series.x_label, *forecaster.covariates_.names],
            y_name=series.y_label,
            progress=not args.no_progress,
        )
        made.save(args.report)
    say("\n".join(["", *made.summary, ""]))
    say(f"The report is at {args.report}")


def _load(args: argparse.Namespace) -> TimeSeries:
    options = {k: v for k, v in vars(args).items() if k in signature(read_time_series).parameters}
    with user_errors("read"):
        if args.command == "demo":
            return load_co2()
        return read_time_series(args.file, **options | {"where": dict(args.where)})


@dataclass
class _Task:
    """Rows to learn from, and times to forecast."""

    train: np.ndarray  # mask N of the rows to learn from
    times: pd.Index  # times M of the forecast
    observed: np.ndarray | None  # values M, None for the future
    covariates: pd.DataFrame | None  # values M x C


def _split(series: TimeSeries, axis: TimeAxis, args: argparse.Namespace) -> _Task:
    """Hold out the end of a series, or forecast the times after it."""
    x, known, test = series.index, len(series.future_index), series.test
    if series.y.size < 3:
        raise UserError(f"a series needs at least 3 rows with a value, got {series.y.size}")
    if args.command == "forecast":
        if args.horizon is not None or (known and args.test_fraction is None):
            horizon, all_rows = args.horizon or known, np.ones(x.size, bool)
            if series.future_covariates is None:
                return _Task(all_rows, axis.next(horizon), None, None)
            if known < horizon:
                fewer = f", or ask for --horizon {known}" if known else ""
                raise UserError(
                    f"a forecast of {horizon} steps needs the covariates of {horizon} rows after "
                    f"{series.texts(x[-1:])[0]}, got {known}: add rows without a target to the "
                    f"file, or name a second file by --future{fewer}"
                )
            later = series.future_covariates.iloc[:horizon]
            return _Task(all_rows, series.future_index[:horizon], None, later)
        fraction = args.test_fraction or _TEST_FRACTION
        clock = axis.numbers(x)
        test = clock > clock[0] + (1 - fraction) * (clock[-1] - clock[0])
        if (~test).sum() < 3 or not test.any():
            raise UserError(
                f"a test fraction of {fraction:g} leaves {(~test).sum()} rows to learn from and "
                f"{test.sum()} to test on; at least 3 and 1 are needed (--test-fraction, or "
                "--horizon to forecast the future)"
            )
    covariates = None if series.covariates is None else series.covariates[test]
    return _Task(~test, x[test], series.y[test], covariates)


def _fit(series: TimeSeries, task: _Task, args: argparse.Namespace) -> NKNForecaster:
    from gpytorch_nkn.estimators import NKNForecaster, TimeAxis

    x = series.index[task.train]
    train_covariates = None if series.covariates is None else series.covariates[task.train]
    forecaster = NKNForecaster(
        quality=args.quality,
        seasons="auto" if args.season is None else _periods(args.season, TimeAxis.of(x)),
        transform=args.transform,
        bounds=args.bounds,
        horizon=len(task.times),
        outliers=args.outliers,
        budget=args.budget,
        n_jobs=args.jobs,
        random_state=args.seed,
        progress=not args.no_progress,
    )
    with user_errors("train"):
        forecaster.fit(x, series.y[task.train], covariates=train_covariates)
    unfinished = int(forecaster.scores_["status"].isin(["interrupted", "untrained"]).sum())
    if unfinished:
        total = len(forecaster.scores_)
        say(f"Note: training was cut short in {unfinished} of {total} structures.")
    return forecaster


def _periods(texts: list[str], axis: TimeAxis) -> list[float | str]:
    """Convert seasons for the forecaster; for dates, numbers of steps become days."""
    periods: list[float | str] = []
    for text in texts:
        try:
            periods.append(float(text) * (axis.step if axis.has_dates else 1.0))
        except ValueError:
            periods.append(text)
    return periods


def _named_seasons(forecaster: NKNForecaster, series: TimeSeries) -> list[str]:
    """Return the forecaster's seasons as words or durations."""
    if not series.has_dates:
        return [f"{period:.6g}" for period in forecaster.seasons_]
    return [
        _SEASONS.get(round(days, 6), f"{24 * days:.4g} hours" if days < 1 else f"{days:.4g} days")
        for days in forecaster.seasons_
    ]


def _forecast_all(
    forecaster: NKNForecaster, task: _Task, start: float
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Return the forecast, and scores and seconds of the forecast and the seasonal naive rule."""
    import pandas as pd

    from gpytorch_nkn.baselines import seasonal_naive_forecast
    from gpytorch_nkn.metrics import forecast_scores

    mixture = forecaster.predict_distribution(task.times, covariates=task.covariates)
    median, low, high = (mixture.quantile(level) for level in (0.5, 0.025, 0.975))
    table = pd.DataFrame({"median": median, "std": mixture.std(), "lo-95": low, "hi-95": high})
    y, scores = task.observed, {}
    table["observed"] = np.nan if y is None else y

    def add(name: str, density: Any, mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        scores[name] = {"seconds": round(time.perf_counter() - start, 2)}
        if y is None:
            return
        logs = density(y)
        impossible = np.isneginf(logs)
        finite = np.where(impossible, 0.0, logs)
        scores[name] |= forecast_scores(y, mean=mean, lower=low, upper=high, log_density=finite)
        if impossible.any():
            scores[name]["mean_log_density"] = -np.inf
            say(
                f"Note: {impossible.sum()} of {y.size} held-out values have probability 0: they "
                "are beyond the bounds, or not integers as the training values are. --transform "
                "identity without --bounds allows all values."
            )

    add("NKN", mixture.log_density, median, low, high)
    if y is not None:
        start = time.perf_counter()
        past = forecaster.observed_
        x, new = (forecaster.time_axis_.numbers(times) for times in (past.index, task.times))
        naive = seasonal_naive_forecast(x, past.to_numpy(), new, seasons=forecaster.seasons_)
        add("seasonal naive", naive.logpdf, naive.mean(), *naive.interval(0.95))
    return table, scores


def _draw(
    path: Path, series: TimeSeries, forecaster: NKNForecaster, task: _Task, table: pd.DataFrame
) -> str:
    """Draw the forecast, and return a sentence with the path of the figure."""
    from gpytorch_nkn.plotting import plot_forecast

    past, ahead = (forecaster.time_axis_.numbers(times) for times in (series.index, task.times))
    order = np.argsort(ahead, kind="stable")
    begin = ahead.min() - _HISTORY * max(np.ptp(ahead), ahead.min() - past[task.train].max())
    shown = task.train & (past >= begin) & ~series.index.isin(forecaster.outliers_)
    new_x = (task.times.tz_localize(None) if series.zone else task.times).to_numpy()
    curves = new_x[order], *table[["median", "lo-95", "hi-95"]].to_numpy()[order].T
    options: dict[str, Any] = {
        "train": (series.x[shown], series.y[shown]),
        "test": None if task.observed is None else (new_x, task.observed),
        "x_label": literal(f"{series.x_label} ({series.zone})" if series.zone else series.x_label),
        "y_label": literal(series.y_label),
        "title": literal(series.name),
    }
    return save_figure(path, (9, 4.5), lambda ax: plot_forecast(ax, *curves, **options))


def _score_table(scores: dict[str, dict[str, float]]) -> str:
    import pandas as pd

    names = {"rmse": "RMSE", "mae": "MAE", "mean_log_density": "log density"}
    names |= {"coverage": "95 % cover", "seconds": "seconds"}
    table = pd.DataFrame(scores).T[list(names)].rename(columns=names)
    return table.to_string(float_format=_plain(4))


def _first_steps(table: pd.DataFrame, label: str) -> str:
    columns = ["median", "lo-95", "hi-95"]
    widths, largest = table["hi-95"] - table["lo-95"], table[columns].abs().to_numpy().max()
    ratio = largest / widths[widths > 0].min() if (widths > 0).any() else 1.0
    digits = int(np.clip(np.ceil(np.log10(ratio)) + 2, 5, 15))
    rows = table[["time", *columns]].to_string(
        index=False, float_format=_plain(digits), max_rows=_PRINTED
    )
    return f"Forecast of {label}:\n{rows}"


def _plain(digits: int) -> Callable[[float], str]:
    """Return a function that writes significant digits, without exponents below 1e15."""
    return lambda value: f"{float(f'{value:.{digits}g}'):.15g}"
