"""Tables with random halves, for support vector machines."""

from __future__ import annotations

import numpy as np

from gpytorch_nkn.datasets.classification import ClassificationTable
from gpytorch_nkn.datasets.data_folder import read_table
from gpytorch_nkn.datasets.regression import RegressionTable

__all__ = ["load_dank_table"]

_SPLITS = 30
_FIRST_SEED = 100


def load_dank_table(name: str) -> ClassificationTable | RegressionTable:
    """A table of the benchmark data with 30 random halves.

    Split ``i`` trains with the first half of ``numpy.random.default_rng(100 + i).permutation(N)``,
    rounded down. A table of whole numbers as targets is one for classification. The first column of
    ``bodyfat`` determines its target, so the target is ``y_siri``, given the other columns.

    Args:
        name: File name without ending in the folder ``dank`` of the benchmark data, such as
            ``heart`` or ``mpg``. The environment variable ``GPYTORCH_NKN_DATA`` names the folder of
            the benchmark data.

    Raises:
        FileNotFoundError: The variable is not set, or there is no such file.
        ValueError: The file lacks an array.

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels,
    section 6.
    """
    file = read_table("dank", name, lambda known: ("X", "y_siri" if "y_siri" in known else "y"))
    X, y = file["X"].astype(float), file["y_siri" if "y_siri" in file else "y"]
    num_train = int(file.get("n_train", len(y)))
    if "y_siri" in file:
        X = X[:, 1:]
    halves = np.stack(
        [
            np.random.default_rng(_FIRST_SEED + i).permutation(len(y))[len(y) // 2 :]
            for i in range(_SPLITS)
        ]
    )
    if np.issubdtype(y.dtype, np.floating):
        return RegressionTable(name, X, y.astype(float), halves, np.empty(0, dtype=int))
    return ClassificationTable(name, X, y, halves, np.arange(num_train, len(y)))
