"""The files and tables that the command ``gpytorch-nkn`` writes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpytorch_nkn.datasets import TimeSeries

if TYPE_CHECKING:
    from gpytorch_nkn.estimators import NKNForecaster

__all__ = ["MethodForecast", "draw", "outlook", "table", "time_text", "write_csv"]

_GRID = 600  # points of the drawn mean
_HISTORY = 20  # spans of the forecast that the figure shows before it


@dataclass
class MethodForecast:
    """Mean, deviation and band of one method at the new times."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log_density: np.ndarray | None
    seconds: float


def write_csv(
    path: Path, new_x: np.ndarray, result: MethodForecast, observed: np.ndarray | None
) -> None:
    columns = [result.mean, result.std, result.lower, result.upper]
    if observed is not None:
        columns.append(observed)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "mean", "std", "lower95", "upper95", "observed"])
        for moment, *values in zip(new_x, *columns, strict=True):
            cells = [f"{value:.10g}" for value in values]
            writer.writerow([time_text(moment), *cells, *[""] * (5 - len(cells))])


def draw(
    path: Path,
    series: TimeSeries,
    train: np.ndarray,
    times: np.ndarray,
    new_x: np.ndarray,
    observed: np.ndarray | None,
    forecaster: NKNForecaster,
) -> bool:
    """Draw the forecast; False if matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from gpytorch_nkn.plotting import plot_forecast

    new = times[train.size :]
    grid = np.union1d(np.linspace(times[: train.size][train].max(), new.max(), _GRID), new)
    moments: np.ndarray = grid
    if series.has_dates:  # the dates of the grid, between those that are known
        seconds = np.concatenate([series.x, new_x]).astype("datetime64[s]").astype(float)
        order = np.argsort(times, kind="stable")
        between = np.interp(grid, times[order], seconds[order])
        moments = between.astype("int64").astype("datetime64[s]")
    begin = grid[0] - _HISTORY * (grid[-1] - grid[0])
    shown = train & (times[: train.size] >= begin)
    dates = "datetime64[s]" if series.has_dates else float
    figure = Figure(figsize=(9, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    plot_forecast(
        figure.add_subplot(),
        moments,
        forecaster.predict(grid),
        *forecaster.predict_interval(grid),
        train=(series.x[shown].astype(dates), series.y[shown]),
        test=None if observed is None else (new_x.astype(dates), observed),
        x_label=_literal(series.x_label),
        y_label=_literal(series.y_label),
        title=_literal(series.name),
    )
    figure.savefig(path)
    return True


def _literal(text: str) -> str:
    return text.replace("$", r"\$")  # not a formula


def table(scores: dict[str, dict[str, float]]) -> str:
    head = f"{'':<15}{'RMSE':>10}{'MAE':>10}{'log density':>13}{'95 % cover':>12}{'seconds':>9}"
    lines = [head]
    for name, values in scores.items():
        lines.append(
            f"{name:<15}{values['rmse']:>10.4g}{values['mae']:>10.4g}"
            f"{values['mean_log_density']:>13.3f}{values['coverage']:>11.0%} "
            f"{values['seconds']:>9.1f}"
        )
    return "\n".join(lines)


def outlook(new_x: np.ndarray, result: MethodForecast, label: str) -> str:
    lines = [f"{'time':<20}{'mean':>12}{'95 % band':>27}   ({label})"]
    for i in sorted({0, new_x.size // 2, new_x.size - 1}):
        band = f"{result.lower[i]:.5g} to {result.upper[i]:.5g}"
        lines.append(f"{time_text(new_x[i]):<20}{result.mean[i]:>12.5g}{band:>27}")
    return "\n".join(lines) + f"\nTrained in {result.seconds:.1f} seconds."


def time_text(moment: Any) -> str:
    """A time as it is written: ISO for dates, the shortest number otherwise."""
    if isinstance(moment, np.datetime64):
        return str(moment)
    return f"{moment:.12g}"
