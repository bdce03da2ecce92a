"""Rates of counts from tables: NKNRegressor, a generalised linear model and boosting.

Hourly counts and claims with exposure are simulated, with relevant and irrelevant columns. Visits
to a doctor are from the RAND experiment (statsmodels). A split trains on two thirds of the rows.
Random search over five folds tunes boosting for ``--tuning`` CPU seconds. These sets were not used
in the development of NKNRegressor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.report import Cell, Table, grouped, mean, mean_and_error, mean_ranks, summary
from benchmarks.runner import Axis, Benchmark, boosting, random_search, timed
from gpytorch_nkn.estimators import NKNRegressor

__all__ = ["BENCHMARK"]

_ROWS = 1200
_LEAST = 1e-3  # smallest predicted rate, for all methods

Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, counts, exposures


def _hourly(rng: np.random.Generator) -> Data:
    """Return riders per hour by hour, temperature, humidity, weekday and two columns of noise."""
    hour, day = rng.integers(24, size=_ROWS), rng.integers(7, size=_ROWS)
    weather = rng.normal(size=(_ROWS, 4))
    commute = np.exp(-((hour - 8) ** 2) / 3) + np.exp(-((hour - 17) ** 2) / 6)
    logs = 1 + np.sin(np.pi * (hour - 6) / 12) + 1.2 * commute * (day < 5) - 0.4 * weather[:, 1]
    logs += np.tanh(weather[:, 0]) * (1 + 0.5 * (day >= 5)) + 0.2 * rng.normal(size=_ROWS)
    return np.column_stack([hour, day, weather]), rng.poisson(np.exp(logs)), np.ones(_ROWS)


def _claims(rng: np.random.Generator) -> Data:
    """Return claims of insured years by age, power, mileage, population density, and noise."""
    age, power = rng.uniform(18, 90, _ROWS), rng.integers(4, 15, _ROWS)
    mileage, density = rng.lognormal(0, 0.5, _ROWS), rng.normal(size=_ROWS)
    years = rng.uniform(0.1, 3, _ROWS)
    logs = -1.2 + 1.5 * np.exp(-(age - 18) / 8) + 0.0004 * (age - 50) ** 2 + 0.3 * density
    logs += 0.6 * np.log(mileage) + 0.08 * (power - 8) * (age < 30)
    X = np.column_stack([age, power, mileage, density, rng.normal(size=_ROWS)])
    return X, rng.poisson(years * np.exp(logs)), years


def _visits(rng: np.random.Generator) -> Data:
    """Return visits to a doctor in a year."""
    from statsmodels.datasets import randhie

    frame = randhie.load_pandas().data
    rows = rng.permutation(len(frame))[:_ROWS]
    X = frame.drop(columns="mdvis").to_numpy(float)[rows]
    return X, frame["mdvis"].to_numpy(float)[rows], np.ones(_ROWS)


_SETS = {"hourly counts": _hourly, "claims": _claims, "visits": _visits}


def _ours(likelihood: Any) -> Callable[..., Any]:
    def fit(X: np.ndarray, y: np.ndarray, exposure: np.ndarray, seed: int, tuning: float) -> Any:
        model = NKNRegressor(likelihood=likelihood, random_state=seed, progress=False)
        return model.fit(X, y, exposure=exposure)

    return fit


def _linear(X: np.ndarray, y: np.ndarray, exposure: np.ndarray, seed: int, tuning: float) -> Any:
    model = make_pipeline(StandardScaler(), PoissonRegressor(alpha=1e-3, max_iter=1000))
    return model.fit(X, y / exposure, poissonregressor__sample_weight=exposure)


def _tuned(make: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Fit rates weighted by exposure, with options from a random search."""

    def fit(X: np.ndarray, y: np.ndarray, exposure: np.ndarray, seed: int, tuning: float) -> Any:
        def loss(tried: dict[str, Any]) -> float:
            losses = []
            for rows, new in KFold(5, shuffle=True, random_state=seed).split(X):
                model = make(seed, **tried)
                model.fit(X[rows], y[rows] / exposure[rows], sample_weight=exposure[rows])
                predicted = exposure[new] * np.maximum(model.predict(X[new]), _LEAST)
                losses.append(mean_poisson_deviance(y[new], predicted))
            return float(np.mean(losses))

        chosen, _ = random_search(loss, options, {}, seed=seed, seconds=tuning)
        return make(seed, **chosen).fit(X, y / exposure, sample_weight=exposure)

    return fit


_RATES = {"learning_rate": loguniform(0.01, 0.3)}
_METHODS: dict[str, Callable[..., Any]] = {
    'NKNRegressor `likelihood="poisson"`': _ours("poisson"),
    'NKNRegressor `likelihood="negative_binomial"`': _ours("negative_binomial"),
    "PoissonRegressor": _linear,
    "HistGradientBoosting, tuned": _tuned(
        lambda seed, **options: HistGradientBoostingRegressor(
            loss="poisson", random_state=seed, **options
        ),
        {**_RATES, "max_iter": randint(30, 300), "max_leaf_nodes": randint(3, 32)},
    ),
    "LightGBM, tuned": _tuned(
        partial(boosting, "lightgbm", "Regressor", objective="poisson"),
        {**_RATES, "n_estimators": randint(30, 400), "num_leaves": randint(3, 32)},
    ),
}


def run(set: str, split: int, method: str, tuning: float) -> dict:
    """Return the mean deviance of the predicted means of test rows."""
    X, y, exposure = _SETS[set](np.random.default_rng(split))
    given = train_test_split(X, y.astype(float), exposure, test_size=1 / 3, random_state=split)
    X, new_X, y, new_y, exposure, new_exposure = given
    rates, seconds = timed(lambda: _METHODS[method](X, y, exposure, split, tuning).predict(new_X))
    predicted = new_exposure * np.maximum(rates, _LEAST)
    return {"deviance": float(mean_poisson_deviance(new_y, predicted)), "seconds": seconds}


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return mean deviances by set, and mean ranks over sets and splits."""
    cases = [
        {row["method"]: row["deviance"] for row in of}
        for of in grouped(rows, "set", "split").values()
    ]
    ranks = mean_ranks(cases, list(grouped(rows, "method")))
    cells: dict[str, Cell] = {
        "splits": len,
        "deviance": lambda runs: mean_and_error([row["deviance"] for row in runs]),
        "mean rank of all sets": lambda runs: f"{ranks.get(runs[0]['method'], math.nan):.2f}",
        "CPU s": mean("seconds", ".1f"),
    }
    return {"rates": summary(rows, ("set", "method"), cells)}


BENCHMARK = Benchmark(
    {"set": Axis([*_SETS]), "split": Axis(range(5)), "method": Axis([*_METHODS])},
    run,
    tables,
    settings={"tuning": 30.0},
    needs={"LightGBM, tuned": "lightgbm"},
)

if __name__ == "__main__":
    BENCHMARK.command()
