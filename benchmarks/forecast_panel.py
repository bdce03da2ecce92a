"""Forecasts of everyday series from rolling origins, beside those of the usual forecasters.

``python -m benchmarks.forecast_panel`` forecasts the last horizon of every series of a panel, the
horizon before it, and so on, each from all that came before, adds each finished forecast to a
JSON-lines file (so that a second call goes on where the first one ended), and prints the scores
as a Markdown table; ``--summary`` prints them without running anything, ``--long`` does the same
for a few long series, each run in a process of its own, whose peak memory counts. The environment
variable GPYTORCH_NKN_DATA names the folder of the data.

Forecasters are told the season of a series where it is a short one. Seasons of 48 and 52 steps,
which those of statsforecast do without, are not told to any; ours may read them off the time axis.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from benchmarks.data import load_long_series, load_panel
from benchmarks.forecast_panel_report import LongTask, long_table, panel_table

__all__ = ["main"]

_LEVELS = (80, 95)
_LONGEST_SEASON = 24  # that is told
_ORIGINS = 3
_FEWEST_POINTS = 12
_SEED = 0
# The sunspots have no season by the calendar: their cycle is of about eleven years.
_LONG = {
    "half_hourly_demand": LongTask(336, (48, 336), "30min"),
    "daily_temperature": LongTask(60, (365,), "D"),
    "monthly_sunspots": LongTask(60, (132,), "MS"),
}
_OURS: dict[str, dict] = {
    "fast": {"quality": "fast"},
    "default": {},
    "best": {"quality": "best"},
    "auto-seasons": {"seasons": "auto"},
    "no-priors": {"priors": False},
    "network": {"structure": "time_series"},
    "fixed-sum": {"quality": "fast", "transform": "identity"},
}
_PEERS = ("AutoARIMA", "AutoETS", "AutoTheta", "AutoCES", "SeasonalNaive")
_METHODS = (*_OURS, *_PEERS)
_LONG_METHODS = ("default", "SeasonalNaive", "MSTL", "AutoTBATS", "Prophet")
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_LIBRARIES = ("torch", "gpytorch", "numpy", "scipy", "statsforecast", "prophet")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing in the results file and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.forecast_panel", description=__doc__
    )
    parser.add_argument("--long", action="store_true", help="the long series")
    parser.add_argument("--series", nargs="+", metavar="NAME", help="all by default")
    parser.add_argument("--origins", type=int, default=_ORIGINS, metavar="K", help="of the panel")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=sorted({*_METHODS, *_LONG_METHODS}),
        metavar="NAME",
        help=f"default: default and the peers; {', '.join(_METHODS)} (long: {_LONG_METHODS})",
    )
    parser.add_argument("--summary", action="store_true", help="print the table, run nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes of one core")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/forecast_panel.jsonl"), metavar="FILE"
    )
    args = parser.parse_args(argv)
    try:
        known = tuple(_LONG) if args.long else tuple(load_panel())
    except FileNotFoundError as error:
        parser.error(str(error))
    names = args.series or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--series must be of {', '.join(known)}; got {', '.join(unknown)}.")
    if args.summary:
        methods = args.methods or tuple(dict.fromkeys((*_METHODS, *_LONG_METHODS)))
    else:
        usual = _LONG_METHODS if args.long else ("default", *_PEERS)
        methods = [name for name in args.methods or usual if _is_available(name)]
    try:
        wanted = _long_jobs(names, methods) if args.long else _jobs(names, methods, args.origins)
    except FileNotFoundError as error:
        parser.error(str(error))
    records = _read(args.out)
    failures = 0
    if not args.summary:
        failures = _run([job for job in wanted if _key(job) not in records], args, records)
    found = [records[_key(job)] for job in wanted if _key(job) in records]
    print(long_table(found, _LONG) if args.long else panel_table(found, load_panel()))
    return 1 if failures else 0


def _jobs(names: Sequence[str], methods: Sequence[str], origins: int) -> list[dict]:
    """Forecasts of a series by all methods, where enough points are before an origin."""
    panel = load_panel()
    found = []
    for name in names:
        series = panel[name]
        fewest = max(_FEWEST_POINTS, 2 * _told_season(series.season) + 2, series.season + 1)
        for origin in range(origins):
            if series.y.size - (origin + 1) * series.horizon >= fewest:
                found += [{"series": name, "origin": origin, "method": m} for m in methods]
    return found


def _long_jobs(names: Sequence[str], methods: Sequence[str]) -> list[dict]:
    for name in names:
        load_long_series(name)
    return [
        {"series": name, "origin": 0, "method": m, "long": True} for name in names for m in methods
    ]


def _run(jobs: Sequence[dict], args: argparse.Namespace, records: dict[str, dict]) -> int:
    """How many of ``jobs`` failed; the others are added to the file and to ``records``."""
    print(f"{len(jobs)} runs are missing in {args.out}.", file=sys.stderr)
    if not jobs:
        return 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))  # for the processes to come
    failures = 0
    with ProcessPoolExecutor(
        args.jobs,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1 if args.long else None,
    ) as pool:
        for finished in as_completed([pool.submit(_run_one, job) for job in jobs]):
            record = finished.result()
            if "fault" in record:
                failures += 1
                print(f"{_key(record)} failed:\n{record['fault']}", file=sys.stderr)
                continue
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            records[_key(record)] = record
            print(f"{_key(record)}: {record['cpu_seconds']:.2f} CPU s", file=sys.stderr)
    return failures


def _key(job: dict) -> str:
    return f"{job['series']} | origin {job['origin']} | {job['method']}"


def _read(path: Path) -> dict[str, dict]:
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {_key(record): record for record in map(json.loads, filter(None, lines))}


def _is_available(method: str) -> bool:
    library = "prophet" if method == "Prophet" else "statsforecast"
    if method not in _OURS and importlib.util.find_spec(library) is None:
        print(f"{method} is left out: pip install {library} to run it.", file=sys.stderr)
        return False
    return True


def _run_one(job: dict) -> dict:
    """The record of a run, or ``fault`` beside the job."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _forecast(job)
        except Exception:
            return {**job, "fault": traceback.format_exc()[-2000:]}


