"""Regression on tables: NKNRegressor and usual alternatives.

Boosting runs with defaults and tuned, by random search over five folds for ``--tuning`` CPU
seconds; support vectors are always tuned. Point predictions get normal noise with the standard
deviation of out-of-fold residuals. GPYTORCH_NKN_DATA names the folder of the data.

Every table has ten random splits; functions of experiments are simulated. Splits from 3 on were not
used to choose defaults; the two larger sets have their own table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.stats import loguniform, norm, randint, studentized_range, uniform
from sklearn import datasets
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from benchmarks.data import EXPERIMENTS, load_askl_table, load_dank_table, load_regression
from benchmarks.report import Table, grouped, mean, mean_ranks, summary
from benchmarks.runner import Axis, Benchmark, boosting, random_search, timed
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.metrics import interval_coverage

__all__ = ["BENCHMARK", "Fitted", "critical_difference", "normal", "of_estimator"]

_ROWS, _GENERATED = 500, 1000  # training and test rows of a table that is drawn
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load_split(name: str, split: int, rows: int) -> Split:
    """Return inputs and targets for training (at most a number of rows; 0: all) and for tests."""
    X, y, new_X, new_y = SETS[name](split)
    order = np.random.default_rng(split).permutation(len(y))[: rows or None]
    return X[order], y[order], new_X, new_y


def resolution(y: np.ndarray) -> float | None:
    """Return the common step of all targets, if at least half of them are repeated."""
    values = np.unique(y)
    if len(values) > len(y) / 2:
        return None
    step = float(np.diff(values).min())
    multiples = (values - values[0]) / step
    return step if np.allclose(multiples, multiples.round(), atol=1e-4) else None


def _diabetes(split: int) -> Split:
    X, y = datasets.load_diabetes(return_X_y=True)
    ((train, test),) = ShuffleSplit(1, test_size=0.1, random_state=split).split(X)
    return X[train], y[train], X[test], y[test]


def _drawn(draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]], split: int) -> Split:
    X, y = draw(_ROWS + _GENERATED, 100 + split)
    return X[:_ROWS], y[:_ROWS], X[_ROWS:], y[_ROWS:]


def _friedman(number: int, noise: float, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    make = getattr(datasets, f"make_friedman{number}")
    return make(rows, noise=noise, random_state=seed)


def _experiment(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    function, lower, upper = EXPERIMENTS[name]
    X = np.random.default_rng(seed).uniform(lower, upper, (rows, len(lower)))
    return X, function(X)


def _loaded(load: Callable, *names: str) -> dict[str, Callable[[int], Split]]:
    return {name: lambda split, name=name: load(name).split(split) for name in names}


_LARGER, _SEEN_SPLITS = ("kin8nm", "cpusmall"), 3
SETS: dict[str, Callable[[int], Split]] = {
    **_loaded(load_regression, "yacht", "boston", "energy", "concrete", "kin8nm"),
    **_loaded(load_askl_table, "abalone", "cpusmall"),
    **_loaded(load_dank_table, "mg", "mpg", "bodyfat"),
    "diabetes": _diabetes,
    "friedman1": partial(_drawn, partial(_friedman, 1, 1.0)),
    "friedman2": partial(_drawn, partial(_friedman, 2, 125.0)),
    "friedman3": partial(_drawn, partial(_friedman, 3, 0.1)),
    "borehole": partial(_drawn, partial(_experiment, "borehole")),
    "piston": partial(_drawn, partial(_experiment, "piston")),
}


_LEVELS = np.array([*(np.arange(50) + 0.5) / 50, 0.05, 0.95])
_SCORES = {"rmse": "RMSE", "crps": "CRPS", "density": "log density"}
# A fitted method: means ``M``, quantiles ``L x M``, log densities of observations, or None.
Fitted = tuple[Callable, Callable, Callable | None]


def run(set: str, split: int, method: str, rows: int, tuning: float) -> dict:
    """Return scores of a method on a split."""
    X, y, new_X, new_y = load_split(set, split, rows)
    step = resolution(np.concatenate([y, new_y]))
    (mean, quantiles, density), fitting = timed(lambda: _METHODS[method](X, y, split, tuning))
    means, predicting = timed(lambda: mean(new_X))
    seconds = {"fit": fitting, "predict": predicting}
    return seconds | _scores(means, quantiles(new_X, _LEVELS), density, new_X, new_y, step)


def _scores(means, quantiles, density, new_X, new_y, step: float | None) -> dict:
    """Return RMSE, CRPS (twice the mean pinball loss), log density, and 90 % coverage."""
    levels = _LEVELS[:-2, None]
    error = new_y - np.sort(quantiles[:-2], 0)
    pinball = np.maximum(levels * error, (levels - 1) * error)
    return {
        "rmse": float(np.sqrt(np.mean((means - new_y) ** 2))),
        "crps": float(2 * pinball.mean()),
        "density": None if density is None else float(np.mean(density(new_X, new_y, step))),
        "covered": interval_coverage(new_y, *quantiles[-2:]),
    }


def _warm_up(method: str) -> None:
    X = np.random.default_rng(0).uniform(size=(40, 2))
    _METHODS[method](X, X.sum(1) + X[:, 0] ** 2, 0, 0.0)[0](X)


def _ours(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Fitted:
    return of_estimator(NKNRegressor(random_state=seed, progress=False).fit(X, y))


def of_estimator(model: NKNRegressor) -> Fitted:
    """Return the predictions of a fitted estimator."""
    return (
        model.predict,
        lambda new, levels: model.predict_quantiles(new, levels).T,
        lambda new, values, step: model.log_predictive_density(new, values, resolution=step),
    )


def normal(moments: Callable) -> Fitted:
    """Return the predictions of a function that gives means and standard deviations."""

    def quantiles(new: np.ndarray, levels: np.ndarray) -> np.ndarray:
        mean, std = moments(new)
        return mean + std * norm.ppf(levels)[:, None]

    def density(new: np.ndarray, y: np.ndarray, step: float | None) -> np.ndarray:
        mean, std = moments(new)
        if step is None:
            return norm.logpdf(y, mean, std)
        distance, half = np.abs(y - mean) / std, step / (2 * std)
        upper, lower = norm.logcdf(half - distance), norm.logcdf(-half - distance)
        return upper + np.log1p(-np.exp(lower - upper)) - np.log(step)

    return lambda new: moments(new)[0], quantiles, density


def _points(
    make: Callable[..., BaseEstimator],
    space: dict | None,
    first: dict,
    X: np.ndarray,
    y: np.ndarray,
    seed: int,
    tuning: float,
) -> Fitted:
    """Fit a model of point predictions, after a random search if it has a search space."""

    def error(options: dict) -> float:
        errors = np.empty_like(y)
        for train, test in KFold(5, shuffle=True, random_state=seed).split(X):
            errors[test] = make(seed, **options).fit(X[train], y[train]).predict(X[test]) - y[test]
        return float(np.sqrt(np.mean(errors**2)))

    options, best = random_search(error, space or {}, first, seed=seed, seconds=tuning)
    model = make(seed, **options).fit(X, y)
    return normal(lambda new: (model.predict(new), best))


def _svr(seed: int, **options: float) -> BaseEstimator:
    machine = TransformedTargetRegressor(SVR(**options), transformer=StandardScaler())
    return make_pipeline(StandardScaler(), machine)


def _ngboost(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Fitted:
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(X, y)

    def moments(new: np.ndarray) -> tuple:
        distribution = model.pred_dist(new)
        return distribution.loc, distribution.scale

    return normal(moments)


def _catboost_normal(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Fitted:
    model = _CATBOOST(seed, loss_function="RMSEWithUncertainty").fit(X, y)

    def moments(new: np.ndarray) -> tuple:
        mean, variance = model.predict(new).T
        return mean, np.sqrt(variance)

    return normal(moments)


def _forest(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Fitted:
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(500, min_samples_leaf=2, random_state=seed).fit(X, y)
    return (
        lambda new: model.predict(new, quantiles="mean"),
        lambda new, levels: np.atleast_2d(model.predict(new, quantiles=list(levels)).T),
        None,
    )


def _single_task(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Fitted:
    import torch
    from botorch.models.transforms import Normalize

    from benchmarks.bo_loop import SURROGATES

    torch.manual_seed(seed)
    data = torch.from_numpy(X), torch.from_numpy(y)[:, None]  # outcomes are standardised
    model = SURROGATES["singletask"](*data, input_transform=Normalize(X.shape[1]))

    def moments(new: np.ndarray) -> tuple:
        with torch.no_grad():
            posterior = model.posterior(torch.from_numpy(new), observation_noise=True)
            return posterior.mean.numpy()[:, 0], posterior.variance.sqrt().numpy()[:, 0]

    return normal(moments)


_RIDGE = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17)))
_LIGHTGBM = partial(boosting, "lightgbm", "Regressor", subsample_freq=1)
_CATBOOST = partial(boosting, "catboost", "Regressor")
_SPACES: dict[str, tuple[Callable, dict, dict]] = {
    "LightGBM": (_LIGHTGBM, {"learning_rate": loguniform(0.01, 0.2),
        "n_estimators": randint(50, 1500), "num_leaves": randint(4, 64),
        "min_child_samples": randint(2, 40), "subsample": uniform(0.5, 0.5),
        "colsample_bytree": uniform(0.5, 0.5), "reg_lambda": loguniform(1e-3, 10)}, {}),
    "CatBoost": (_CATBOOST, {"learning_rate": loguniform(0.02, 0.2),
        "iterations": randint(200, 1500), "depth": randint(3, 9),
        "l2_leaf_reg": loguniform(0.5, 20)}, {}),
    "HistGradientBoosting": (
        lambda seed, **options: HistGradientBoostingRegressor(random_state=seed, **options),
        {"learning_rate": loguniform(0.01, 0.2),
        "max_iter": randint(50, 1000), "max_leaf_nodes": randint(4, 64),
        "min_samples_leaf": randint(2, 40), "l2_regularization": loguniform(1e-3, 10)}, {}),
    "SVR": (_svr, {"C": loguniform(0.3, 300), "gamma": loguniform(0.003, 1),
        "epsilon": loguniform(0.003, 0.3)}, {"C": 10.0}),
}  # fmt: skip
_METHODS: dict[str, Callable[..., Fitted]] = {
    "NKNRegressor": _ours,
    "SingleTaskGP": _single_task,
    **{f"{name}, tuned": partial(_points, *parts) for name, parts in _SPACES.items()},
    **{n: partial(_points, make, None, {}) for n, (make, _, first) in _SPACES.items() if not first},
    "CatBoost with uncertainty": _catboost_normal,
    "NGBoost": _ngboost,
    "quantile forest": _forest,
    "ridge": partial(_points, lambda seed: _RIDGE, None, {}),
}
_MOST_ROWS = {"SVR, tuned": 8000, "SingleTaskGP": 3500}


def critical_difference(methods: int, sets: int) -> float:
    """Return the critical difference of mean ranks at 5 % (Nemenyi's test, Demsar 2006)."""
    quantile = studentized_range.ppf(0.95, methods, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * sets)))


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return mean ranks, our errors and the best of the others, and scores of larger sets."""
    cells = {"RMSE": mean("rmse", ".3g"), "CRPS": mean("crps", ".3g"), "CPU s": mean("fit", ".3g")}
    larger = summary([r for r in rows if r["set"] in _LARGER], ("set", "method"), cells)
    results = {"tables_larger": larger} if larger.rows else {}
    seen, unseen = [], []
    for row in rows:
        if row["set"] not in _LARGER:
            (seen if row["split"] < _SEEN_SPLITS else unseen).append(row)
    if seen:
        results["tables_ranks"], results["tables_best"] = _compared(seen)
    if unseen:
        results["tables_unseen_ranks"], results["tables_unseen_best"] = _compared(unseen)
    return results


def _compared(rows: list[dict]) -> tuple[Table, Table]:
    means: dict[str, dict[str, dict[str, float]]] = {}
    for (name, method), runs in grouped(rows, "set", "method").items():
        for score in _SCORES:
            if None not in (values := [row[score] for row in runs]):
                average = statistics.fmean(values)
                means.setdefault(score, {}).setdefault(name, {})[method] = average
    ranks = {score: _ranks(list(by_set.values()), score) for score, by_set in means.items()}
    lines = []
    for method, runs in grouped(rows, "method").items():
        line = {"method": method}
        for score, title in _SCORES.items():
            value = ranks.get(score, {}).get(method)
            line[f"rank by {title}"] = "" if value is None else f"{value:.2f}"
        for stage in ("fit", "predict"):
            seconds = statistics.median(row[stage] for row in runs)
            line[f"{stage} CPU s, median"] = f"{seconds:.3g}"
        line["90 % coverage"] = f"{statistics.fmean(row['covered'] for row in runs):.1%}"
        lines.append(line)
    lines.sort(key=lambda line: line["rank by CRPS"])
    best = []
    for name in dict.fromkeys(row["set"] for row in rows):
        line = {"set": name}
        for score in ("rmse", "crps"):
            others = dict(means[score][name])
            ours = others.pop("NKNRegressor", None)
            if ours is not None and others:
                other = min(others, key=others.__getitem__)
                line[f"best other by {_SCORES[score]}"] = other
                line[f"our {_SCORES[score]} / its"] = f"{ours / others[other]:.3f}"
        best.append(line)
    return Table.of(lines), Table.of(best)


def _ranks(sets: list[dict[str, float]], score: str) -> dict[str, float]:
    """Return mean ranks, without methods that lack half of the sets."""
    methods = [m for m in _METHODS if 2 * sum(m in means for means in sets) > len(sets)]
    sign = -1 if score == "density" else 1
    return mean_ranks([{m: sign * v for m, v in means.items()} for means in sets], methods)


BENCHMARK = Benchmark(
    {
        "set": Axis(list(SETS), [s for s in SETS if s not in _LARGER]),
        "split": Axis(range(10), (0, 1, 2)),
        "method": Axis(list(_METHODS)),
    },
    run,
    tables,
    settings={"rows": 0, "tuning": 5.0},
    possible=lambda job: (
        job["method"] not in _MOST_ROWS
        or job["set"] not in _LARGER
        or len(load_split(job["set"], job["split"], 0)[1]) <= _MOST_ROWS[job["method"]]
    ),
    warm_up=_warm_up,
    needs={
        **{name: "catboost" for name in _METHODS if name.startswith("CatBoost")},
        **{name: "lightgbm" for name in _METHODS if name.startswith("LightGBM")},
        "NGBoost": "ngboost",
        "quantile forest": "quantile_forest",
    },
)

if __name__ == "__main__":
    BENCHMARK.command()
