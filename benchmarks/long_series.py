"""Forecasts of long series: errors, time and memory, each in a process of its own.

GPYTORCH_NKN_DATA names the folder of the data; ``simulated`` half-hours (days, weeks and noise
about a random walk) show how time and memory grow with ``--points``.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from benchmarks.data import load_frame
from benchmarks.forecast_panel import forecast_of_ours, forecast_of_peer, score
from benchmarks.report import Table
from benchmarks.runner import Axis, Benchmark, peak_gigabytes, timed

__all__ = ["BENCHMARK"]

# Horizon, seasons in steps as the peers receive them, frequency as pandas names it. Sunspots have
# no season by the calendar: their cycle lasts about eleven years.
_TASKS = {
    "half_hourly_demand": (336, (48, 336), "30min"),
    "daily_temperature": (60, (365,), "D"),
    "monthly_sunspots": (60, (132,), "MS"),
    "simulated": (336, (48, 336), "30min"),
}


def run(series: str, method: str, points: int) -> dict:
    """Scores, time and memory of a forecast."""
    torch.set_num_threads(1)
    horizon, seasons, frequency = _TASKS[series]
    x, y = _simulated(points) if series == "simulated" else _read(series)
    past = y[:-horizon]
    if method == "default":
        forecast, seconds = timed(lambda: forecast_of_ours(x[:-horizon], past, x[-horizon:]))
    elif method == "Prophet":
        forecast, seconds = timed(lambda: _prophet(past, horizon, frequency, seasons[-1]))
    else:
        forecast, seconds = timed(lambda: forecast_of_peer(method, past, horizon, seasons))
    scale = float(np.mean(np.abs(past[seasons[-1] :] - past[: -seasons[-1]])))
    scores = score(forecast, y[-horizon:], scale)
    size = {"points": past.size, "horizon": horizon}
    return {**size, **scores, "seconds": seconds, "peak": peak_gigabytes()}


def _read(name: str) -> tuple[np.ndarray, np.ndarray]:
    columns = load_frame(f"long_series/{name}.csv").to_numpy(float)
    return columns[:, 0], columns[:, 1]


def _simulated(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    t = np.arange(size + 336)
    y = 0.02 * rng.standard_normal(t.size).cumsum() + 0.2 * rng.standard_normal(t.size)
    return t, y + np.sin(2 * np.pi * t / 48) + 0.5 * np.sin(2 * np.pi * t / 336)


def _prophet(y: np.ndarray, horizon: int, frequency: str, cycle: int) -> dict:
    """With seasons by the calendar, and one that the calendar does not know."""
    import pandas as pd
    from prophet import Prophet

    times = pd.date_range("2000-01-01", periods=y.size + horizon, freq=frequency)
    model = Prophet()
    if frequency == "MS":
        model.add_seasonality("cycle", period=cycle * 365.25 / 12, fourier_order=10)
    np.random.seed(0)  # which it draws by
    model.fit(pd.DataFrame({"ds": times[: y.size], "y": y}))
    ahead = pd.DataFrame({"ds": times[y.size :]})
    draws = model.predictive_samples(ahead)["yhat"]
    found = {"mean": model.predict(ahead)["yhat"].to_numpy()}
    for level in (80, 95):
        low, high = np.percentile(draws, [50 - level / 2, 50 + level / 2], axis=1)
        found |= {f"lo-{level}": low, f"hi-{level}": high}
    return found


def tables(rows: list[dict]) -> dict[str, Table]:
    """A row for each forecast."""
    lines = [
        {
            "series": row["series"],
            "points": row["points"],
            "horizon": row["horizon"],
            "method": row["method"],
            "MASE": f"{row['mase']:.3f}",
            "MSIS": f"{row['msis']:.2f}",
            "95 % coverage": f"{row['95']:.0%}",
            "80 % coverage": f"{row['80']:.0%}",
            "CPU s": f"{row['seconds']:.1f}",
            "peak GB": f"{row['peak']:.2f}",
        }
        for row in rows
    ]
    return {"long_series": Table.of(lines)}


BENCHMARK = Benchmark(
    "long_series",
    __doc__,
    {
        "series": Axis(list(_TASKS), list(_TASKS)[:3]),
        "method": Axis(["default", "SeasonalNaive", "MSTL", "AutoTBATS", "Prophet"]),
    },
    run,
    tables,
    settings={"points": 10_000},
    needs={
        **dict.fromkeys(("SeasonalNaive", "MSTL", "AutoTBATS"), "statsforecast"),
        "Prophet": "prophet",
    },
    fresh=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