def _forecast(job: dict) -> dict:
    name, method = job["series"], job["method"]
    if job.get("long"):
        x, y = load_long_series(name)
        horizon, seasons, _ = _LONG[name]
        told: list[float] | str = "auto"
    else:
        series = _panel()[name]
        last = series.y.size - job["origin"] * series.horizon
        x, y, horizon = series.time[:last], series.y[:last], series.horizon
        seasons = (_told_season(series.season),)
        step = float(np.median(np.diff(np.unique(x[:-horizon]))))
        told = [series.season * step] if series.season > 1 else []
        if series.season > _LONGEST_SEASON:
            told = "auto"
    train_x, train_y, new_x = x[:-horizon], y[:-horizon], x[-horizon:]
    _warm_up(method)
    start = _cpu_seconds()
    if method in _OURS:
        forecast = _ours(train_x, train_y, new_x, {"seasons": told, **_OURS[method]})
    elif method == "Prophet":
        forecast = _prophet(train_y, horizon, _LONG[name])
    else:
        forecast = _peer(method, train_y, horizon, seasons)
    cpu = _cpu_seconds() - start
    return {
        **job,
        "num_train": int(train_y.size),
        "forecast": {key: [float(v) for v in values] for key, values in forecast.items()},
        "cpu_seconds": cpu,
        "peak_gigabytes": _peak_gigabytes(),
        "versions": _versions(),
    }


def _told_season(season: int) -> int:
    return season if season <= _LONGEST_SEASON else 1


@cache
def _panel() -> dict:
    return load_panel()


@cache
def _warm_up(method: str) -> None:
    """Once in a process, on a few points: imports and compilation are not what is measured."""
    short = np.arange(36.0)
    y = np.sin(short) + short / 10
    if method in _OURS:
        _ours(short, y, np.arange(36.0, 38.0), {"quality": "fast", "seasons": [6.0]})
    elif method not in _LONG_METHODS:  # whose parts are compiled within seconds of their minutes
        _peer(method, y, 2, (6,))


def _ours(x: np.ndarray, y: np.ndarray, new_x: np.ndarray, options: dict) -> dict:
    import torch

    from gpytorch_nkn.estimators import NKNForecaster

    torch.set_num_threads(1)
    forecaster = NKNForecaster(
        horizon=new_x.size, random_state=_SEED, progress=False, **options
    ).fit(x, y)
    ends = [(50 - level / 2) / 100 for level in _LEVELS]
    probabilities = [0.5, *ends, *(1 - end for end in ends)]
    quantiles = forecaster.predict_quantiles(new_x, probabilities)
    names = ["mean", *(f"lo-{k}" for k in _LEVELS), *(f"hi-{k}" for k in _LEVELS)]
    return dict(zip(names, quantiles.T, strict=True))


def _peer(method: str, y: np.ndarray, horizon: int, seasons: Sequence[int]) -> dict:
    from statsforecast import models

    make: Callable = getattr(models, method)
    if method == "MSTL":
        model = make(season_length=list(seasons), trend_forecaster=models.AutoETS(model="ZZN"))
    elif method == "AutoTBATS":
        model = make(season_length=list(seasons))
    else:
        model = make(season_length=seasons[-1])
    forecast = model.forecast(y=y, h=horizon, level=list(_LEVELS))
    return {key: np.asarray(values) for key, values in forecast.items() if key != "fitted"}


def _prophet(y: np.ndarray, horizon: int, task: LongTask) -> dict:
    """With seasons by the calendar, and one that the calendar does not know."""
    import pandas as pd
    from prophet import Prophet

    times = pd.date_range("2000-01-01", periods=y.size + horizon, freq=task.frequency)
    model = Prophet()
    if task.frequency == "MS":
        model.add_seasonality("cycle", period=task.seasons[-1] * 365.25 / 12, fourier_order=10)
    np.random.seed(_SEED)  # which it draws by
    model.fit(pd.DataFrame({"ds": times[: y.size], "y": y}))
    ahead = pd.DataFrame({"ds": times[y.size :]})
    draws = model.predictive_samples(ahead)["yhat"]
    found = {"mean": model.predict(ahead)["yhat"].to_numpy()}
    for level in _LEVELS:
        low, high = np.percentile(draws, [50 - level / 2, 50 + level / 2], axis=1)
        found |= {f"lo-{level}": low, f"hi-{level}": high}
    return found


def _cpu_seconds() -> float:
    """Of this process and those that it waited for: Prophet runs Stan."""
    return sum(os.times()[:4])


def _peak_gigabytes() -> float | None:
    """Of this process since its start; ``None`` where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _versions() -> dict[str, str]:
    found = [name for name in _LIBRARIES if importlib.util.find_spec(name) is not None]
    return {name: metadata.version(name) for name in found}


if __name__ == "__main__":
    sys.exit(main())
