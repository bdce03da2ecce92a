"""Forecasts of everyday series from rolling origins by NKNForecaster and usual forecasters.

The last horizon of each of 57 series, the horizon before it, and so on are forecast from earlier
values. Forecasters receive the season of a series up to 24 steps. NKNForecaster may also infer
seasons of 48 and 52 steps from the time axis. GPYTORCH_NKN_DATA names the folder of the data.

``--panel NAME --series $(seq 0 199) --origin 0`` reads another panel: forecast_panel/NAME.csv with
the columns unique_id, x and y, and NAME.json with the season and the horizon in steps of each
series. An example is 200 series of M1 or M3 (120 monthly, 50 quarterly and 30 yearly), with joined
training and test parts and the horizons of the competition (18, 8, 6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.data import load_panel
from benchmarks.report import Table, grouped
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["BENCHMARK", "OURS", "forecast_of_ours", "forecast_of_peer", "score"]

_LONGEST_SEASON, _FEWEST_POINTS = 24, 12
_LEVELS = (80, 95)
OURS: dict[str, dict] = {
    "default": {},
    '`quality="fast"`': {"quality": "fast"},
    '`structure="time_series"`': {"structure": "time_series"},
}
_OPTIONS = tuple(OURS)[2:]  # compared with the default on the same series
_PARTS = ("AutoARIMA", "AutoETS", "AutoTheta", "AutoCES")  # the combination is their median
_PEERS = (*_PARTS, "SeasonalNaive")


def _told_season(season: int) -> int:
    return season if season <= _LONGEST_SEASON else 1


def _possible(job: dict) -> bool:
    """Return whether enough points are before the origin."""
    panel = list(load_panel(job["panel"]).values())
    if job["series"] >= len(panel):
        return False
    series = panel[job["series"]]
    fewest = max(_FEWEST_POINTS, 2 * _told_season(series["season"]) + 2, series["season"] + 1)
    return series["y"].size - (job["origin"] + 1) * series["horizon"] >= fewest


def run(series: int, origin: int, method: str, panel: str) -> dict:
    """Return scores of a forecast."""
    name, known = list(load_panel(panel).items())[series]
    season, horizon = known["season"], known["horizon"]
    last = known["y"].size - origin * horizon
    x, y = known["time"][:last], known["y"][:last]
    train_x, train_y, new_x = x[:-horizon], y[:-horizon], x[-horizon:]
    if method in OURS:
        step = float(np.median(np.diff(np.unique(train_x))))
        told = "auto" if season > _LONGEST_SEASON else [season * step] if season > 1 else []
        forecast, seconds = timed(
            lambda: forecast_of_ours(train_x, train_y, new_x, seasons=told, **OURS[method])
        )
    else:
        seasons = (_told_season(season),)
        forecast, seconds = timed(lambda: forecast_of_peer(method, train_y, horizon, seasons))
    scale = float(np.mean(np.abs(train_y[season:] - train_y[:-season])))
    return {
        "name": name,
        "truth": y[-horizon:].tolist(),
        "scale": scale,
        "forecast": {key: np.asarray(v, float).tolist() for key, v in forecast.items()},
        "seconds": seconds,
    }


def _warm_up(method: str) -> None:
    short = np.arange(36.0)
    y = np.sin(short) + short / 10
    if method in OURS:
        forecast_of_ours(short, y, np.arange(36.0, 38.0), quality="fast", seasons=[6.0])
    else:
        forecast_of_peer(method, y, 2, (6,))


def forecast_of_ours(x: np.ndarray, y: np.ndarray, new_x: np.ndarray, **options) -> dict:
    """Return median and ends of the prediction intervals."""
    model = NKNForecaster(horizon=new_x.size, random_state=0, progress=False, **options).fit(x, y)
    ends = [(50 - level / 2) / 100 for level in _LEVELS]
    quantiles = model.predict_quantiles(new_x, [0.5, *ends, *(1 - end for end in ends)])
    names = ["mean", *(f"lo-{k}" for k in _LEVELS), *(f"hi-{k}" for k in _LEVELS)]
    return dict(zip(names, quantiles.T, strict=True))


def forecast_of_peer(method: str, y: np.ndarray, horizon: int, seasons: Sequence[int]) -> dict:
    """Return the same by a model of statsforecast, which receives the seasons in steps."""
    from statsforecast import models

    options: dict = {"season_length": seasons[-1]}
    if method == "MSTL":
        trend = models.AutoETS(model="ZZN")
        options = {"season_length": list(seasons), "trend_forecaster": trend}
    elif method == "AutoTBATS":
        options = {"season_length": list(seasons)}
    model = getattr(models, method)(**options)
    forecast = model.forecast(y=y, h=horizon, level=list(_LEVELS))
    return {key: np.asarray(values) for key, values in forecast.items() if key != "fitted"}


def score(forecast: Mapping[str, Sequence[float]], truth, scale: float) -> dict[str, float]:
    """MASE, MSIS of the 95 % intervals, and coverage of a forecast ``mean``, ``lo-95``, ``hi-95``.

    ``scale`` is the mean absolute error of the seasonal naive rule within the training part.
    """
    truth = np.asarray(truth)
    mean, low, high = (np.asarray(forecast[name]) for name in ("mean", "lo-95", "hi-95"))
    beyond = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return {
        "mase": max(float(np.mean(np.abs(mean - truth)) / scale), 1e-3),
        "msis": max(float(np.mean(high - low + 2 / 0.05 * beyond) / scale), 1e-2),
        **{
            str(level): float(
                np.mean((forecast[f"lo-{level}"] <= truth) & (truth <= forecast[f"hi-{level}"]))
            )
            for level in _LEVELS
            if f"lo-{level}" in forecast
        },
    }


def _clustered(ratios: Mapping[tuple, float]) -> str:
    """Return mean and standard error; forecasts of one series are dependent."""
    if not any(ratios.values()):  # no peer, or the method itself
        return ""
    mean = float(np.mean(list(ratios.values())))
    sums: dict[str, float] = {}
    for (name, _), ratio in ratios.items():
        sums[name] = sums.get(name, 0.0) + ratio - mean
    clusters = len(sums)
    if clusters < 2:
        return f"{mean:.3f}"
    error = math.sqrt(clusters / (clusters - 1) * np.sum(np.square(list(sums.values()))))
    return f"{mean:.3f} ± {error / len(ratios):.3f}"


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return geometric means over the forecasts of both a method and the combination."""
    scores: dict[str, dict[tuple, dict]] = {}
    seconds: dict[str, list[float]] = {}
    for row in rows:
        key = row["name"], row["origin"]
        errors = score(row["forecast"], row["truth"], row["scale"])
        scores.setdefault(row["method"], {})[key] = errors
        seconds.setdefault(row["method"], []).append(row["seconds"])
    for key, parts in grouped((r for r in rows if r["method"] in _PARTS), "name", "origin").items():
        names = parts[0]["forecast"]
        median = {n: np.median([part["forecast"][n] for part in parts], axis=0) for n in names}
        errors = score(median, parts[0]["truth"], parts[0]["scale"])
        scores.setdefault("combination", {})[key] = errors
    base = scores.get("combination", {})

    def ratios(num: dict, den: dict, name: str = "mase") -> dict[tuple, float]:
        return {k: math.log(num[k][name] / den[k][name]) for k in num if k in den and k in base}

    lines = []
    for method, cases in scores.items():
        kept = [cases[key] for key in cases if key in base]
        if not kept:
            continue
        to_base, widths = ratios(cases, base), ratios(cases, base, "msis")
        naive = [r > math.log(1.1) for r in ratios(cases, scores.get("SeasonalNaive", {})).values()]
        line = {
            "method": method,
            "forecasts": len(kept),
            "MASE / combination": f"{math.exp(np.mean(list(to_base.values()))):.3f}",
            "MSIS / combination": f"{math.exp(np.mean(list(widths.values()))):.3f}",
            "95 % coverage": f"{np.mean([case['95'] for case in kept]):.1%}",
            "80 % coverage": f"{np.mean([case['80'] for case in kept]):.1%}",
            "worse than seasonal naive by 10 %": f"{np.mean(naive):.0%}" if naive else "",
            "log ratio to AutoARIMA": _clustered(ratios(cases, scores.get("AutoARIMA", {}))),
            "log ratio to the combination": _clustered(to_base),
        }
        if method in seconds:
            line["CPU s, mean"] = f"{np.mean(seconds[method]):.2f}"
            line["CPU s, most"] = f"{max(seconds[method]):.1f}"
        if method in _OPTIONS:
            default = [r for k, r in ratios(scores["default"], base).items() if k in cases]
            line["default on these"] = f"{math.exp(np.mean(default)):.3f}"
        lines.append(line)
    usual = [line for line in lines if line["method"] not in _OPTIONS]
    options = [line for line in lines if line["method"] in _OPTIONS]
    results = {"panel": Table.of(usual), "panel_options": Table.of(options)}
    return {name: table for name, table in results.items() if table.rows}


BENCHMARK = Benchmark(
    {
        "series": Axis(range(57)),
        "origin": Axis(range(3)),
        "method": Axis([*OURS, *_PEERS], ["default", '`quality="fast"`', *_PEERS]),
    },
    run,
    tables,
    settings={"panel": "panel"},
    possible=_possible,
    needs=dict.fromkeys(_PEERS, "statsforecast"),
    warm_up=_warm_up,
)

if __name__ == "__main__":
    BENCHMARK.command()
