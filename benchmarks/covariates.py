"""Forecasts with and without covariates, whose values at the times of the forecast are known.

``python -m benchmarks.covariates`` prints a Markdown table for two series, each forecast from
several origins: monthly road casualties (kilometres driven, petrol price, a law; a year ahead) and
half-hourly demand for electricity (temperature, also averaged over the past 6 and 24 hours, days
at work; a week ahead from 2,000 points). AutoARIMA of statsforecast is there if that is installed,
with the same covariates as regressors, and only for the months: seasons of 48 steps are too long
for it. The environment variable GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.data import data_folder
from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["main"]

_POINTS = 2000  # half-hours that are learned from
_LEVEL = 95
Forecast = tuple[np.ndarray, np.ndarray, np.ndarray]  # median, lower and upper end


def main() -> int:
    """Run everything and print the table."""
    try:
        road, demand = _road_casualties(), _half_hourly_demand()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    warnings.simplefilter("ignore", UserWarning)  # a law that is not yet in force
    print("| series | method | covariates | MASE | MSIS | 95 % coverage | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    methods: dict[str, Callable] = {"NKNForecaster": _ours, "seasonal naive": _naive}
    if importlib.util.find_spec("statsforecast"):
        methods["AutoARIMA"] = _arima
    origins = range(96, len(road[0]) - 11, 12)
    _rows("road casualties", *road, methods, origins, horizon=12, season=12)
    methods.pop("AutoARIMA", None)
    origins = range(len(demand[0]) - 3 * 336, len(demand[0]), 336)
    _rows("half-hourly demand", *demand, methods, origins, horizon=336, season=336)
    return 0


def _road_casualties() -> tuple[pd.Series, pd.DataFrame]:
    frame = pd.read_csv(data_folder() / "covariate_series" / "road_casualties.csv", index_col="x")
    return frame["drivers"], frame[["kms", "petrol_price", "law"]]


def _half_hourly_demand() -> tuple[pd.Series, pd.DataFrame]:
    frame = pd.read_csv(data_folder() / "long_series" / "half_hourly_demand.csv", index_col="x")
    known = frame[["temperature", "workday"]].copy()
    for hours in (6, 24):
        known[f"temperature_{hours}h"] = known["temperature"].rolling(2 * hours).mean()
    rows = slice(-_POINTS - 3 * 336, None)
    return frame["demand"].iloc[rows], known.iloc[rows]


def _rows(
    name: str,
    y: pd.Series,
    covariates: pd.DataFrame,
    methods: dict[str, Callable],
    origins: range,
    *,
    horizon: int,
    season: int,
) -> None:
    for method, run in methods.items():
        for known in (None, covariates):
            if known is not None and run is _naive:
                continue
            begin, scores = time.process_time(), []
            for origin in origins:
                past, ahead = slice(origin), slice(origin, origin + horizon)
                beside = (None, None) if known is None else (known.iloc[past], known.iloc[ahead])
                found = run(y.iloc[past], y.index[ahead], *beside, season)
                values = y.iloc[past].to_numpy()
                step = np.abs(values[season:] - values[:-season]).mean()
                scores.append(_scores(found, y.iloc[ahead].to_numpy(), step))
            seconds = (time.process_time() - begin) / len(origins)
            mase, msis, covered = np.mean(scores, axis=0)
            columns = "none" if known is None else ", ".join(known.columns)
            print(
                f"| {name} | {method} | {columns} | {mase:.3f} | {msis:.2f} | "
                f"{100 * covered:.0f} % | {seconds:.1f} |",
                flush=True,
            )


def _scores(found: Forecast, y: np.ndarray, step: float) -> tuple[float, float, float]:
    """Mean absolute and interval scores by the error of the seasonal naive rule; coverage."""
    median, low, high = found
    missed = np.clip(low - y, 0, None) + np.clip(y - high, 0, None)
    interval = high - low + 2 / (1 - _LEVEL / 100) * missed
    inside = (y >= low) & (y <= high)
    return np.abs(median - y).mean() / step, interval.mean() / step, inside.mean()


def _ours(
    past: pd.Series,
    times: pd.Index,
    known: pd.DataFrame | None,
    later: pd.DataFrame | None,
    season: int,
) -> Forecast:
    model = NKNForecaster(random_state=0, progress=False).fit(past, covariates=known)
    found = model.predict_quantiles(times, [0.5, 0.025, 0.975], covariates=later)
    return found[:, 0], found[:, 1], found[:, 2]


def _naive(past: pd.Series, times: pd.Index, known: None, later: None, season: int) -> Forecast:
    values = past.to_numpy()
    width = 1.96 * np.std(values[season:] - values[:-season])
    found = values[-season:][: len(times)]
    return found, found - width, found + width


def _arima(
    past: pd.Series,
    times: pd.Index,
    known: pd.DataFrame | None,
    later: pd.DataFrame | None,
    season: int,
) -> Forecast:
    from statsforecast.models import AutoARIMA

    regressors: tuple = (None, None)
    if known is not None and later is not None:
        varies = known.std() > 0
        regressors = known.loc[:, varies].to_numpy(float), later.loc[:, varies].to_numpy(float)
    model = AutoARIMA(season_length=season).fit(past.to_numpy(float), regressors[0])
    found = model.predict(len(times), regressors[1], level=[_LEVEL])
    return found["mean"], found[f"lo-{_LEVEL}"], found[f"hi-{_LEVEL}"]


if __name__ == "__main__":
    sys.exit(main())
