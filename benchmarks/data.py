"""The benchmark data, which are not part of the package: tables, series and a texture.

The environment variable GPYTORCH_NKN_DATA names their folder. All loaders raise a FileNotFoundError
where it is not set or the file is missing, and a ValueError where the file lacks an array.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from gpytorch_nkn import datasets
from gpytorch_nkn.datasets import Texture, TimeSeries

__all__ = [
    "DATA_VARIABLE",
    "ClassificationTable",
    "PanelSeries",
    "RegressionTable",
    "data_folder",
    "load_askl_table",
    "load_dank_table",
    "load_long_series",
    "load_panel",
    "load_regression",
    "load_texture",
    "load_time_series",
]

DATA_VARIABLE = "GPYTORCH_NKN_DATA"

_SPLITS = 30
_FIRST_SEED_OF_HALVES = 100
_REGRESSION_KEYS = ("X", "y", "nkn_test_idx", "nkn_pca_test_idx")
_UNITS = {"airline": "passengers (thousands)", "mauna": "CO2 (ppm)"}


def data_folder() -> Path:
    """The folder that the environment variable names."""
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        raise FileNotFoundError(
            f"Set the environment variable {DATA_VARIABLE} to the folder of the benchmark data."
        )
    return Path(root)


def _read_arrays(
    folder: str, name: str, keys: Callable[[Sequence[str]], Sequence[str]]
) -> dict[str, np.ndarray]:
    """Arrays of ``folder/name.npz``, of which those that ``keys`` names must be there."""
    root = data_folder()
    path = root / folder / f"{name}.npz"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npz"))
        raise FileNotFoundError(
            f"{DATA_VARIABLE}={root} must hold {folder}/{name}.npz; files that are there: "
            f"{', '.join(known) or 'none'}."
        )
    with np.load(path, allow_pickle=False) as file:
        wanted = keys(file.files)
        missing = [key for key in wanted if key not in file]
        if missing:
            raise ValueError(
                f"{path} must hold {', '.join(wanted)}; it lacks {', '.join(missing)}."
            )
        return {key: file[key] for key in file.files}


@dataclass(frozen=True, eq=False)
class _Table:
    """Inputs and targets, and the rows that each split holds out.

    Args:
        name: What the table is called.
        X: Inputs ``N x D``.
        y: Targets ``N``.
        random_tests: Row numbers ``S x M`` of the tests of ``S`` random splits.
        named_test: Row numbers of the test of the split that has a name; empty where there is none.
    """

    named_split: ClassVar[str]

    name: str
    X: np.ndarray
    y: np.ndarray
    random_tests: np.ndarray
    named_test: np.ndarray

    def test_mask(self, split: int | str) -> np.ndarray:
        """Mask ``N`` of the test rows of a split, a number or a name; others are for training."""
        if split == self.named_split and self.named_test.size:
            rows = self.named_test
        elif isinstance(split, int) and 0 <= split < len(self.random_tests):
            rows = self.random_tests[split]
        else:
            known = f"0 to {len(self.random_tests) - 1}"
            known += f" or {self.named_split!r}" * bool(self.named_test.size)
            raise ValueError(f"The splits of {self.name} are {known}, got {split!r}.")
        mask = np.zeros(len(self.y), dtype=bool)
        mask[rows] = True
        return mask


class RegressionTable(_Table):
    """Its split ``"pca"`` extrapolates: to both ends of the first principal component."""

    named_split = "pca"


class ClassificationTable(_Table):
    """Its split ``"official"`` was published with the table."""

    named_split = "official"


def load_regression(name: str) -> RegressionTable:
    """A table of the folder ``uci_regression`` with the splits of the authors of the network.

    Reference: Sun et al. (2018), section 5.2.
    """
    file = _read_arrays("uci_regression", name, lambda known: _REGRESSION_KEYS)
    X, y, random_tests, pca_test = (file[key] for key in _REGRESSION_KEYS)
    return RegressionTable(name, X.astype(float), y.astype(float), random_tests, pca_test)


def load_askl_table(name: str) -> ClassificationTable | RegressionTable:
    """A table of the folder ``askl`` with 30 random splits, 80 % for training.

    Split ``i`` takes the last fifth of ``numpy.random.default_rng(i).permutation(N)``, rounded up,
    for its test. A table of whole numbers as targets is one for classification.

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning, section 5.
    """
    file = _read_arrays("askl", name, lambda known: ("X", "y"))
    y = file["y"]
    tests = [
        np.random.default_rng(i).permutation(len(y))[int(0.8 * len(y)) :] for i in range(_SPLITS)
    ]
    return _table(name, file, file["X"].astype(float), y, np.stack(tests))


def load_dank_table(name: str) -> ClassificationTable | RegressionTable:
    """A table of the folder ``dank`` with 30 random halves.

    Split ``i`` trains with the first half of ``numpy.random.default_rng(100 + i).permutation(N)``,
    rounded down. A table of whole numbers as targets is one for classification. The first column of
    ``bodyfat`` determines its target, so the target is ``y_siri``, given the other columns.

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels,
    section 6.
    """
    file = _read_arrays("dank", name, lambda known: ("X", "y_siri" if "y_siri" in known else "y"))
    X, y = file["X"].astype(float), file["y_siri" if "y_siri" in file else "y"]
    if "y_siri" in file:
        X = X[:, 1:]
    seeds = range(_FIRST_SEED_OF_HALVES, _FIRST_SEED_OF_HALVES + _SPLITS)
    halves = [np.random.default_rng(seed).permutation(len(y))[len(y) // 2 :] for seed in seeds]
    return _table(name, file, X, y, np.stack(halves))


def _table(
    name: str, file: dict[str, np.ndarray], X: np.ndarray, y: np.ndarray, tests: np.ndarray
) -> ClassificationTable | RegressionTable:
    if np.issubdtype(y.dtype, np.floating):
        return RegressionTable(name, X, y.astype(float), tests, np.empty(0, dtype=int))
    num_train = int(file.get("n_train", len(y)))
    return ClassificationTable(name, X, y, tests, np.arange(num_train, len(y)))


def load_time_series(name: str) -> TimeSeries:
    """A series of the folder ``timeseries`` with its extrapolation split."""
    root = data_folder()
    folder = root / "timeseries"
    path, splits_path = folder / f"{name}.csv", folder / "splits.npz"
    if not path.is_file() or not splits_path.is_file():
        known = sorted(file.stem for file in folder.glob("*.csv"))
        raise FileNotFoundError(
            f"{DATA_VARIABLE}={root} must hold timeseries/splits.npz and timeseries/{name}.csv; "
            f"series that are there: {', '.join(known) or 'none'}."
        )
    x, y = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    test = np.zeros(x.size, dtype=bool)
    with np.load(splits_path, allow_pickle=False) as splits:
        test[splits[f"{name}_extrap_test"]] = True
    return TimeSeries(name, x, y, test, "year", _UNITS.get(name, name.replace("_", " ")))


@dataclass(frozen=True, eq=False)
class PanelSeries:
    """A series to forecast from its last ends.

    Args:
        name: What the series is called.
        time: Time ``N``.
        y: Observations ``N``.
        season: Steps of a season; 1 for none.
        horizon: Steps that are held out at once.
    """

    name: str
    time: np.ndarray
    y: np.ndarray
    season: int
    horizon: int


def load_panel() -> dict[str, PanelSeries]:
    """The series of the folder ``forecast_panel`` by name."""
    root = data_folder()
    folder = root / "forecast_panel"
    missing = [name for name in ("panel.csv", "panel.json") if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{DATA_VARIABLE}={root} must hold forecast_panel/{missing[0]}.")
    facts = json.loads((folder / "panel.json").read_text(encoding="utf-8"))
    groups = dict(list(pd.read_csv(folder / "panel.csv").groupby("unique_id")))
    return {
        name: PanelSeries(
            name,
            groups[name]["x"].to_numpy(dtype=float),
            groups[name]["y"].to_numpy(dtype=float),
            int(fact["season"]),
            int(fact["horizon"]),
        )
        for name, fact in facts.items()
    }


def load_long_series(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Time and observations of a series of the folder ``long_series``: its first two columns."""
    root = data_folder()
    path = root / "long_series" / f"{name}.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{DATA_VARIABLE}={root} must hold long_series/{name}.csv.")
    table = pd.read_csv(path).to_numpy(dtype=float)
    return table[:, 0], table[:, 1]


def load_texture(name: str, **options: datasets.Hole) -> Texture:
    """A texture of scikit-image (:func:`gpytorch_nkn.datasets.load_texture`) or of a file.

    Args:
        name: One of scikit-image's, or a file in the folder ``textures`` such as ``"plate"``.
        options: ``hole`` as there.
    """
    if name in datasets.BUNDLED_TEXTURES:
        return datasets.load_texture(name, **options)
    file = _read_arrays("textures", name, lambda known: ("gray",))
    source = f"textures/{name}.npz of the benchmark data"
    return datasets.texture_with_hole(name, file["gray"].astype(float), source, **options)
