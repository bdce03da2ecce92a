"""Data-adaptive kernels (DANK) and support vector machines with their initial kernel.

Tables 1 and 6 of Liu et al. (2020): random halves, inputs scaled to [0, 1], width and cost (for
regression also the tube) by 5-fold cross-validation on the paper's grid. The learned kernels start
from the SVM's settings. The other tables were first evaluated with the final defaults.
GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist
from scipy.stats import ttest_1samp
from sklearn import datasets
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC, SVR

from benchmarks.bo_loop import SURROGATES
from benchmarks.data import EXPERIMENTS, load_askl_table, load_dank_table
from benchmarks.report import Table, grouped, mean, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import DANKClassifier, DANKRegressor

__all__ = ["BENCHMARK"]

_OFFICIAL = ", official split"
_PAPER = ["heart", f"monks1{_OFFICIAL}", "monks1", f"monks2{_OFFICIAL}", "monks2", "sonar", "glass"]
_PAPER += ["mpg", "housing", "bodyfat", "mg"]
_NEW = ["segment", "satimage", "letter_dobq", "hastie", "quantiles", "rings"]
_NEW += ["sparse_linear", "piston", "borehole", "sine_ridge"]
_SVM, _OURS, _ROWS = "SVM-CV", "DANK, defaults", 400
# Options in addition to C, gamma and epsilon, which all but the untuned take from the SVM.
_LEARNED: dict[str, dict[str, Any]] = {
    "DANK, relevance=None": {"relevance": None},
    _OURS: {},
    "DANK, untuned": {},
}
_LAPLACIAN, _GP = "Laplacian SVM-CV", "GP, RBF-ARD (BoTorch)"  # the GP is for regression only
_POWERS = tuple(2.0**k for k in range(-5, 6))  # grid of sigma and of C
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Predict = Callable[[np.ndarray], np.ndarray]


def run(set: str, repeat: int, method: str) -> dict:
    """Return accuracy, or squared error over the variance of the test targets, in percent."""
    X, y, new_X, new_y = _split(set, repeat)
    classes = y.dtype.kind != "f"
    starts = method in _LEARNED and "untuned" not in method
    tuned = _tuned(set, repeat) if starts else {}
    predict, seconds = timed(lambda: _fit(method, X, y, classes, repeat, tuned))
    prediction = predict(new_X)
    if classes:
        score = 100.0 * float(np.mean(prediction == new_y))
    else:
        score = 100.0 * float(np.mean((prediction - new_y) ** 2) / new_y.var())
    return {"score": score, "fit": seconds, "classes": classes, "size": f"{len(X)} x {X.shape[1]}"}


def _split(name: str, repeat: int) -> Split:
    """Return a random half, or the published part, for training; its range scales the inputs."""
    if name in _NEW:
        X, y = _other(name)
        order = np.random.default_rng(100 + repeat).permutation(len(y))
        rows, test = order[: len(y) // 2], order[len(y) // 2 :]
        parts = X[rows], y[rows], X[test], y[test]
    else:
        table = load_dank_table(name.removesuffix(_OFFICIAL))
        parts = table.split("official" if name.endswith(_OFFICIAL) else repeat)
    X, y, new_X, new_y = parts
    low, high = X.min(0), X.max(0)
    scale = np.where(high > low, high - low, 1.0)
    if y.dtype.kind == "f":
        new_y, y = (new_y - y.mean()) / y.std(), (y - y.mean()) / y.std()
    return (X - low) / scale, y, (new_X - low) / scale, new_y


@cache
def _other(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of further tables, and of functions with 5 % of noise."""
    rng = np.random.default_rng(7)
    if name in ("segment", "satimage", "letter_dobq"):
        table = load_askl_table(name.removesuffix("_dobq"))
        X, y = table.X, table.y
        if name == "letter_dobq":
            codes = np.unique(y, return_inverse=True)[1]
            keep = np.isin(codes, [ord(letter) - ord("a") for letter in "dobq"])
            X, y = X[keep], codes[keep]
        rows = np.sort(rng.permutation(len(y))[:_ROWS])
        return X[rows], y[rows]
    if name == "hastie":
        X, y = datasets.make_hastie_10_2(_ROWS, random_state=7)
        return X, y.astype(int)
    if name == "quantiles":
        return datasets.make_gaussian_quantiles(n_samples=_ROWS, n_features=5, random_state=7)
    if name == "rings":  # two columns with signal, and six of noise
        X = rng.uniform(-1, 1, size=(_ROWS, 8))
        return X, (np.sin(6 * np.hypot(X[:, 0], X[:, 1])) > 0).astype(int)
    if name == "sparse_linear":
        return datasets.make_sparse_uncorrelated(_ROWS, random_state=7)
    if name == "sine_ridge":
        X = rng.uniform(-1, 1, size=(_ROWS, 8))
        f = np.sin(3 * X.sum(axis=1))
    else:
        function, lower, upper = EXPERIMENTS[name]
        X = rng.uniform(lower, upper, size=(_ROWS, len(lower)))
        f = function(X)
    return X, f + 0.05 * f.std() * rng.normal(size=len(f))


@cache
def _tuned(name: str, repeat: int) -> dict[str, float]:
    """Return the settings of the SVM by cross-validation."""
    X, y, _, _ = _split(name, repeat)
    return _search(X, y, y.dtype.kind != "f", repeat, "rbf").best_params_


