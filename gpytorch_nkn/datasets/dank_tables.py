"""Tables with random halves, for support vector machines."""

from __future__ import annotations

import numpy as np

from gpytorch_nkn.datasets.classification import ClassificationTable
from gpytorch_nkn.datasets.data_folder import DATA_VARIABLE, data_folder
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
    root = data_folder()
    path = root / "dank" / f"{name}.npz"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npz"))
        raise FileNotFoundError(
            f"{DATA_VARIABLE}={root} must hold dank/{name}.npz; tables that are there: "
            f"{', '.join(known) or 'none'}."
        )
    with np.load(path, allow_pickle=False) as file:
        target = "y_siri" if "y_siri" in file else "y"
        missing = [key for key in ("X", target) if key not in file]
        if missing:
            raise ValueError(f"{path} must hold X, y; it lacks {', '.join(missing)}.")
        X, y = file["X"].astype(float), file[target]
        num_train = int(file["n_train"]) if "n_train" in file else len(y)
    if target == "y_siri":
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
