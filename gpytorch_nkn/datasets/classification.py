"""Tables with random 80/20 splits, for classification or regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.datasets.data_folder import read_table
from gpytorch_nkn.datasets.regression import RegressionTable

__all__ = ["ClassificationTable", "load_askl_table"]

_SPLITS = 30


@dataclass(frozen=True, eq=False)
class ClassificationTable:
    """Inputs and classes, and the rows that each split holds out.

    Args:
        name: What the table is called.
        X: Inputs ``N x D``.
        y: Classes ``N``.
        random_tests: Row numbers ``S x M`` of the tests of ``S`` random splits.
        official_test: Row numbers of the test that was published with the table; empty where
            there is none.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    random_tests: np.ndarray
    official_test: np.ndarray

    def test_mask(self, split: int | str) -> np.ndarray:
        """Mask ``N`` of the test rows of a split; the others are for training.

        Args:
            split: Number of a random split, or ``"official"``.

        Raises:
            ValueError: There is no such split.
        """
        if split == "official" and self.official_test.size:
            rows = self.official_test
        elif isinstance(split, int) and 0 <= split < len(self.random_tests):
            rows = self.random_tests[split]
        else:
            known = f"0 to {len(self.random_tests) - 1}"
            known += " or 'official'" * bool(self.official_test.size)
            raise ValueError(f"The splits of {self.name} are {known}, got {split!r}.")
        mask = np.zeros(len(self.y), dtype=bool)
        mask[rows] = True
        return mask


def load_askl_table(name: str) -> ClassificationTable | RegressionTable:
    """A table of the benchmark data with 30 random splits, 80 % for training.

    Split ``i`` takes the last fifth of ``numpy.random.default_rng(i).permutation(N)``, rounded up,
    for its test. A table of whole numbers as targets is one for classification.

    Args:
        name: File name without ending in the folder ``askl`` of the benchmark data, such as
            ``letter`` or ``abalone``. The environment variable ``GPYTORCH_NKN_DATA`` names the
            folder of the benchmark data.

    Raises:
        FileNotFoundError: The variable is not set, or there is no such file.
        ValueError: The file lacks an array.

    Reference: Li, Liu and Wang (2020), Automated Spectral Kernel Learning, section 5.
    """
    file = read_table("askl", name, lambda known: ("X", "y"))
    X, y = file["X"].astype(float), file["y"]
    num_train = int(file.get("n_train", len(y)))
    tests = [
        np.random.default_rng(i).permutation(len(y))[int(0.8 * len(y)) :] for i in range(_SPLITS)
    ]
    if np.issubdtype(y.dtype, np.floating):
        return RegressionTable(name, X, y.astype(float), np.stack(tests), np.empty(0, dtype=int))
    return ClassificationTable(name, X, y, np.stack(tests), np.arange(num_train, len(y)))
