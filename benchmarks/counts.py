"""Forecasts of counts and intermittent demand by NKNForecaster and the usual methods.

The series are monthly sales of car parts (Hyndman; 60 of the 2,674 parts, every second one
reported, 6 months ahead), weekly or monthly infections (8 weeks or 6 months ahead) and simulated
intermittent demand (6 months ahead), each from two origins. Only NKNForecaster receives a season of
52 weeks; all methods receive the season of months. Croston's method, TSB, ADIDA and IMAPA have
conformal intervals. Quantiles are never negative.

GPYTORCH_NKN_DATA names the folder of the data. ``benchmarks/counts.R`` makes its file
counts/counts.csv.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.data import load_frame
from benchmarks.report import Cell, Table, mean, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["BENCHMARK"]

_LEVELS = np.arange(1, 20) / 20
_PARTS, _INFECTIONS, _DRAWN = 30, 13, 12  # numbers of series
_SEASONS = {"carparts": 12, "weeks": 52, "months": 12, "drawn": 12}
_HORIZONS = {"carparts": 6, "weeks": 8, "months": 6, "drawn": 6}
_OURS = {"NKNForecaster": "default", 'NKNForecaster `quality="fast"`': "fast"}
_INTERMITTENT = ("CrostonOptimized", "CrostonSBA", "TSB", "ADIDA", "IMAPA")
_SEASONAL = ("AutoARIMA", "AutoETS", "SeasonalNaive")
_PEERS = (*_INTERMITTENT, *_SEASONAL)
_EMPIRICAL = "empirical quantiles"
_TRAINED = 24  # smallest number of points before the first window of conformal intervals


@cache
def _series() -> list[tuple[str, str, np.ndarray]]:
    """Group, name and values of each series."""
    parts = load_frame("counts/counts.csv").groupby(["group", "series"], sort=False)
    read = [(*key, part["y"].to_numpy(float)) for key, part in parts]
    sold = [series for series in read if series[0] == "carparts" and np.isfinite(series[2]).all()]
    sold = [series for series in sold if (series[2] > 0).sum() >= 2]
    drawn = np.random.default_rng(0).choice(len(sold), 2 * _PARTS, replace=False)
    others = [series for series in read if series[0] != "carparts"]
    return [sold[i] for i in np.sort(drawn)[1::2]] + others[1::2] + [*map(_drawn, range(_DRAWN))]


def _drawn(number: int) -> tuple[str, str, np.ndarray]:
    """Draw demand that is rare, drifts, has a season, or a level that drifts."""
    rng, time = np.random.default_rng(1000 + number), np.arange(78)
    size = np.full(time.size, 2.0)
    chance = np.full(time.size, (0.1, 0.3, 0.5)[number // 4])
    if number % 4 == 1:
        chance = 1 / (1 + np.exp(1 - np.cumsum(rng.normal(0, 0.2, time.size))))
    elif number % 4 == 2:
        wave = np.sin(2 * np.pi * time / 12)
        chance, size = 0.35 + 0.3 * wave, 3 + 2 * wave
    elif number % 4 == 3:
        level = np.exp(np.cumsum(rng.normal(0, 0.12, time.size)))
        chance, size = np.ones(time.size), level * (0.3, 1.0, 4.0)[number // 4]
    counts = rng.negative_binomial(2, 2 / (2 + size)) + (number % 4 < 3)
    return "drawn", str(number), np.where(rng.random(time.size) < chance, counts, 0).astype(float)


def run(series: int, origin: int, method: str) -> dict:
    """Return scores of a forecast, relative to mean absolute differences of successive counts."""
    group, name, values = _series()[series]
    season, horizon = _SEASONS[group], _HORIZONS[group]
    last = len(values) - origin * horizon
    past, truth = values[: last - horizon], values[last - horizon : last]
    make = _forecast_of_ours if method in _OURS else _forecast_of_peer
    make = _forecast_of_past if method == _EMPIRICAL else make
    (quantiles, zero), seconds = timed(lambda: make(method, past, horizon, season))
    error = truth[:, None] - quantiles
    scale = float(np.abs(np.diff(past)).mean())
    return {
        "group": "infections" if group in ("weeks", "months") else group,
        "name": name,
        "pinball": 2 * float(np.maximum(_LEVELS * error, (_LEVELS - 1) * error).mean()) / scale,
        "mae": float(np.abs(error[:, len(_LEVELS) // 2]).mean()) / scale,
        "zero": zero.tolist(),
        "is_zero": (truth == 0).tolist(),
        "seconds": seconds,
    }


def _forecast_of_ours(
    method: str, past: np.ndarray, horizon: int, season: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return quantiles ``h x Q``, and probabilities ``h`` of zero."""
    options: Any = {"horizon": horizon, "seasons": [season], "quality": _OURS[method]}
    model = NKNForecaster(random_state=0, progress=False, **options)
    model.fit(np.arange(float(len(past))), past)
    forecast = model.predict_distribution(len(past) + np.arange(float(horizon)))
    quantiles = np.stack([forecast.quantile(level) for level in _LEVELS.tolist()], -1)
    return quantiles, forecast.below(np.zeros(horizon))


