"""Data of the benchmarks, which are not part of the package: tables, series and textures.

The environment variable GPYTORCH_NKN_DATA names their folder. All loaders raise a FileNotFoundError
if it is not set or a file is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "EXPERIMENTS",
    "Table",
    "load_arrays",
    "load_askl_table",
    "load_dank_table",
    "load_frame",
    "load_panel",
    "load_regression",
    "load_series",
    "load_texture",
    "standardized",
]

_VARIABLE = "GPYTORCH_NKN_DATA"
_SPLITS = 30


def _path(name: str) -> Path:
    root = os.environ.get(_VARIABLE)
    if not root:
        raise FileNotFoundError(f"Set {_VARIABLE} to the folder of the benchmark data.")
    path = Path(root) / name
    if not path.is_file():
        there = sorted(file.name for file in path.parent.glob("*"))
        raise FileNotFoundError(f"{path} is missing; there are {', '.join(there) or 'none'}.")
    return path


def load_arrays(name: str) -> dict[str, np.ndarray]:
    """Arrays of a file such as ``"textures/plate.npz"``."""
    with np.load(_path(name), allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def load_frame(name: str, **options: Any) -> pd.DataFrame:
    """A file such as ``"long_series/daily_temperature.csv"``."""
    return pd.read_csv(_path(name), **options)


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs ``N x D``, targets ``N``, and the row numbers that each split holds out."""

    X: np.ndarray
    y: np.ndarray
    tests: dict[str, np.ndarray]

    def split(self, name: str | int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Inputs and targets of training, then of the test.

        A split is a number, ``"pca"`` (both ends of the first principal component) or
        ``"official"``.
        """
        if str(name) not in self.tests:
            raise ValueError(f"Splits are {', '.join(self.tests)}, got {name!r}.")
        test = np.zeros(len(self.y), dtype=bool)
        test[self.tests[str(name)]] = True
        return self.X[~test], self.y[~test], self.X[test], self.y[test]


def _numbered(tests: Any) -> dict[str, np.ndarray]:
    return {str(number): rows for number, rows in enumerate(tests)}


def load_regression(name: str) -> Table:
    """A table with the splits of Sun et al. (2018), section 5.2."""
    file = load_arrays(f"uci_regression/{name}.npz")
    tests = _numbered(file["nkn_test_idx"])
    if file["nkn_pca_test_idx"].size:
        tests["pca"] = file["nkn_pca_test_idx"]
    return Table(file["X"].astype(float), file["y"].astype(float), tests)


def load_askl_table(name: str) -> Table:
    """A table of Li, Liu and Wang (2020), section 5; random splits hold out a fifth."""
    file = load_arrays(f"askl/{name}.npz")
    return _with_random_splits(file, file["X"], file["y"], 0.8, 0)


def load_dank_table(name: str) -> Table:
    """A table of Liu, Huang, Gong, Yang and Li (2020), section 6, with random halves.

    The first column of ``bodyfat`` determines its target, so that the target is ``y_siri``.
    """
    file = load_arrays(f"dank/{name}.npz")
    if "y_siri" in file:
        return _with_random_splits(file, file["X"][:, 1:], file["y_siri"], 0.5, 100)
    return _with_random_splits(file, file["X"], file["y"], 0.5, 100)


def _with_random_splits(file: dict, X: np.ndarray, y: np.ndarray, share: float, seed: int) -> Table:
    orders = (np.random.default_rng(seed + i).permutation(len(y)) for i in range(_SPLITS))
    tests = _numbered(order[int(share * len(y)) :] for order in orders)
    if "n_train" in file:
        tests["official"] = np.arange(int(file["n_train"]), len(y))
    return Table(X.astype(float), y.astype(float) if y.dtype.kind == "f" else y, tests)


def standardized(
    X: np.ndarray, y: np.ndarray, new_X: np.ndarray, new_y: np.ndarray
) -> list[np.ndarray]:
    """Return both parts of a split, standardised by the training part."""
    scale = np.where((spread := X.std(0)) > 1e-12, spread, 1.0)
    offset, level, unit = X.mean(0), y.mean(), y.std()
    targets = [(target - level) / unit for target in (y, new_y)]
    return [(X - offset) / scale, targets[0], (new_X - offset) / scale, targets[1]]


def load_series(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, observations, and whether they are held out: the last tenth of the time."""
    x, y = load_frame(f"timeseries/{name}.csv").to_numpy(float).T
    test = np.zeros(x.size, dtype=bool)
    test[load_arrays("timeseries/splits.npz")[f"{name}_extrap_test"]] = True
    return x, y, test


@cache
def load_panel(panel: str = "panel") -> dict[str, dict[str, Any]]:
    """``time``, ``y``, ``season`` (steps, 1 for none) and ``horizon`` of each series of a panel."""
    facts = json.loads(_path(f"forecast_panel/{panel}.json").read_text(encoding="utf-8"))
    groups = dict(list(load_frame(f"forecast_panel/{panel}.csv").groupby("unique_id")))
    return {
        name: {
            "time": groups[name]["x"].to_numpy(float),
            "y": groups[name]["y"].to_numpy(float),
            "season": int(fact["season"]),
            "horizon": int(fact["horizon"]),
        }
        for name, fact in facts.items()
    }


def load_texture(
    name: str, hole: Sequence[tuple[int, int]] = ((60, 120), (80, 160))
) -> tuple[np.ndarray, np.ndarray]:
    """The metal plate, or the centre of a picture of scikit-image, and the mask of a hole.

    A hole is the first row and the row after the last one, and the same of the columns.
    """
    if name == "plate":
        image = load_arrays(f"textures/{name}.npz")["gray"].astype(float)
    else:
        from skimage import data

        image = getattr(data, name)()[144:368, 144:368] / 255.0
    mask = np.zeros(image.shape, dtype=bool)
    mask[tuple(slice(*side) for side in hole)] = True
    return image, mask


def _borehole(x: np.ndarray) -> np.ndarray:
    """Flow of water through a borehole, see Morris, Mitchell and Ylvisaker (1993)."""
    radius, influence, upper, upper_head, lower, lower_head, length, conductivity = x.T
    ratio = np.log(influence / radius)
    leak = 2 * length * upper / (ratio * radius**2 * conductivity)
    return 2 * np.pi * upper * (upper_head - lower_head) / (ratio * (1 + leak + upper / lower))


def _piston(x: np.ndarray) -> np.ndarray:
    """Time of a cycle of a piston, see Kenett and Zacks (1998)."""
    mass, surface, volume, spring, pressure, ambient, filling = x.T
    gas = pressure * volume / filling * ambient
    force = pressure * surface + 19.62 * mass - spring * volume / surface
    now = surface / (2 * spring) * (np.sqrt(force**2 + 4 * spring * gas) - force)
    return 2 * np.pi * np.sqrt(mass / (spring + surface**2 * gas / now**2))


#: Functions of physics, with lower and upper bounds of their inputs.
EXPERIMENTS = {
    "borehole": (
        _borehole,
        [0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0],
        [0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0],
    ),
    "piston": (
        _piston,
        [30.0, 0.005, 0.002, 1000.0, 90000.0, 290.0, 340.0],
        [60.0, 0.020, 0.010, 5000.0, 110000.0, 296.0, 360.0],
    ),
}
