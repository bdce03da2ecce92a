"""Validation of input, and the wording of results, shared by the checks of a model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = [
    "CLEAR",
    "SIGNS",
    "check_size",
    "p_text",
    "plain",
    "real_array",
    "symmetric_matrix",
    "vector",
]

SIGNS, CLEAR = 0.05, 0.01  # a p-value below the first is reported, below the second firmly


def p_text(p_value: float) -> str:
    """As ``p = 0.41``."""
    if p_value < 0.001:
        return "p < 0.001"
    return f"p = {p_value:.2f}" if p_value >= 0.1 else f"p = {p_value:.3f}"


def plain(record: Any) -> dict[str, Any]:
    """A dataclass as a dictionary of what JSON knows."""

    def simplify(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return [simplify(part) for part in value] if isinstance(value, tuple) else value

    return asdict(record, dict_factory=lambda items: {k: simplify(v) for k, v in items})


def real_array(name: str, values: ArrayLike | Tensor) -> np.ndarray:
    """Finite numbers as float64."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    array = array.astype(float, copy=False)
    if not np.isfinite(array).all():
        bad = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite of {array.size}.")
    return array


def vector(name: str, values: ArrayLike | Tensor) -> np.ndarray:
    """At least three finite numbers."""
    array = real_array(name, values)
    if array.ndim != 1 or array.size < 3:
        raise ValueError(f"{name} must be a vector of at least 3 numbers, got shape {array.shape}.")
    return array


def check_size(name: str, array: np.ndarray, n: int) -> None:
    """Refuse a vector whose length is not ``n``."""
    if array.size != n:
        raise ValueError(f"{name} must have shape ({n},), got {array.shape}.")


def symmetric_matrix(values: ArrayLike | Tensor, n: int) -> np.ndarray:
    """A covariance ``n x n``, symmetric up to the rounding of single precision."""
    array = real_array("covariance", values)
    if array.shape != (n, n):
        raise ValueError(f"covariance must have shape ({n}, {n}), got {array.shape}.")
    gap, largest = np.abs(array - array.T).max(), np.abs(array).max()
    if gap > 1e-3 * largest:
        raise ValueError(
            f"covariance must be symmetric, got entries that differ by {gap:.3g} where the "
            f"largest is {largest:.3g}."
        )
    return array