def _forecast_of_peer(
    method: str, past: np.ndarray, horizon: int, season: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by a model of statsforecast; values below one half are zero."""
    from statsforecast import models
    from statsforecast.utils import ConformalIntervals

    options: dict = {"season_length": season if season <= 24 else 1}
    if method in _INTERMITTENT:
        windows = int(np.clip((len(past) - _TRAINED) // horizon, 2, 20))
        options = {"prediction_intervals": ConformalIntervals(n_windows=windows, h=horizon)}
        if method == "TSB":
            options |= {"alpha_d": 0.2, "alpha_p": 0.2}
    percents = list(range(10, 100, 10))
    forecast = getattr(models, method)(**options).forecast(y=past, h=horizon, level=percents)
    low = [forecast[f"lo-{percent}"] for percent in reversed(percents)]
    high = [forecast[f"hi-{percent}"] for percent in percents]
    quantiles = np.sort(np.clip(np.nan_to_num([*low, forecast["mean"], *high]), 0, None), axis=0).T
    zero = [np.interp(0.5, np.append(0, row), np.append(0, _LEVELS), right=1) for row in quantiles]
    return quantiles, np.array(zero)


def _forecast_of_past(
    method: str, past: np.ndarray, horizon: int, season: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by the distribution of all past values."""
    quantiles = np.quantile(past, _LEVELS, method="inverted_cdf")
    return np.tile(quantiles, (horizon, 1)), np.full(horizon, np.mean(past == 0))


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return means over the forecasts of a group, and pinball losses minus our default's."""
    ours = [row for row in rows if row["method"] == "NKNForecaster"]

    def less(runs: list[dict]) -> str:
        if runs[0]["method"] == "NKNForecaster":
            return ""
        return mean_and_error(paired(runs, ours, "pinball", "group", "series", "origin"), sign="+")

    def zeros(name: str) -> Callable[[list[dict]], np.ndarray]:
        return lambda runs: np.concatenate([row[name] for row in runs])

    said, seen = zeros("zero"), zeros("is_zero")
    cells: dict[str, Cell] = {
        "forecasts": len,
        "pinball loss": mean("pinball", ".3f"),
        "less ours": less,
        "MAE": mean("mae", ".3f"),
        "P(0) said": lambda runs: f"{said(runs).mean():.2f}",
        "zeros": lambda runs: f"{seen(runs).mean():.2f}",
        "Brier score of P(0)": lambda runs: f"{np.mean((said(runs) - seen(runs)) ** 2):.3f}",
        "CPU s": mean("seconds", ".1f"),
    }
    keys = {"series": "group", "method": "method"}
    return {"counts": summary(sorted(rows, key=lambda row: row["group"]), keys, cells)}


BENCHMARK = Benchmark(
    {
        "series": Axis(range(_PARTS + _INFECTIONS + _DRAWN)),
        "origin": Axis(range(2)),
        "method": Axis([*_OURS, _EMPIRICAL, *_PEERS]),
    },
    run,
    tables,
    needs=dict.fromkeys(_PEERS, "statsforecast"),
)

if __name__ == "__main__":
    BENCHMARK.command()
