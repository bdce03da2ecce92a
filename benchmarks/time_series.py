"""Extrapolation of real series by the forecaster and usual alternatives.

All series are monthly. The last tenth of the time is held out (``airline36``: the last 36 of 144
months). GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.stats import norm

from benchmarks.data import load_series
from benchmarks.report import Cell, Table, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.baselines import seasonal_naive_forecast
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.initialization import periodogram_peaks
from gpytorch_nkn.metrics import forecast_scores

__all__ = ["BENCHMARK"]

_SERIES = "airline36 airline mauna call_centre radio gas_production unemployment".split()
_RESTARTS = 5  # restarts of the Gaussian processes that are compared
_COLUMNS = {
    "RMSE": ("rmse", ".4g"),
    "MAE": ("mae", ".4g"),
    "mean log density": ("mean_log_density", ".2f"),
    "95 % coverage": ("coverage", ".0%"),
    "CPU s": ("seconds", ".1f"),
}


def run(series: str, method: str, seed: int) -> dict:
    """Return scores of a forecast."""
    x, y, test = load_series(series.removesuffix("36"))
    if series == "airline36":
        test = np.arange(x.size) >= x.size - 36
    predict = _METHODS[method]
    forecast, seconds = timed(lambda: predict(x[~test], y[~test], x[test], y[test], seed))
    scores = forecast_scores(y[test], **forecast)
    return {**scores, "num_test": int(test.sum()), "seconds": seconds}


def _warm_up(method: str) -> None:
    short = np.arange(24.0)
    _METHODS[method](short, np.sin(short), np.arange(24.0, 26.0), np.zeros(2), 0)


def _forecaster(**options) -> Callable:
    def predict(x, y, new_x, new_y, seed) -> dict:
        model = NKNForecaster(random_state=seed, progress=False, **options).fit(x, y)
        lower, upper = model.predict_interval(new_x)
        density = model.log_predictive_density(new_x, new_y)
        interval = {"lower": lower, "upper": upper}
        return {"mean": model.predict(new_x), **interval, "log_density": density}

    return predict


def _gp(make_kernel: Callable) -> Callable:
    """Fit an exact GP with a constant mean by several runs of L-BFGS; keep the most likely."""

    def predict(x, y, new_x, new_y, seed) -> dict:
        rng, runs = np.random.default_rng(seed), []
        train_x, new = (torch.from_numpy((v - x.mean()) / x.std())[:, None] for v in (x, new_x))
        train_y = torch.from_numpy((y - y.mean()) / y.std())[:, None]
        for _ in range(_RESTARTS):
            likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6))
            likelihood.noise = np.exp(rng.uniform(np.log(1e-3), np.log(0.3)))
            kernel = make_kernel(train_x, train_y.squeeze(-1), rng)
            model = SingleTaskGP(train_x, train_y, None, likelihood, kernel, outcome_transform=None)
            mll = ExactMarginalLogLikelihood(model.likelihood, model.to(train_x))
            with warnings.catch_warnings(), suppress(NanError, NotPSDError):
                warnings.simplefilter("ignore")  # line searches
                value = float(fit_gpytorch_mll_scipy(mll, options={"maxiter": 500}).fval)
                runs += [(value, len(runs), model)] if np.isfinite(value) else []
        with torch.no_grad():
            posterior = min(runs)[2].posterior(new, observation_noise=True)
        mean, variance = (m.squeeze(-1).numpy() for m in (posterior.mean, posterior.variance))
        return _gaussian(norm(y.mean() + y.std() * mean, y.std() * variance**0.5), new_y)

    return predict


def _rbf(x, y, rng) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel())
    different = x.unique()
    step, span = float(different.diff().median()), float(different[-1] - different[0])
    kernel.base_kernel.lengthscale = np.exp(rng.uniform(np.log(step), np.log(span)))
    kernel.outputscale = 1.0
    return kernel


def _spectral_mixture(num_mixtures: int) -> Callable:
    """Create GPyTorch's kernel, with half of its frequencies at peaks of the periodogram."""

    def make_kernel(x, y, rng):
        span = float(x.max() - x.min())
        step = float(x.squeeze(-1).unique().diff().median())
        peaks = 1 / periodogram_peaks(x.squeeze(-1).numpy(), y.numpy())[0][: num_mixtures // 2]
        trend = rng.uniform(0, 0.5 / span, 1)
        num_random = num_mixtures - 1 - peaks.size
        random = np.exp(rng.uniform(np.log(1 / span), np.log(0.5 / step), num_random))
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

    return _gp(make_kernel)


def _auto_arima(x, y, new_x, new_y, seed) -> dict:
    from statsforecast.models import AutoARIMA

    months, ahead = (np.round(12 * (v - x[-1])).astype(int) for v in (x, new_x))
    grid = np.arange(months[0], 1)
    model = AutoARIMA(season_length=12).fit(np.interp(grid, months, y))  # gaps interpolated
    forecast = model.predict(h=int(ahead.max()), level=[95])
    std = (forecast["hi-95"] - forecast["mean"]) / norm.ppf(0.975)
    return _gaussian(norm(forecast["mean"][ahead - 1], std[ahead - 1]), new_y)


def _seasonal_naive(x, y, new_x, new_y, seed) -> dict:
    months, ahead = (np.round(12 * (v - x[-1])) for v in (x, new_x))
    return _gaussian(seasonal_naive_forecast(months, y, ahead, seasons=[12]), new_y)


def _gaussian(forecast: Any, new_y: np.ndarray) -> dict:
    lower, upper = forecast.interval(0.95)
    density = forecast.logpdf(new_y)
    return {"mean": forecast.mean(), "lower": lower, "upper": upper, "log_density": density}


_METHODS = {
    "NKN": _forecaster(),
    "NKN, network of the paper": _forecaster(structure="time_series"),
    "RBF": _gp(_rbf),
    "SM4": _spectral_mixture(4),
    "SM10": _spectral_mixture(10),
    "AutoARIMA": _auto_arima,
    "seasonal_naive": _seasonal_naive,
}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return medians over the seeds with their range, and the coverage over all series."""
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
    {"series": Axis(_SERIES), "method": Axis(list(_METHODS)), "seed": Axis(range(5), (0,))},
    run,
    tables,
    possible=lambda job: job["seed"] == 0 or job["method"] not in ("AutoARIMA", "seasonal_naive"),
    needs={"AutoARIMA": "statsforecast"},
    warm_up=_warm_up,
)

if __name__ == "__main__":
    BENCHMARK.command()
