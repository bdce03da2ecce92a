"""The tables of the comparison of regressors, each with ten random splits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn import datasets
from sklearn.model_selection import ShuffleSplit

from benchmarks.bo_problems import make_problem
from benchmarks.data import load_askl_table, load_dank_table, load_regression

__all__ = ["SETS", "load_split", "resolution"]

_ROWS, _GENERATED = 500, 1000  # training and test rows of a table that is drawn
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load_split(name: str, split: int, rows: int) -> Split:
    """Inputs and targets to learn from (at most so many rows; 0 for all), then to predict."""
    X, y, new_X, new_y = SETS[name](split)
    order = np.random.default_rng(split).permutation(len(y))[: rows or None]
    return X[order], y[order], new_X, new_y


def resolution(y: np.ndarray) -> float | None:
    """The step of which all targets are multiples, where at least half of them are alike."""
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
    problem = make_problem(name, 0)
    lower, upper = problem.bounds.numpy()
    X = np.random.default_rng(seed).uniform(lower, upper, (rows, len(lower)))
    return X, problem.function(torch.from_numpy(X)).numpy()


SETS: dict[str, Callable[[int], Split]] = {
    **{
        name: lambda split, name=name: load_regression(name).split(split)  # type: ignore[misc]
        for name in ("yacht", "boston", "energy", "concrete", "kin8nm")
    },
    **{
        name: lambda split, name=name: load_askl_table(name).split(split)  # type: ignore[misc]
        for name in ("abalone", "cpusmall")
    },
    **{
        name: lambda split, name=name: load_dank_table(name).split(split)  # type: ignore[misc]
        for name in ("mg", "mpg", "bodyfat")
    },
    "diabetes": _diabetes,
    "friedman1": partial(_drawn, partial(_friedman, 1, 1.0)),
    "friedman2": partial(_drawn, partial(_friedman, 2, 125.0)),
    "friedman3": partial(_drawn, partial(_friedman, 3, 0.1)),
    "borehole": partial(_drawn, partial(_experiment, "borehole8")),
    "piston": partial(_drawn, partial(_experiment, "piston7")),
}
