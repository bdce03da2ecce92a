"""The tables of the comparison of regressors, each with ten random splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from sklearn import datasets
from sklearn.model_selection import ShuffleSplit

from benchmarks.bo_problems import make_problem
from benchmarks.data import RegressionTable, load_askl_table, load_dank_table, load_regression

__all__ = ["SETS", "SPLITS", "Split", "load_split", "resolution"]

SPLITS = 10
_ROWS, _TEST = 500, 0.1
_GENERATED = 1000  # test rows of a table that is drawn


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from, ``N x D``, and to predict, ``M x D``, with their targets.

    ``resolution`` is the step that targets are multiples of, if many of them are alike.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    resolution: float | None


def load_split(name: str, split: int, rows: int = 0) -> Split:
    """A split of a set.

    Args:
        name: Key of ``SETS``.
        split: Number below ``SPLITS``.
        rows: Training rows, at most; the first ones of a random order. 0 for all.

    Raises:
        FileNotFoundError: Its data are not there.
    """
    if not 0 <= split < SPLITS:
        raise ValueError(f"There are splits 0 to {SPLITS - 1}, got {split}.")
    found = SETS[name](split)
    if isinstance(found, RegressionTable):
        X, y, test = found.X, found.y, found.test_mask(split)
    else:
        X, y, test = found
    train = np.random.default_rng(split).permutation(np.flatnonzero(~test))[: rows or None]
    return Split(X[train], y[train], X[test], y[test], resolution(y))


def resolution(y: np.ndarray) -> float | None:
    """The step of which all targets are multiples, where at least half of them are alike."""
    values = np.unique(y)
    if len(values) > len(y) / 2:
        return None
    step = float(np.diff(values).min())
    multiples = (values - values[0]) / step
    return step if np.allclose(multiples, multiples.round(), atol=1e-4) else None


@cache
def _bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "diabetes":
        return datasets.load_diabetes(return_X_y=True)
    data = datasets.fetch_california_housing(download_if_missing=False)
    rows = np.random.default_rng(0).permutation(len(data.target))[:3000]
    return data.data[rows], data.target[rows]


def _random_split(name: str) -> Callable[[int], tuple]:
    def load(split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        try:
            X, y = _bundled(name)
        except OSError as error:
            raise FileNotFoundError(f"scikit-learn has not downloaded {name}: {error}.") from error
        test = np.zeros(len(y), dtype=bool)
        (_, rows), *_ = ShuffleSplit(1, test_size=_TEST, random_state=split).split(X)
        test[rows] = True
        return X, y, test

    return load


def _drawn(draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]]) -> Callable[[int], tuple]:
    def load(split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = draw(_ROWS + _GENERATED, 100 + split)
        return X, y, np.arange(len(y)) >= _ROWS

    return load


def _friedman(number: int, noise: float) -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    make = getattr(datasets, f"make_friedman{number}")
    return lambda rows, seed: make(rows, noise=noise, random_state=seed)


def _borehole(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    problem = make_problem("borehole8", 0)
    lower, upper = problem.bounds.numpy()
    X = np.random.default_rng(seed).uniform(lower, upper, (rows, len(lower)))
    return X, problem.function(torch.from_numpy(X)).numpy()


def _piston(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a cycle of a piston, see Kenett and Zacks (1998)."""
    lower = [30, 0.005, 0.002, 1000, 90_000, 290, 340]
    upper = [60, 0.020, 0.010, 5000, 110_000, 296, 360]
    X = np.random.default_rng(seed).uniform(lower, upper, (rows, 7))
    mass, surface, volume, spring, pressure, ambient, filling = X.T
    force = pressure * surface + 19.62 * mass - spring * volume / surface
    squared = force**2 + 4 * spring * pressure * volume / filling * ambient
    place = surface / (2 * spring) * (np.sqrt(squared) - force)
    stiffness = spring + surface**2 * pressure * volume / filling * ambient / place**2
    return X, 2 * np.pi * np.sqrt(mass / stiffness)


SETS: dict[str, Callable[[int], RegressionTable | tuple]] = {
    **{
        name: lambda _, name=name: load_regression(name)  # type: ignore[misc]
        for name in ("yacht", "boston", "energy", "concrete", "kin8nm")
    },
    **{name: lambda _, name=name: load_askl_table(name) for name in ("abalone", "cpusmall")},  # type: ignore[misc]
    **{name: lambda _, name=name: load_dank_table(name) for name in ("mg", "mpg", "bodyfat")},  # type: ignore[misc]
    "diabetes": _random_split("diabetes"),
    "california": _random_split("california"),
    "friedman1": _drawn(_friedman(1, 1.0)),
    "friedman2": _drawn(_friedman(2, 125.0)),
    "friedman3": _drawn(_friedman(3, 0.1)),
    "borehole": _drawn(_borehole),
    "piston": _drawn(_piston),
}
