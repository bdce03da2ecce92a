"""Forecasts with and without covariates, whose values at the times of the forecast are known.

The series are monthly road casualties (kilometres driven, petrol price, a law; a year ahead) and
half-hourly demand for electricity (temperature, also averaged over the past 6 and 24 hours,
workdays; a week ahead from 2,000 points), each from several origins. AutoARIMA takes the covariates
as regressors. It runs on the monthly series only, because seasons of 48 steps are too long for it.
GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.data import load_frame
from benchmarks.forecast_panel import score
from benchmarks.report import Table, mean, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["BENCHMARK"]

_POINTS = 2000  # half-hours in a training set
_SEASONS = {"road casualties": 12, "half-hourly demand": 336}  # seasons and horizons in steps


def _road_casualties() -> tuple[pd.Series, pd.DataFrame]:
    frame = load_frame("covariate_series/road_casualties.csv", index_col="x")
    return frame["drivers"], frame[["kms", "petrol_price", "law"]]


def _half_hourly_demand() -> tuple[pd.Series, pd.DataFrame]:
    frame = load_frame("long_series/half_hourly_demand.csv", index_col="x")
    known = frame[["temperature", "workday"]].copy()
    for hours in (6, 24):
        known[f"temperature_{hours}h"] = known["temperature"].rolling(2 * hours).mean()
    rows = slice(-_POINTS - 3 * 336, None)
    return frame["demand"].iloc[rows], known.iloc[rows]


_LOAD = {"road casualties": _road_casualties, "half-hourly demand": _half_hourly_demand}


def run(series: str, method: str, origin: int) -> dict:
    """Return scores of a forecast; methods with names ending in + use the covariates."""
    y, known = _LOAD[series]()
    season = _SEASONS[series]
    first = range(96, len(y) - 11, 12) if season == 12 else range(len(y) - 3 * 336, len(y), 336)
    start = first[origin]
    past, times = y.iloc[:start], y.index[start : start + season]
    beside: Any = None
    if method.endswith("+"):
        beside = known.iloc[:start], known.iloc[start : start + season]
    make = _METHODS[method.removesuffix("+")]
    (median, low, high), seconds = timed(lambda: make(past, times, beside, season))
    truth, values = y.loc[times].to_numpy(), past.to_numpy()
    scale = float(np.abs(values[season:] - values[:-season]).mean())
    forecast = {"mean": median, "lo-95": low, "hi-95": high}
    known_to = ", ".join(known.columns) if beside else "none"
    return {"covariates": known_to, "seconds": seconds, **score(forecast, truth, scale)}


def _ours(past: pd.Series, times: pd.Index, beside: Any, season: int) -> tuple:
    before, ahead = beside or (None, None)
    model = NKNForecaster(random_state=0, progress=False).fit(past, covariates=before)
    return tuple(model.predict_quantiles(times, [0.5, 0.025, 0.975], covariates=ahead).T)


def _naive(past: pd.Series, times: pd.Index, beside: Any, season: int) -> tuple:
    values = past.to_numpy()
    width = 1.96 * np.std(values[season:] - values[:-season])
    forecast = values[-season:][: len(times)]
    return forecast, forecast - width, forecast + width


def _arima(past: pd.Series, times: pd.Index, beside: Any, season: int) -> tuple:
    from statsforecast.models import AutoARIMA

    before = ahead = None
    if beside:
        varies = beside[0].std() > 0
        before, ahead = (frame.loc[:, varies].to_numpy(float) for frame in beside)
    model = AutoARIMA(season_length=season).fit(past.to_numpy(float), before)
    forecast = model.predict(len(times), ahead, level=[95])
    return forecast["mean"], forecast["lo-95"], forecast["hi-95"]


_METHODS = {"NKNForecaster": _ours, "seasonal naive": _naive, "AutoARIMA": _arima}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return means over the origins."""
    rows = [{**row, "method": row["method"].removesuffix("+")} for row in rows]
    cells = {
        "MASE": mean("mase", ".3f"),
        "MSIS": mean("msis", ".2f"),
        "95 % coverage": lambda runs: f"{100 * fmean(row['95'] for row in runs):.0f} %",
        "CPU s": mean("seconds", ".1f"),
    }
    return {"covariates": summary(rows, ("series", "method", "covariates"), cells)}


BENCHMARK = Benchmark(
    {
        "series": Axis(list(_SEASONS)),
        "method": Axis([*_METHODS, "NKNForecaster+", "AutoARIMA+"]),
        "origin": Axis(range(8)),
    },
    run,
    tables,
    possible=lambda job: (
        job["series"] == "road casualties"
        or (job["origin"] < 3 and not job["method"].startswith("AutoARIMA"))
    ),
    needs={"AutoARIMA": "statsforecast", "AutoARIMA+": "statsforecast"},
)

if __name__ == "__main__":
    BENCHMARK.command()
