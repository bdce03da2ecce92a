"""Probabilities of classes from tables: NKNClassifier and usual alternatives.

Every split trains on 70 % of the rows, stratified. Random search over five folds tunes boosting and
support vectors by log loss for ``--tuning`` CPU seconds; logistic regression selects its penalty.
The tables ``classes`` show sets that were not used in the development of NKNClassifier,
``classes_seen`` the others and one drawn set. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, uniform
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.data import load_askl_table, load_dank_table
from benchmarks.report import Table, grouped, mean, mean_ranks, summary
from benchmarks.runner import Axis, Benchmark, boosting, random_search, timed
from gpytorch_nkn.estimators import ASKLClassifier, NKNClassifier

__all__ = ["BENCHMARK"]

_LEAST = 1e-6  # smallest predicted probability, for all methods
_BINS = 10  # bins of the expected calibration error
_MOST = {"eeg": 2000, "satimage": 2000, "letter": 3000}  # largest numbers of rows
_SCORES = ("log loss", "Brier", "accuracy", "ECE")


def _smooth() -> tuple[np.ndarray, np.ndarray]:
    """Draw three classes whose probabilities are smooth functions."""
    rng = np.random.default_rng(102)
    X = rng.uniform(-1, 1, size=(900, 5))
    scores = 3 * X[:, 0], 3 * X[:, 1] ** 2 - 1 + X[:, 2], 2 * np.cos(4 * X[:, 3]) * X[:, 0]
    chances = np.exp(scores) / np.exp(scores).sum(0)
    return X, np.array([rng.choice(3, p=row) for row in chances.T])


def _waves() -> tuple[np.ndarray, np.ndarray]:
    """Draw two classes from a periodic function of three of eight inputs, 5 % of them wrong."""
    rng = np.random.default_rng(103)
    X = rng.normal(size=(800, 8))
    return X, (np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] > 0) ^ (rng.uniform(size=800) < 0.05)


_SETS = {
    ("classes", "classes_sets"): "sonar monks1 eeg satimage breast_cancer digits smooth".split(),
    ("classes_seen", "classes_seen_sets"): "heart monks2 glass segment letter wine waves".split(),
}


def _split(name: str, number: int) -> list[np.ndarray]:
    """Return training and test inputs, then their labels."""
    if name in ("smooth", "waves"):
        X, y = _smooth() if name == "smooth" else _waves()
    elif name in ("breast_cancer", "digits", "wine"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        of_askl = name in ("satimage", "segment", "letter")
        table = load_askl_table(name) if of_askl else load_dank_table(name)
        rows = np.random.default_rng(7).permutation(len(table.y))[: _MOST.get(name)]
        X, y = table.X[rows], table.y[rows]
    _, y = np.unique(y, return_inverse=True)
    return train_test_split(X, y, test_size=0.3, random_state=number, stratify=y)


def _tuned(make: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that fits with options from a random search, the defaults first."""

    def fit(X: np.ndarray, y: np.ndarray, seed: int, tuning: float) -> Any:
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)

        def loss(tried: dict[str, Any]) -> float:
            model = make(seed, **tried)
            return -cross_val_score(model, X, y, cv=folds, scoring="neg_log_loss").mean()

        chosen, _ = random_search(loss, options, {}, seed=seed, seconds=tuning)
        return make(seed, **chosen).fit(X, y)

    return fit


def _plain(make: Callable[[int], Any]) -> Callable[..., Any]:
    return lambda X, y, seed, tuning: make(seed).fit(X, y)


