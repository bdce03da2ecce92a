"""Extrapolation of real series by the forecaster and by the usual alternatives.

The last tenth of the time is held out (``airline36``: the last 36 of 144 months). GPYTORCH_NKN_DATA
names the folder of the data.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import cache

import numpy as np
from gpytorch.kernels import SpectralMixtureKernel

from benchmarks.data import load_series
from benchmarks.report import Cell, Table, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.baselines import (
    GaussianForecast,
    gp_forecast,
    rbf_forecast,
    regular_steps,
    season_length,
    seasonal_naive_forecast,
)
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.initialization import candidate_periods
from gpytorch_nkn.metrics import forecast_scores

__all__ = ["BENCHMARK"]

_SERIES = "airline36 airline mauna call_centre radio gas_production unemployment".split()
_RESTARTS = 5  # of the Gaussian processes that are compared with
_COLUMNS = {
    "RMSE": ("rmse", ".4g"),
    "MAE": ("mae", ".4g"),
    "mean log density": ("mean_log_density", ".2f"),
    "95 % coverage": ("coverage", ".0%"),
    "CPU s": ("seconds", ".1f"),
}


def run(series: str, method: str, seed: int) -> dict:
    """Scores of a forecast."""
    x, y, test = load_series(series.removesuffix("36"))
    if series == "airline36":
        test = np.arange(x.size) >= x.size - 36
    _warm_up(method)
    predict = _METHODS[method]
    forecast, seconds = timed(lambda: predict(x[~test], y[~test], x[test], y[test], seed))
    scores = forecast_scores(y[test], **forecast)
    return {**scores, "num_test": int(test.sum()), "seconds": seconds}


@cache
def _warm_up(method: str) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    short = np.arange(24.0)
    _METHODS[method](short, np.sin(short), np.arange(24.0, 26.0), np.zeros(2), 0)


def _forecaster(**options) -> Callable:
    def predict(x, y, new_x, new_y, seed) -> dict:
        model = NKNForecaster(random_state=seed, progress=False, **options).fit(x, y)
        lower, upper = model.predict_interval(new_x)
        density = model.log_predictive_density(new_x, new_y)
        return {
            "mean": model.predict(new_x),
            "lower": lower,
            "upper": upper,
            "log_density": density,
        }

    return predict


def _rbf(x, y, new_x, new_y, seed) -> dict:
    return _gaussian(rbf_forecast(x, y, new_x, restarts=_RESTARTS, seed=seed), new_y)


def _spectral_mixture(num_mixtures: int) -> Callable:
    """GPyTorch's kernel, half of its frequencies at peaks of the periodogram."""

    def make_kernel(x, y, rng):
        span = float(x.max() - x.min())
        step = float(x.squeeze(-1).unique().diff().median())
        peaks = 1 / candidate_periods(x.squeeze(-1).numpy(), y.numpy())[: num_mixtures // 2]
        trend = rng.uniform(0, 0.5 / span, 1)
        rest = num_mixtures - 1 - peaks.size
        random = np.exp(rng.uniform(np.log(1 / span), np.log(0.5 / step), rest))
        peaks = peaks * np.exp(0.02 * rng.standard_normal(peaks.size))
        # Widths of a frequency: correlation over a fraction of the span to several spans.
        lengths = span * np.exp(rng.uniform(np.log(0.1), np.log(3.0), num_mixtures))
        kernel = SpectralMixtureKernel(num_mixtures=num_mixtures).to(x)
        means = np.concatenate([trend, peaks, random])
        kernel.mixture_means = x.new_tensor(means).view(-1, 1, 1)
        kernel.mixture_scales = x.new_tensor(1 / (2 * np.pi * lengths)).view(-1, 1, 1)
        weights = np.maximum(rng.dirichlet(np.ones(num_mixtures)), 1e-3)
        kernel.mixture_weights = x.new_tensor(weights)
        return kernel

    def predict(x, y, new_x, new_y, seed) -> dict:
        forecast = gp_forecast(make_kernel, x, y, new_x, restarts=_RESTARTS, seed=seed)
        return _gaussian(forecast, new_y)

    return predict


def _auto_arima(x, y, new_x, new_y, seed) -> dict:
    from scipy.stats import norm
    from statsforecast.models import AutoARIMA

    start, step, index = regular_steps(x)
    if index is None:
        raise ValueError("AutoARIMA needs regular steps.")
    season = season_length(x, y)
    length = 1 if season is None else round(season / step)
    if season is None and abs(step - 1 / 12) < 1e-3:
        length = 12  # months of years, whose season anybody would try
    grid = np.arange(index[0], index[-1] + 1)
    ahead = np.round((new_x - start) / step).astype(int) - int(grid[-1])
    model = AutoARIMA(season_length=length).fit(np.interp(grid, index, y))  # gaps interpolated
    found = model.predict(h=int(ahead.max()), level=[95])
    std = (found["hi-95"] - found["mean"]) / norm.ppf(0.975)
    return _gaussian(GaussianForecast(found["mean"][ahead - 1], std[ahead - 1]), new_y)


def _seasonal_naive(x, y, new_x, new_y, seed) -> dict:
    return _gaussian(seasonal_naive_forecast(x, y, new_x), new_y)


def _gaussian(forecast: GaussianForecast, new_y: np.ndarray) -> dict:
    lower, upper = forecast.interval(0.95)
    density = forecast.log_density(new_y)
    return {"mean": forecast.mean, "lower": lower, "upper": upper, "log_density": density}


_METHODS = {
    "NKN": _forecaster(),
    "NKN, network of the paper": _forecaster(structure="time_series"),
    "RBF": _rbf,
    "SM4": _spectral_mixture(4),
    "SM10": _spectral_mixture(10),
    "AutoARIMA": _auto_arima,
    "seasonal_naive": _seasonal_naive,
}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Medians over the seeds with their range, and the coverage of all series together."""
    cells: dict[str, Cell] = {"runs": len}
    cells |= {title: _median(name, form) for title, (name, form) in _COLUMNS.items()}
    covered: dict[str, Cell] = {
        "observations": lambda runs: sum(row["num_test"] for row in runs),
        "inside": lambda runs: f"{_covered(runs):.1%}",
    }
    return {
        "time_series": summary(rows, ("series", "method"), cells),
        "time_series_coverage": summary(rows, ("method",), covered),
    }


def _covered(runs: list[dict]) -> float:
    weights = [row["num_test"] for row in runs]
    return float(np.average([row["coverage"] for row in runs], weights=weights))


def _median(name: str, form: str) -> Cell:
    def cell(runs: list[dict]) -> str:
        values = [row[name] for row in runs]
        median, low, high = (format(f(values), form) for f in (statistics.median, min, max))
        return median if low == high else f"{median} ({low} to {high})"

    return cell


BENCHMARK = Benchmark(
    "time_series",
    __doc__,
    {"series": Axis(_SERIES), "method": Axis(list(_METHODS)), "seed": Axis(range(5), (0,))},
    run,
    tables,
    possible=lambda job: job["seed"] == 0 or job["method"] not in ("AutoARIMA", "seasonal_naive"),
    needs={"AutoARIMA": "statsforecast"},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
