"""What ``gpytorch-nkn forecast`` and ``gpytorch-nkn demo`` do."""

from __future__ import annotations

import argparse
import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.cli.common import (
    UserError,
    is_smoke_test,
    literal,
    make_folder,
    new_axes,
    settings,
    versions,
    write_summary,
)
from gpytorch_nkn.datasets import (
    TimeSeries,
    decimal_years,
    future_times,
    load_co2,
    read_time_series,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["run_forecast"]

_HISTORY = 20  # spans of the forecast that the figure shows before it
_TEST_FRACTION = 0.1
_NAIVE_ROWS = 1000  # the last ones, that the naive rule learns from
_NO_MATPLOTLIB = "a report needs matplotlib: pip install 'gpytorch_nkn[plot]'"


def run_forecast(args: argparse.Namespace) -> None:
    """Forecast a series and write the files of it; a UserError ends the command."""
    started = time.perf_counter()
    if is_smoke_test():
        args.quality, args.steps = "fast", args.steps or 20
    series = _load(args)
    for notice in series.notices:
        print(f"Note: {notice}")
    if series.x_label == "rows" and args.season is None:
        print("Note: Counted rows tell no season: if there is one, say how many rows by --season.")
    task = _split(series, args)
    train, new_x, observed = task.train, task.times, task.observed
    make_folder(args.out)
    if args.report is not None:
        _prepare_report(args.report)
    print(
        f"{series.name}: learning from {train.sum()} rows to {_time_text(series.x[train][-1])}; "
        f"{'forecasting' if observed is None else 'held out are'} {new_x.size} steps, "
        f"{_time_text(new_x[0])} to {_time_text(new_x[-1])}.",
        flush=True,
    )

    # dates are turned into numbers together, so that all of them are counted in the same way
    times = np.concatenate([series.x, new_x])
    times = decimal_years(times) if series.has_dates else times
    x, y, new = times[: train.size][train], series.y[train], times[train.size :]
    known = None if series.covariates is None else series.covariates[train]
    results, forecaster = _forecast_all(args, x, y, new, observed, known, task.covariates)
    ours = results["NKN"]

    try:
        _write_csv(args.out / "forecast.csv", new_x, ours, observed)
        figure = _draw(args.out / "forecast.png", series, train, times, new_x, observed, ours)
        rows = {"total": int(series.y.size), "train": int(train.sum()), "forecast": int(new.size)}
        scores = {name: _scores(result, observed) for name, result in results.items()}
        summary = {
            "series": series.name,
            "settings": settings(args),
            "seed": args.seed,
            "versions": versions(),
            "notices": list(series.notices),
            "rows": rows,
            "time": {"first": _time_text(series.x[0]), "last": _time_text(new_x[-1])},
            "results": scores,
            "seconds": round(time.perf_counter() - started, 2),
        }
        write_summary(args.out, summary)
    except OSError as error:
        raise UserError(f"cannot write to {args.out}: {error.strerror}") from None
    print(_table(scores) if observed is not None else _outlook(new_x, ours, series.y_label))
    print(f"Forecast and summary: {args.out / 'forecast.csv'}, {args.out / 'summary.json'}")
    if args.report is not None:
        _write_report(args, series, forecaster, x, new, task.covariates)
    if figure:
        print(f"The figure is at {args.out / 'forecast.png'}")
    else:
        print("No figure, as matplotlib is missing: pip install 'gpytorch_nkn[plot]'")


def _prepare_report(path: Path) -> None:
    """End the command before the training if there could be no report."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(_NO_MATPLOTLIB)
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    make_folder(path.parent)


def _write_report(
    args: argparse.Namespace,
    series: TimeSeries,
    forecaster: NKNForecaster,
    x: np.ndarray,
    new: np.ndarray,
    covariates: pd.DataFrame | None,
) -> None:
    from gpytorch_nkn.interpretation import report

    print("Making the report ...", flush=True)
    ahead: dict[str, Any] = {"horizon": min(float(new.max() - x.max()), 10 * np.ptp(x))}
    if forecaster.covariates_.names:
        ahead = {"future": (new, covariates)}
    try:
        made = report(
            forecaster,
            **ahead,
            title=f"What was found in {series.name}",
            x_name=None if series.has_dates else series.x_label,
            x_unit=args.time_unit or ("yr" if series.has_dates else None),
            y_name=series.y_label,
            y_unit=args.target_unit,
            seed=args.seed,
            progress=not args.no_progress,
        )
        made.save(args.report)
    except ImportError:
        raise UserError(_NO_MATPLOTLIB) from None
    except OSError as error:
        raise UserError(f"cannot write {args.report}: {error.strerror}") from None
    except (MemoryError, RuntimeError, ValueError) as error:
        raise UserError(f"no report could be made: {error}", code=1) from None
    print("\n".join(["", *made.summary, ""]))
    print(f"The report is at {args.report}")


def _load(args: argparse.Namespace) -> TimeSeries:
    try:
        if args.command == "demo":
            return load_co2()
        return read_time_series(
            args.file,
            time=args.time,
            target=args.target,
            covariates=args.covariates,
            future=args.future,
            where=dict(args.where),
            dayfirst=args.dayfirst,
            date_format=args.date_format,
            decimal=args.decimal,
            na_values=args.na_values,
            sep=args.sep,
            encoding=args.encoding,
            has_header=args.header,
            skiprows=args.skip_rows,
        )
    except OSError as error:
        path = error.filename or args.file
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ImportError, ValueError) as error:
        raise UserError(error) from None


@dataclass
class _Task:
    """What is learned from and what is forecast.

    Attributes:
        train: Mask ``N`` of the rows to learn from.
        times: Times ``M`` of the forecast.
        observed: What was observed there; None for the future.
        covariates: Their values there; None for none.
    """

    train: np.ndarray
    times: np.ndarray
    observed: np.ndarray | None
    covariates: pd.DataFrame | None


def _split(series: TimeSeries, args: argparse.Namespace) -> _Task:
    if series.y.size < 3:
        raise UserError(f"a series needs at least 3 rows with a value, got {series.y.size}")
    if np.unique(series.x).size < 3:
        raise UserError(f"at least 3 different times are needed, got {np.unique(series.x).size}")
    if np.ptp(series.y) == 0:
        raise UserError(f"the target {series.y_label!r} is constant ({series.y[0]:g})")
    test = series.test
    if args.command == "forecast":
        known = 0 if series.future_x is None else series.future_x.size
        if args.horizon is not None or (known and args.test_fraction is None):
            return _future(series, args.horizon or known)
        fraction = args.test_fraction or _TEST_FRACTION
        clock = series.time
        test = clock > clock[0] + (1 - fraction) * (clock[-1] - clock[0])
        if (~test).sum() < 3 or np.unique(series.x[~test]).size < 2 or not test.any():
            raise UserError(
                f"a test fraction of {fraction:g} leaves {(~test).sum()} rows to learn from and "
                f"{test.sum()} to test on; at least 3 and 1 are needed (--test-fraction, or "
                "--horizon to forecast the future)"
            )
        if np.ptp(series.y[~test]) == 0:
            raise UserError(f"the target {series.y_label!r} is constant before the held-out part")
    beside = None if series.covariates is None else series.covariates[test]
    return _Task(~test, series.x[test], series.y[test], beside)


def _future(series: TimeSeries, horizon: int) -> _Task:
    """All rows, and the steps that follow them."""
    train = np.ones(series.x.size, bool)
    if series.covariates is None:
        return _Task(train, future_times(series.x, horizon), None, None)
    assert series.future_x is not None and series.future_covariates is not None
    known = series.future_x.size
    if known < horizon:
        fewer = f", or ask for --horizon {known}" if known else ""
        raise UserError(
            f"a forecast of {horizon} steps needs the covariates of {horizon} rows after "
            f"{_time_text(series.x[-1])}, got {known}: add rows without a target to the file, or "
            f"name a second file by --future{fewer}"
        )
    later = series.future_covariates.iloc[:horizon]
    return _Task(train, series.future_x[:horizon], None, later)


def _forecast_all(
    args: argparse.Namespace,
    x: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    observed: np.ndarray | None,
    known: pd.DataFrame | None,
    later: pd.DataFrame | None,
) -> tuple[dict[str, _MethodForecast], NKNForecaster]:
    from gpytorch_nkn.baselines import seasonal_naive_forecast
    from gpytorch_nkn.estimators import NKNForecaster
    from gpytorch_nkn.fit import Recipe

    recipe = None
    if args.steps is not None:
        recipe = Recipe(adam_steps=args.steps, lbfgs_iterations=args.steps // 5)
    forecaster = NKNForecaster(
        quality=args.quality,
        seasons="auto" if args.season is None else args.season,
        transform=args.transform,
        bounds=args.bounds,
        horizon=new.size,
        recipe=recipe,
        budget=args.budget,
        n_jobs=args.jobs,
        random_state=args.seed,
        progress=not args.no_progress,
    )
    start = time.perf_counter()
    try:
        forecaster.fit(x, y, covariates=known)
    except ValueError as error:
        raise UserError(error) from None
    except RuntimeError as error:  # every candidate failed
        raise UserError(f"training failed: {error}", code=1) from None
    unfinished = int((forecaster.scores_["status"] == "interrupted").sum())
    if unfinished:
        total = len(forecaster.scores_)
        print(f"Note: training was cut short in {unfinished} of {total} structures.")
    found = forecaster.predict_distribution(new, covariates=later)
    median, low, high = (found.quantile(level) for level in (0.5, 0.025, 0.975))
    density = None if observed is None else found.log_density(observed)
    seconds = time.perf_counter() - start
    results = {"NKN": _MethodForecast(median, found.std(), low, high, density, seconds)}
    if observed is None:
        return results, forecaster
    start = time.perf_counter()
    naive = seasonal_naive_forecast(x[-_NAIVE_ROWS:], y[-_NAIVE_ROWS:], new)
    seconds, density = time.perf_counter() - start, naive.log_density(observed)
    results["seasonal naive"] = _MethodForecast(
        naive.mean, naive.std, *naive.interval(), density, seconds
    )
    return results, forecaster


def _scores(result: _MethodForecast, observed: np.ndarray | None) -> dict[str, float]:
    from gpytorch_nkn.metrics import forecast_scores

    scores: dict[str, float] = {}
    if observed is not None and result.log_density is not None:
        scores = forecast_scores(
            observed,
            mean=result.mean,
            lower=result.lower,
            upper=result.upper,
            log_density=result.log_density,
        )
    return {**scores, "seconds": round(result.seconds, 2)}


@dataclass
class _MethodForecast:
    """Mean, deviation and band of one method at the new times."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log_density: np.ndarray | None
    seconds: float


def _write_csv(
    path: Path, new_x: np.ndarray, result: _MethodForecast, observed: np.ndarray | None
) -> None:
    import pandas as pd

    table = {
        "time": [_time_text(moment) for moment in new_x],
        "median": result.mean,
        "std": result.std,
        "lower95": result.lower,
        "upper95": result.upper,
        "observed": np.nan if observed is None else observed,
    }
    pd.DataFrame(table).to_csv(path, index=False, float_format="%.10g")


def _draw(
    path: Path,
    series: TimeSeries,
    train: np.ndarray,
    times: np.ndarray,
    new_x: np.ndarray,
    observed: np.ndarray | None,
    result: _MethodForecast,
) -> bool:
    """Draw the forecast; False if matplotlib is missing."""
    ax = new_axes((9, 4.5))
    if ax is None:
        return False
    from gpytorch_nkn.plotting import plot_forecast

    past, ahead = times[: train.size], times[train.size :]
    order = np.argsort(ahead, kind="stable")
    begin = ahead.min() - _HISTORY * max(np.ptp(ahead), ahead.min() - past[train].max())
    shown = train & (past >= begin)
    dates = "datetime64[s]" if series.has_dates else float
    plot_forecast(
        ax,
        new_x[order].astype(dates),
        result.mean[order],
        result.lower[order],
        result.upper[order],
        train=(series.x[shown].astype(dates), series.y[shown]),
        test=None if observed is None else (new_x.astype(dates), observed),
        x_label=literal(series.x_label),
        y_label=literal(series.y_label),
        title=literal(series.name),
    )
    ax.figure.savefig(path)
    return True


def _table(scores: dict[str, dict[str, float]]) -> str:
    import pandas as pd

    names = {"rmse": "RMSE", "mae": "MAE", "mean_log_density": "log density"}
    names |= {"coverage": "95 % cover", "seconds": "seconds"}
    return pd.DataFrame(scores).T[list(names)].rename(columns=names).to_string(float_format="%.4g")


def _outlook(new_x: np.ndarray, result: _MethodForecast, label: str) -> str:
    lines = [f"{'time':<20}{'median':>12}{'95 % band':>27}   ({label})"]
    for i in sorted({0, new_x.size // 2, new_x.size - 1}):
        band = f"{result.lower[i]:.5g} to {result.upper[i]:.5g}"
        lines.append(f"{_time_text(new_x[i]):<20}{result.mean[i]:>12.5g}{band:>27}")
    return "\n".join(lines) + f"\nTrained in {result.seconds:.1f} seconds."


def _time_text(moment: Any) -> str:
    """A time as it is written: ISO for dates, the shortest number otherwise."""
    if isinstance(moment, np.datetime64):
        return str(moment)
    return f"{moment:.12g}"