def _search(X: np.ndarray, y: np.ndarray, classes: bool, seed: int, kernel: str) -> GridSearchCV:
    """Tune ``gamma``, ``C`` and ``epsilon`` of a machine by 5-fold cross-validation."""
    grid: dict[str, Any] = {"C": _POWERS}
    if kernel == "rbf":
        grid["gamma"] = [0.5 / power**2 for power in _POWERS]
    else:  # one over the paper's grid times the median distance
        middle = float(np.median(pdist(X, "cityblock"))) or 1.0
        grid["kernel"] = [_Laplacian(1.0 / (power * middle)) for power in _POWERS]
    if classes:
        folds: Any = StratifiedKFold(5, shuffle=True, random_state=seed)
        machine, scoring = SVC(cache_size=500), "accuracy"
    else:
        folds = KFold(5, shuffle=True, random_state=seed)
        machine, scoring = SVR(cache_size=500), "neg_mean_squared_error"
        grid["epsilon"] = (0.01, 0.1)
    return GridSearchCV(machine, grid, cv=folds, scoring=scoring).fit(X, y)


class _Laplacian:
    """``exp(-gamma |x - x'|_1)`` for scikit-learn's machines."""

    def __init__(self, gamma: float):
        self.gamma = gamma

    def __call__(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return laplacian_kernel(left, right, gamma=self.gamma)


def _fit(
    method: str, X: np.ndarray, y: np.ndarray, classes: bool, seed: int, tuned: dict[str, float]
) -> Predict:
    if method == _SVM:
        return _search(X, y, classes, seed, "rbf").predict
    if method == _LAPLACIAN:
        return _search(X, y, classes, seed, "laplacian").predict
    if method == _GP:
        return _gaussian_process(X, y)
    learner = DANKClassifier if classes else DANKRegressor
    return learner(random_state=seed, **_LEARNED[method], **tuned).fit(X, y).predict


def _gaussian_process(X: np.ndarray, y: np.ndarray) -> Predict:
    """Predict by BoTorch's GP with a lengthscale per column."""
    data = torch.from_numpy(X), torch.from_numpy(y).unsqueeze(-1)
    model = SURROGATES["singletask"](*data, outcome_transform=None)

    def predict(new: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model.posterior(torch.from_numpy(new)).mean.squeeze(-1).numpy()

    return predict


def tables(rows: list[dict]) -> dict[str, Table]:
    """Return scores, gains over the tuned SVM on the same splits, and seconds."""
    classes, regression = ([r for r in rows if r["classes"] == kind] for kind in (True, False))
    results = {
        "dank_classes": _scores(classes),
        "dank_classes_gain": _gains(classes),
        "dank_regression": _scores(regression),
        "dank_regression_gain": _gains(regression),
        "dank_new_gain": _gains(rows, _NEW),
    }
    results = {name: table for name, table in results.items() if table.rows}
    seconds = summary(rows, ("set", "method"), {"fit": mean("fit", ".3g")})
    return results | {"dank_seconds": seconds.wide("method", "fit")}


def _scores(rows: list[dict]) -> Table:
    """Write mean ± standard deviation."""
    lines = []
    for name, runs in grouped((r for r in rows if r["set"] in _PAPER), "set").items():
        by_method = grouped(runs, "method")
        count = max(len(repeats) for repeats in by_method.values())
        line: dict[str, object] = {"set": name, "rows, columns": runs[0]["size"], "runs": count}
        for method, repeats in by_method.items():
            scores = [row["score"] for row in repeats]
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            line[method] = f"{statistics.fmean(scores):.2f} ± {spread:.1f}"
        lines.append(line)
    return Table.of(lines)


def _gains(rows: list[dict], sets: Sequence[str] = _PAPER) -> Table:
    """Write mean ± standard error of paired differences; larger is better."""
    lines = []
    for name, runs in grouped((r for r in rows if r["set"] in sets), "set").items():
        by_method = grouped(runs, "method")
        line = {"set": name}
        for method, repeats in by_method.items():
            gaps = paired(repeats, by_method.get(_SVM, ()), "score", "repeat")
            if method != _SVM and "untuned" not in method and gaps:
                sign = 1 if runs[0]["classes"] else -1
                line[method] = _gain([sign * gap for gap in gaps])
        lines.append(line)
    return Table.of(lines)


def _gain(gaps: list[float]) -> str:
    """Mark differences that are significant in a two-sided t-test at 5 %."""
    gain = statistics.fmean(gaps)
    if len(gaps) < 2:
        return f"{gain:+.2f}"
    error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    text = f"{gain:+.2f} ± {error:.2f}"
    if error == 0 or abs(gain / error) < 0.05:
        return text
    text += f" (t {gain / error:+.1f})"
    if ttest_1samp(gaps, 0).pvalue < 0.05:
        text += " **better**" if gain > 0 else " **WORSE**"
    return text


BENCHMARK = Benchmark(
    {
        "set": Axis([*_PAPER, *_NEW], _PAPER),
        "repeat": Axis(range(10)),
        "method": Axis([_SVM, _LAPLACIAN, _GP, *_LEARNED]),
    },
    run,
    tables,
    possible=lambda job: job["method"] != _GP or job["set"] in (*_PAPER[7:], *_NEW[6:]),
)

if __name__ == "__main__":
    BENCHMARK.command()