_scaled = partial(make_pipeline, StandardScaler())
_RATES = {"learning_rate": loguniform(0.01, 0.3)}
_LIGHTGBM = {**_RATES, "n_estimators": randint(50, 500), "num_leaves": randint(4, 32),
    "colsample_bytree": uniform(0.5, 0.5), "min_child_samples": randint(3, 30)}  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "NKNClassifier": _plain(lambda seed: NKNClassifier(random_state=seed, progress=False)),
    "ASKLClassifier": _plain(lambda seed: ASKLClassifier(random_state=seed, progress=False)),
    "GaussianProcessClassifier": _plain(
        lambda seed: _scaled(GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=seed))
    ),
    "SVC, tuned": _tuned(
        lambda seed, **options: _scaled(SVC(probability=True, random_state=seed, **options)),
        {"C": loguniform(0.1, 1000), "gamma": loguniform(1e-3, 1)},
    ),
    "logistic regression": _plain(
        lambda seed: _scaled(LogisticRegressionCV(scoring="neg_log_loss", max_iter=500))
    ),
    "random forest": _plain(lambda seed: RandomForestClassifier(500, random_state=seed)),
    "HistGradientBoosting, tuned": _tuned(
        lambda seed, **options: HistGradientBoostingClassifier(random_state=seed, **options),
        {**_RATES, "max_iter": randint(50, 400), "max_leaf_nodes": randint(4, 32)},
    ),
    "LightGBM, tuned": _tuned(partial(boosting, "lightgbm", "Classifier"), _LIGHTGBM),
    "CatBoost, tuned": _tuned(
        partial(boosting, "catboost", "Classifier"),
        {**_RATES, "iterations": randint(100, 500), "depth": randint(3, 8)},
    ),
}


def run(set: str, split: int, method: str, tuning: float) -> dict:
    """Return scores of a method on the test rows of a split."""
    X, new_X, y, new_y = _split(set, split)
    model, seconds = timed(lambda: _METHODS[method](X, y, split, tuning))
    probs = np.full((len(new_y), int(y.max()) + 1), _LEAST)
    probs[:, model.classes_] = model.predict_proba(new_X).clip(_LEAST)
    probs /= probs.sum(1, keepdims=True)
    true_probs = probs[np.arange(len(new_y)), new_y]
    right, sure = probs.argmax(1) == new_y, probs.max(1)
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs((right[bins == b] - sure[bins == b]).sum()) for b in range(_BINS)]
    return {
        "log loss": float(-np.log(true_probs).mean()),
        "Brier": float(((probs - np.eye(probs.shape[1])[new_y]) ** 2).sum(1).mean()),
        "accuracy": float(right.mean()),
        "ECE": float(sum(gaps) / len(new_y)),
        "seconds": seconds,
    }


def _ranks(rows: list[dict]) -> Table:
    """Return mean ranks over the sets with all methods; differences below 0.001 are ties."""
    by_method = grouped(rows, "method")
    lines = {method: {"method": method} for method in _METHODS if method in by_method}
    cases = [grouped(runs, "method") for runs in grouped(rows, "set").values()]
    for score in _SCORES:
        sign = -1 if score == "accuracy" else 1
        values = [
            {m: sign * round(statistics.fmean(row[score] for row in of), 3) for m, of in i.items()}
            for i in cases
        ]
        for method, rank in mean_ranks(values, list(lines)).items():
            lines[method][f"rank by {score}"] = f"{rank:.2f}"
    for method, line in lines.items():
        seconds = statistics.median(row["seconds"] for row in by_method[method])
        line["CPU s, median"] = f"{seconds:.3g}"
    return Table.of([*lines.values()])


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return mean ranks, and mean scores by set, of each group of sets with rows."""
    scores = {score: mean(score, ".3f") for score in _SCORES}
    made: dict[str, Table] = {}
    for (ranks, by_set), sets in _SETS.items():
        if group := [row for row in rows if row["set"] in sets]:
            made |= {ranks: _ranks(group), by_set: summary(group, ("set", "method"), scores)}
    return made


BENCHMARK = Benchmark(
    {
        "set": Axis(sum(_SETS.values(), [])),
        "split": Axis(range(10), (0, 1, 2)),
        "method": Axis(list(_METHODS)),
    },
    run,
    tables,
    settings={"tuning": 60.0},
    needs={"CatBoost, tuned": "catboost", "LightGBM, tuned": "lightgbm"},
)

if __name__ == "__main__":
    BENCHMARK.command()
