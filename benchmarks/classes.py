"""Probabilities of classes from tables: NKNClassifier beside what a practitioner would take.

Every split trains on 70 % of the rows, stratified. Boosting and support vectors are tuned by random
search over five folds for ``--tuning`` CPU seconds by log loss; logistic regression chooses its
penalty. Choices of NKNClassifier were made on the sets heart, glass, monks2, segment, letter, wine
and "noisy product"; the others run by default. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, rankdata, uniform
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
from benchmarks.report import Table, grouped
from benchmarks.runner import Axis, Benchmark, random_search, timed
from gpytorch_nkn.estimators import ASKLClassifier, NKNClassifier

__all__ = ["BENCHMARK"]

_LEAST = 1e-6  # probability, of all methods
_BINS = 10  # of the expected calibration error
_MOST = {"eeg": 2000, "satimage": 2000, "letter": 3000}  # rows
_SCORES = ("log loss", "Brier", "accuracy", "ECE")


def _product() -> tuple[np.ndarray, np.ndarray]:
    """Two classes by a product of two of eight columns, a third one and noise."""
    rng = np.random.default_rng(101)
    X = rng.normal(size=(800, 8))
    latent = 2 * np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2]
    return X, (latent + 0.7 * rng.normal(size=800) > 0).astype(int)


def _smooth() -> tuple[np.ndarray, np.ndarray]:
    """Three classes whose probabilities are smooth."""
    rng = np.random.default_rng(102)
    X = rng.uniform(-1, 1, size=(900, 5))
    scores = 3 * X[:, 0], 3 * X[:, 1] ** 2 - 1 + X[:, 2], 2 * np.cos(4 * X[:, 3]) * X[:, 0]
    chances = np.exp(scores) / np.exp(scores).sum(0)
    return X, np.array([rng.choice(3, p=row) for row in chances.T])


_DRAWN = {"noisy product": _product, "smooth": _smooth}
_BUNDLED = ("breast_cancer", "wine", "digits")
_DEVELOPED = ("heart", "glass", "monks2", "segment", "letter", "wine", "noisy product")
_REPORTED = ("sonar", "monks1", "eeg", "satimage", "breast_cancer", "digits", "smooth")


def _split(name: str, number: int) -> list[np.ndarray]:
    """Training and test inputs, then their labels."""
    if name in _DRAWN:
        X, y = _DRAWN[name]()
    elif name in _BUNDLED:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        load = load_askl_table if name in ("segment", "satimage", "letter") else load_dank_table
        table = load(name)
        rows = np.random.default_rng(7).permutation(len(table.y))[: _MOST.get(name)]
        X, y = table.X[rows], table.y[rows]
    _, y = np.unique(y, return_inverse=True)
    return train_test_split(X, y, test_size=0.3, random_state=number, stratify=y)


def _tuned(make: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """A function that searches options at random, the defaults first."""

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


def _lightgbm(seed: int, **options: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1, **options)


def _catboost(seed: int, **options: Any) -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        random_state=seed, thread_count=1, verbose=False, allow_writing_files=False, **options
    )


def _svc(seed: int, **options: Any) -> Any:
    return make_pipeline(StandardScaler(), SVC(probability=True, random_state=seed, **options))


_RATES = {"learning_rate": loguniform(0.01, 0.3)}
_METHODS: dict[str, Callable[..., Any]] = {
    "NKNClassifier": _plain(lambda seed: NKNClassifier(random_state=seed, progress=False)),
    "ASKLClassifier": _plain(lambda seed: ASKLClassifier(random_state=seed, progress=False)),
    "GaussianProcessClassifier": _plain(
        lambda seed: make_pipeline(
            StandardScaler(), GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=seed)
        )
    ),
    "SVC, tuned": _tuned(
        _svc,
        {"C": loguniform(0.1, 1000), "gamma": loguniform(1e-3, 1)},
    ),
    "logistic regression": _plain(
        lambda seed: make_pipeline(
            StandardScaler(), LogisticRegressionCV(scoring="neg_log_loss", max_iter=500)
        )
    ),
    "random forest": _plain(lambda seed: RandomForestClassifier(500, random_state=seed)),
    "HistGradientBoosting, tuned": _tuned(
        lambda seed, **options: HistGradientBoostingClassifier(random_state=seed, **options),
        {**_RATES, "max_iter": randint(50, 400), "max_leaf_nodes": randint(4, 32)},
    ),
    "LightGBM, tuned": _tuned(
        _lightgbm,
        {
            **_RATES,
            "n_estimators": randint(50, 500),
            "num_leaves": randint(4, 32),
            "colsample_bytree": uniform(0.5, 0.5),
            "min_child_samples": randint(3, 30),
        },
    ),
    "CatBoost, tuned": _tuned(
        _catboost, {**_RATES, "iterations": randint(100, 500), "depth": randint(3, 8)}
    ),
}


def run(set: str, split: int, method: str, tuning: float) -> dict:
    """Scores of a method on the test rows of a split."""
    X, new_X, y, new_y = _split(set, split)
    model, seconds = timed(lambda: _METHODS[method](X, y, split, tuning))
    found = np.full((len(new_y), int(y.max()) + 1), _LEAST)
    found[:, model.classes_] = model.predict_proba(new_X).clip(_LEAST)
    found /= found.sum(1, keepdims=True)
    own = found[np.arange(len(new_y)), new_y]
    right, sure = found.argmax(1) == new_y, found.max(1)
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs((right[bins == b] - sure[bins == b]).sum()) for b in range(_BINS)]
    return {
        "log loss": float(-np.log(own).mean()),
        "Brier": float(((found - np.eye(found.shape[1])[new_y]) ** 2).sum(1).mean()),
        "accuracy": float(right.mean()),
        "ECE": float(sum(gaps) / len(new_y)),
        "seconds": seconds,
    }


def tables(rows: list[dict]) -> dict[str, Table]:
    """Mean scores of every method on each set, and its ranks over the sets that all have."""
    cells = grouped(rows, "set", "method")
    means = {
        key: {s: statistics.fmean(r[s] for r in of) for s in _SCORES} for key, of in cells.items()
    }
    methods = [name for name in _METHODS if any(name == method for _, method in cells)]
    sets = [
        s for s in dict.fromkeys(r["set"] for r in rows) if all((s, m) in cells for m in methods)
    ]
    lines = []
    for method in methods:
        line: dict[str, object] = {"method": method, "sets": len(sets)}
        for score in _SCORES:
            sign = -1 if score == "accuracy" else 1
            place = methods.index(method)
            ranks = [rankdata([sign * means[s, m][score] for m in methods])[place] for s in sets]
            line[f"rank by {score}"] = f"{np.mean(ranks):.2f}" if sets else ""
        seconds = [row["seconds"] for row in rows if row["method"] == method]
        line["CPU s, median"] = f"{statistics.median(seconds):.3g}"
        lines.append(line)
    losses = [
        {"set": s, "method": m} | {score: f"{means[s, m][score]:.3f}" for score in _SCORES}
        for s, m in cells
    ]
    return {"classes": Table.of(lines), "classes_sets": Table.of(losses)}


BENCHMARK = Benchmark(
    {
        "set": Axis([*_DEVELOPED, *_REPORTED], list(_REPORTED)),
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
