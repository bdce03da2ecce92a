"""The folder of benchmark data, which is not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DATA_VARIABLE", "data_folder"]

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
