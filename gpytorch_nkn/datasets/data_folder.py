"""The folder of benchmark data, which is not part of the package."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

__all__ = ["DATA_VARIABLE", "data_folder", "read_table"]

DATA_VARIABLE = "GPYTORCH_NKN_DATA"


def data_folder() -> Path:
    """The folder that the environment variable ``GPYTORCH_NKN_DATA`` names.

    Raises:
        FileNotFoundError: The variable is not set.
    """
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        raise FileNotFoundError(
            f"Set the environment variable {DATA_VARIABLE} to the folder of the benchmark data."
        )
    return Path(root)


def read_table(
    folder: str, name: str, keys: Callable[[Sequence[str]], Sequence[str]]
) -> dict[str, np.ndarray]:
    """Arrays of ``folder/name.npz`` in the folder of benchmark data.

    Args:
        folder: Where the file is.
        name: File name without ending.
        keys: Makes names of arrays that must be there of those that are.

    Raises:
        FileNotFoundError: The variable is not set, or there is no such file.
        ValueError: The file lacks an array.
    """
    root = data_folder()
    path = root / folder / f"{name}.npz"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npz"))
        raise FileNotFoundError(
            f"{DATA_VARIABLE}={root} must hold {folder}/{name}.npz; tables that are there: "
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
