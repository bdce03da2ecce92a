"""Automated spectral kernel learning: table 2 of Li, Liu and Wang (2020).

The five methods of the paper with the defaults of ASKLClassifier and ASKLRegressor, beside what one
would pick instead, on 80/20 splits (mnist_10k_10k: on its own split, seeds for the randomness);
targets of a regression are mapped to [0, 100]. GPYTORCH_NKN_DATA names the folder of the data.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

from benchmarks.askl_references import REFERENCES, fit_reference
from benchmarks.data import load_askl_table
from benchmarks.report import Cell, Table, mean, mean_and_error, paired, summary
from benchmarks.runner import Axis, Benchmark, timed
from gpytorch_nkn.estimators import ASKLClassifier, ASKLRegressor

__all__ = ["BENCHMARK"]

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
    """Accuracy in percent or RMSE, and seconds, of a method on a split."""
    table = load_askl_table(set)
    X, y, new_X, new_y = table.split("official" if set == _OFFICIAL else seed)
    classes = set not in _REGRESSION
    if not classes:
        low, span = table.y.min(), np.ptp(table.y)
        y, new_y = (100 * (part - low) / span for part in (y, new_y))
    _warm_up(method, classes)
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


@cache
def _warm_up(method: str, classes: bool) -> None:
    """Once in a process: imports and compilation are not what is measured."""
    X = np.random.default_rng(0).uniform(size=(60, 2))
    y = (X[:, 0] > 0.5).astype(int) if classes else X.sum(1)
    _fit(method, X, y, classes, 0, 20, 1)


def tables(rows: list[dict]) -> dict[str, Table]:
    """Means over the seeds, and paired differences to ASKL."""
    base = [row for row in rows if row["method"] == _ASKL]

    def gaps(runs: list[dict]) -> str:
        if runs[0]["method"] == _ASKL:
            return ""
        return mean_and_error(paired(runs, base, "score", "set", "seed"), sign="+")

    def published(runs: list[dict]) -> str:
        found = dict(zip(_LEARNED, _PUBLISHED[runs[0]["set"]], strict=True))
        return found.get(runs[0]["method"], "")

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
    "askl",
    __doc__,
    {
        "set": Axis(list(_PUBLISHED)),
        "seed": Axis(range(5)),
        "method": Axis([*_LEARNED, *REFERENCES]),
    },
    run,
    tables,
    settings={"components": 2000, "epochs": 0},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
