"""Automated spectral kernel learning: table 2 of Li, Liu and Wang (2020).

The five methods of the paper, with the defaults of ASKLClassifier and ASKLRegressor, are compared
with usual alternatives on 80/20 splits (mnist_10k_10k: on its own split, with several seeds).
Regression targets are mapped to [0, 100]. The alternatives are tuned on the training part only.

GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge, RidgeClassifier, RidgeClassifierCV, RidgeCV
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.data import load_askl_table
from benchmarks.report import Cell, Table, mean, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import ASKLClassifier, ASKLRegressor

__all__ = ["BENCHMARK"]

_SVM, _BOOSTING = "tuned SVC / SVR with an RBF kernel", "HistGradientBoosting, early stopping"
REFERENCES = ("tuned random features + ridge", _SVM, _BOOSTING)
_PENALTIES = tuple(10.0 ** (k / 2) for k in range(-10, 5))
_TUNING_ROWS, _SVM_ROWS, _MOST_STEPS = 2000, 10_000, 8


def fit_reference(
    method: str, X: np.ndarray, y: np.ndarray, *, classes: bool, seed: int, features: int
) -> BaseEstimator:
    """Choose the settings of a method and train it.

    Every method but the boosted trees centres the inputs, and chooses whether to scale each column:
    pixels are better with a common scale.
    """
    if method == _BOOSTING:
        boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return boosting(early_stopping=True, max_iter=1000, random_state=seed).fit(X, y)
    if method == _SVM:
        return _svm(X, y, classes, seed)
    scale, gamma, penalty = _tune_ridge(X, y, classes, seed, features)
    sampler = RBFSampler(gamma=gamma, n_components=features, random_state=seed)
    linear = RidgeClassifier(alpha=penalty) if classes else Ridge(alpha=penalty)
    return make_pipeline(StandardScaler(with_std=scale), sampler, linear).fit(X, y)


def first_maximum(score: Callable[[float], float], start: float, factor: float) -> float:
    """Return the first local maximum over ``start * factor**k``, uphill from ``start``."""
    scores = {k: score(start * factor**k) for k in (0, 1, -1)}
    step = 1 if scores[1] > scores[-1] else -1
    last = step
    while scores[last] > scores[last - step] and abs(last) < _MOST_STEPS:
        last += step
        scores[last] = score(start * factor**last)
    return start * factor ** max(scores, key=scores.__getitem__)


def _tune_ridge(
    X: np.ndarray, y: np.ndarray, classes: bool, seed: int, features: int
) -> tuple[bool, float, float]:
    """Return scaling, width and penalty with the best accuracy or error on held-out rows."""
    ridge, scoring = RidgeCV, "neg_mean_squared_error"
    if classes:
        ridge, scoring = RidgeClassifierCV, "accuracy"

    def best_penalty(inputs: np.ndarray, gamma: float) -> tuple[float, float]:
        sampler = RBFSampler(gamma=gamma, n_components=features, random_state=seed)
        fitted = ridge(alphas=_PENALTIES, scoring=scoring).fit(sampler.fit_transform(inputs), y)
        return fitted.best_score_, fitted.alpha_

    return _best_scaling_and_width(best_penalty, X, seed)


def _best_scaling_and_width(
    best_at: Callable[[np.ndarray, float], tuple[float, float]], X: np.ndarray, seed: int
) -> tuple[bool, float, float]:
    """Return whether to scale columns, the width, and the third setting, by the best score.

    ``best_at`` gives, for inputs and a width, the best score and the setting that has it. Widths
    start at one over the squared median distance of some rows.
    """
    candidates = []
    for scale in (True, False):
        inputs = StandardScaler(with_std=scale).fit_transform(X)
        rows = np.random.default_rng(seed).permutation(len(X))[:1000]
        distances = pairwise_distances(inputs[rows])[np.triu_indices(len(rows), 1)]
        best: dict[float, tuple[float, float]] = {}

        def score(gamma: float, inputs: np.ndarray = inputs, best: dict = best) -> float:
            best[gamma] = best_at(inputs, gamma)
            return best[gamma][0]

        gamma = first_maximum(score, 1 / float(np.median(distances[distances > 0])) ** 2, 2.0)
        candidates.append((best[gamma][0], scale, gamma, best[gamma][1]))
    return max(candidates)[1:]


def _svm(X: np.ndarray, y: np.ndarray, classes: bool, seed: int) -> BaseEstimator:
    """Tune on three folds of at most 2,000 rows, and train on at most 10,000 rows."""

    def make(gamma: float, options: dict) -> BaseEstimator:
        if classes:
            return SVC(gamma=gamma, cache_size=500, **options)
        machine = SVR(gamma=gamma, cache_size=500, **options)
        return TransformedTargetRegressor(machine, transformer=StandardScaler())

    if classes:
        grid: list[dict] = [{"C": c} for c in (1.0, 10.0, 100.0, 1e3, 1e4)]
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    else:
        grid = [{"C": c, "epsilon": e} for c in (0.1, 1.0, 10.0, 100.0, 1e3) for e in (0.2, 0.05)]
        folds = KFold(3, shuffle=True, random_state=seed)
    few_X, few_y = _subset(X, y, _TUNING_ROWS, classes, seed)

    def best_options(inputs: np.ndarray, gamma: float) -> tuple[float, float]:
        scores = (cross_val_score(make(gamma, option), inputs, few_y, cv=folds) for option in grid)
        return max((fold_scores.mean(), -i) for i, fold_scores in enumerate(scores))

    scale, gamma, number = _best_scaling_and_width(best_options, few_X, seed)
    X, y = _subset(X, y, _SVM_ROWS, classes, seed)
    return make_pipeline(StandardScaler(with_std=scale), make(gamma, grid[-int(number)])).fit(X, y)


def _subset(X: np.ndarray, y: np.ndarray, size: int, classes: bool, seed: int) -> tuple:
    if len(y) <= size:
        return X, y
    kept_X, _, kept_y, _ = train_test_split(
        X, y, train_size=size, random_state=seed, stratify=y if classes else None
    )
    return kept_X, kept_y


_OFFICIAL = "mnist_10k_10k"
_REGRESSION = ("abalone", "cpusmall")
_LEARNED = {
    "SK: stationary, assigned": "SK",
    "NSK: non-stationary, assigned": "NSK",
    "SKL: stationary, learned": "SKL",
    "NSKL: non-stationary, learned": "NSKL",
    "ASKL: NSKL, trace and feature norms": "ASKL",
}
_ASKL = list(_LEARNED)[-1]
_PUBLISHED = {  # means and standard deviations over 30 splits, in the order of the methods
    "segment": ("89.93 ± 2.12", "90.15 ± 2.08", "94.58 ± 1.86", "94.37 ± 0.81", "95.02 ± 1.54"),
    "satimage": ("74.54 ± 1.35", "75.15 ± 1.38", "83.61 ± 1.08", "83.74 ± 1.34", "85.32 ± 1.45"),
    "letter": ("76.50 ± 1.21", "78.21 ± 1.56", "93.60 ± 1.14", "94.66 ± 2.21", "95.70 ± 1.74"),
    "abalone": ("10.09 ± 0.42", "9.71 ± 0.28", "8.35 ± 0.28", "7.85 ± 0.42", "7.88 ± 0.16"),
    "cpusmall": ("2.77 ± 0.71", "2.84 ± 0.38", "2.56 ± 0.72", "2.57 ± 0.63", "2.42 ± 0.48"),
    _OFFICIAL: ("", "", "", "", "98.26 ± 1.78"),
}


def run(set: str, seed: int, method: str, components: int, epochs: int) -> dict:
    """Return accuracy in percent or RMSE, and seconds, of a method on a split."""
    table = load_askl_table(set)
    X, y, new_X, new_y = table.split("official" if set == _OFFICIAL else seed)
    classes = set not in _REGRESSION
    if not classes:
        low, span = table.y.min(), np.ptp(table.y)
        y, new_y = (100 * (target - low) / span for target in (y, new_y))
    model, fitting = timed(lambda: _fit(method, X, y, classes, seed, components, epochs))
    prediction, predicting = timed(lambda: np.asarray(model.predict(new_X)))
    if classes:
        score = 100 * float(np.mean(prediction == new_y))
    else:
        score = float(np.sqrt(np.mean((prediction - new_y) ** 2)))
    return {"score": score, "fit": fitting, "predict": predicting}


def _fit(method: str, X, y, classes: bool, seed: int, components: int, epochs: int):
    if method in REFERENCES:
        return fit_reference(method, X, y, classes=classes, seed=seed, features=components)
    estimator = ASKLClassifier if classes else ASKLRegressor
    options = {"n_components": components} | ({"max_iter": epochs} if epochs else {})
    return estimator(_LEARNED[method], random_state=seed, **options).fit(X, y)


def _warm_up(method: str) -> None:
    X = np.random.default_rng(0).uniform(size=(60, 2))
    _fit(method, X, (X[:, 0] > 0.5).astype(int), True, 0, 20, 1)
    _fit(method, X, X.sum(1), False, 0, 20, 1)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return means over the seeds, and paired differences to ASKL."""
    base = [row for row in rows if row["method"] == _ASKL]

    def gaps(runs: list[dict]) -> str:
        if runs[0]["method"] == _ASKL:
            return ""
        return mean_and_error(paired(runs, base, "score", "set", "seed"), sign="+")

    def published(runs: list[dict]) -> str:
        by_method = dict(zip(_LEARNED, _PUBLISHED[runs[0]["set"]], strict=True))
        return by_method.get(runs[0]["method"], "")

    cells: dict[str, Cell] = {
        "runs": len,
        "accuracy, % (abalone, cpusmall: RMSE)": lambda runs: mean_and_error(
            [row["score"] for row in runs]
        ),
        "less ASKL": gaps,
        "fit CPU s": mean("fit", ".3g"),
        "predict CPU s": mean("predict", ".3g"),
        "published": published,
    }
    return {"askl": summary(rows, ("set", "method"), cells)}


BENCHMARK = Benchmark(
    {
        "set": Axis(list(_PUBLISHED)),
        "seed": Axis(range(5)),
        "method": Axis([*_LEARNED, *REFERENCES]),
    },
    run,
    tables,
    settings={"components": 2000, "epochs": 0},
    warm_up=_warm_up,
)

if __name__ == "__main__":
    BENCHMARK.command()
