"""Tables for regression with the splits of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpytorch_nkn.datasets.data_folder import read_table

__all__ = ["RegressionTable", "load_regression"]

_KEYS = ("X", "y", "nkn_test_idx", "nkn_pca_test_idx")


@dataclass(frozen=True, eq=False)
class RegressionTable:
    """Inputs and targets, and the rows that each split holds out.

    Args:
        name: What the table is called.
        X: Inputs ``N x D``.
        y: Targets ``N``.
        random_tests: Row numbers ``S x M`` of the tests of ``S`` random splits.
        pca_test: Row numbers of one test that needs extrapolation, the rows at both ends of the
            first principal component; empty where there is none.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    random_tests: np.ndarray
    pca_test: np.ndarray

    def test_mask(self, split: int | str) -> np.ndarray:
        """Mask ``N`` of the test rows of a split; the others are for training.

        Args:
            split: Number of a random split, or ``"pca"``.

        Raises:
            ValueError: There is no such split.
        """
        if split == "pca" and self.pca_test.size:
            rows = self.pca_test
        elif isinstance(split, int) and 0 <= split < len(self.random_tests):
            rows = self.random_tests[split]
        else:
            known = f"0 to {len(self.random_tests) - 1}" + " or 'pca'" * bool(self.pca_test.size)
            raise ValueError(f"The splits of {self.name} are {known}, got {split!r}.")
        mask = np.zeros(len(self.y), dtype=bool)
        mask[rows] = True
        return mask


def load_regression(name: str) -> RegressionTable:
    """A table of the benchmark data with the splits of the authors of the network.

    Args:
        name: File name without ending in the folder ``uci_regression`` of the benchmark data, such
            as ``boston`` or ``yacht``. The environment variable ``GPYTORCH_NKN_DATA`` names the
            folder of the benchmark data.

    Raises:
        FileNotFoundError: The variable is not set, or there is no such file.
        ValueError: The file lacks an array.

    Reference: Sun et al. (2018), section 5.2.
    """
    file = read_table("uci_regression", name, lambda known: _KEYS)
    X, y, random_tests, pca_test = (file[key] for key in _KEYS)
    return RegressionTable(name, X.astype(float), y.astype(float), random_tests, pca_test)
