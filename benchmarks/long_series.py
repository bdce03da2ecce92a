"""Forecasts of long series: errors, time and memory, each in its own process.

GPYTORCH_NKN_DATA names the folder of the data. Every ``long_series/NAME.csv`` in it is a series:
dates or numbers in the first column, values in the second, at equal steps (hours or half-hours of
dates, unless :data:`_SEASONS` names it). Horizons are the shortest and the longest season that
the other methods receive, and fractions of the length. ``benchmarks.scaling`` has time and memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.data import load_frame
from benchmarks.forecast_panel import forecast_of_ours, forecast_of_peer, score
from benchmarks.report import Table, grouped
from benchmarks.runner import Axis, Benchmark, peak_gigabytes, timed

__all__ = ["BENCHMARK"]

# Seasons in steps as the peers receive them. Sunspots have no season by the calendar: their cycle
# lasts about eleven years.
_SEASONS = {"half_hourly_demand": (48, 336), "daily_temperature": (7, 365)}
_SEASONS["monthly_sunspots"] = (12, 132)
_BY_STEP = {"h": (24, 168), "30min": (48, 336)}
_FREQUENCIES = {7: "D", 12: "MS", 24: "h", 48: "30min"}  # frequencies by shortest season
_PEERS = ("SeasonalNaive", "MSTL", "AutoTBATS", "Prophet")
_APART = 7  # origins are at least 1/7 of the series apart
_LARGEST = 20_000  # number of last points that MSTL and AutoTBATS receive


def _names() -> list[str]:
    root = os.environ.get("GPYTORCH_NKN_DATA")
    files = sorted(Path(root, "long_series").glob("*.csv")) if root else []
    others = [file.stem for file in files if file.stem not in _SEASONS]
    return [*_SEASONS, *others]


def _read(name: str) -> tuple[np.ndarray | pd.DatetimeIndex, np.ndarray]:
    frame = load_frame(f"long_series/{name}.csv")
    time, values = frame.iloc[:, 0], frame.iloc[:, 1].to_numpy(float)
    if name in _SEASONS:
        return time.to_numpy(float), values
    return pd.DatetimeIndex(time), values


def run(series: str, horizon: str, origin: int, method: str) -> dict:
    """Return scores by thirds of the horizon, time and memory of a forecast."""
    x, y = _read(series)
    seasons = _SEASONS.get(series) or _BY_STEP[pd.infer_freq(x[:10])]
    steps = {"short": seasons[0], "long": seasons[-1]}.get(horizon, 0)
    steps = steps or round(y.size * float(horizon.rstrip("%")) / 100)
    end = y.size - origin * max(steps, y.size // _APART)
    x, past, future = x[:end], y[: end - steps], y[end - steps : end]
    if method in _PEERS:
        recent = past[-_LARGEST:] if method in ("MSTL", "AutoTBATS") else past
        frequency = _FREQUENCIES[seasons[0]]
        if method == "Prophet":
            forecast, seconds = timed(lambda: _prophet(past, steps, frequency, seasons[-1]))
        else:
            forecast, seconds = timed(lambda: forecast_of_peer(method, recent, steps, seasons))
    else:
        options = {} if method == "default" else {"quality": method}
        forecast, seconds = timed(lambda: forecast_of_ours(x[:-steps], past, x[-steps:], **options))
    scale = float(np.mean(np.abs(past[seasons[-1] :] - past[: -seasons[-1]])))
    low, high = (np.asarray(forecast[name]) for name in ("lo-95", "hi-95"))
    thirds = np.array_split((low <= future) & (future <= high), 3)
    return {
        "length": past.size,
        "steps": steps,
        **score(forecast, future, scale),
        "thirds": [float(third.mean()) for third in thirds],
        "below": float((future < low).mean()),
        "above": float((future > high).mean()),
        "seconds": seconds,
        "peak": peak_gigabytes(),
    }


def _prophet(y: np.ndarray, horizon: int, frequency: str, cycle: int) -> dict:
    """Forecast with the calendar's seasons and one more."""
    from prophet import Prophet

    times = pd.date_range("2000-01-01", periods=y.size + horizon, freq=frequency)
    model = Prophet()
    if frequency == "MS":
        model.add_seasonality("cycle", period=cycle * 365.25 / 12, fourier_order=10)
    np.random.seed(0)  # Prophet draws by NumPy's global state
    model.fit(pd.DataFrame({"ds": times[: y.size], "y": y}))
    ahead = pd.DataFrame({"ds": times[y.size :]})
    draws = model.predictive_samples(ahead)["yhat"]
    forecast = {"mean": model.predict(ahead)["yhat"].to_numpy()}
    for level in (80, 95):
        low, high = np.percentile(draws, [50 - level / 2, 50 + level / 2], axis=1)
        forecast |= {f"lo-{level}": low, f"hi-{level}": high}
    return forecast


def _mean(rows: list[dict], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return a row for each series and horizon, and a summary of each method."""
    lines, by_method = [], {}
    for key, group in grouped(rows, "series", "horizon").items():
        line: dict[str, object] = {"series": key[0], "steps": group[0]["steps"]}
        line["windows"] = len({row["origin"] for row in group})
        runs_of = grouped(group, "method")
        for method, runs in runs_of.items():
            by_method.setdefault(method, []).append((runs, runs_of))
            line[f"{method}, MASE"] = f"{_mean(runs, 'mase'):.3f}"
        for method in ("default", "fast"):
            if method in runs_of:
                line[f"{method}, 95 % coverage"] = f"{_mean(runs_of[method], '95'):.0%}"
                line[f"{method}, MSIS"] = f"{_mean(runs_of[method], 'msis'):.2f}"
        lines.append(line)
    summary = []
    for method, parts in by_method.items():
        best = [  # errors relative to the best of the peers
            _mean(runs, "mase")
            / min(_mean(runs_of[peer], "mase") for peer in _PEERS if peer in runs_of)
            for runs, runs_of in parts
            if any(peer in runs_of for peer in _PEERS)
        ]
        line = {"method": method}
        if best:
            line["MASE / best peer, geometric mean"] = f"{np.exp(np.mean(np.log(best))):.3f}"
            for limit in (1, 1.2):
                line[f"at most {limit}"] = f"{np.mean(np.array(best) <= limit):.0%}"
        pooled = [row for runs, _ in parts for row in runs]
        thirds = np.mean([row["thirds"] for row in pooled], axis=0)
        line["95 % coverage"] = f"{_mean(pooled, '95'):.1%}"
        line["by thirds"] = ", ".join(f"{third:.0%}" for third in thirds)
        line["below, above"] = f"{_mean(pooled, 'below'):.1%}, {_mean(pooled, 'above'):.1%}"
        line["CPU s"] = f"{_mean(pooled, 'seconds'):.1f}"
        line["peak GB"] = f"{max(row['peak'] for row in pooled):.2f}"
        summary.append(line)
    return {"long_series": Table.of(lines), "long_series_summary": Table.of(summary)}


BENCHMARK = Benchmark(
    {
        "series": Axis(_names()),
        "horizon": Axis(["short", "long", "2%", "10%"]),
        "origin": Axis(range(3)),
        "method": Axis(["default", "fast", *_PEERS]),
    },
    run,
    tables,
    needs={**dict.fromkeys(_PEERS, "statsforecast"), "Prophet": "prophet"},
    fresh=True,
)

if __name__ == "__main__":
    BENCHMARK.command()
