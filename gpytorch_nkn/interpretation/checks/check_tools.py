"""Validation of input, and the wording of results, shared by the checks of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = [
    "Coverage",
    "graded",
    "interval_sentence",
    "plain",
    "symmetric_matrix",
    "vector",
]

_SIGNS, _CLEAR = 0.05, 0.01  # a p-value below the first is reported, below the second firmly


@dataclass(frozen=True)
class Coverage:
    """Share of the held-out observations inside their predictive intervals."""

    level: float  #: probability of each interval
    fraction: float  #: share of the observations inside
    lower: float  #: ends of the central 95 % of the shares that the model expects
    upper: float
    p_value: float  #: of a two-sided test of the share


def graded(p_value: float, good: str, signs: str, bad: str) -> str:
    """One of three verdicts: a p-value below 0.05 is a sign of misfit, one below 0.01 misfit."""
    chosen = good if p_value >= _SIGNS else signs if p_value >= _CLEAR else bad
    return f"{chosen} ({_p_text(p_value)})"


def interval_sentence(coverage: tuple[Coverage, ...]) -> str:
    """Whether intervals hold the observations, by the smallest p-value of all (Bonferroni)."""
    worst = min(coverage, key=lambda c: c.p_value)
    p_value = min(1.0, len(coverage) * worst.p_value)
    if p_value >= _SIGNS:
        shown = next(c for c in coverage if c.level == 0.95)
        return (
            "The predictive intervals hold as many held-out observations as they should: "
            f"{shown.fraction:.1%} in intervals of 95% ({_p_text(p_value)})."
        )
    verb = "are" if p_value < _CLEAR else "may be"
    wrong = "narrow" if worst.fraction < worst.level else "wide"
    return (
        f"The predictive intervals {verb} too {wrong}: intervals of {worst.level:.0%} hold "
        f"{worst.fraction:.1%} of the held-out observations, where {worst.lower:.1%} to "
        f"{worst.upper:.1%} are expected ({_p_text(p_value)})."
    )


def _p_text(p_value: float) -> str:
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


def vector(name: str, values: ArrayLike | Tensor, n: int | None = None) -> np.ndarray:
    """At least three finite numbers, or ``n`` of them."""
    array = real_array(name, values)
    if array.ndim != 1 or array.size < 3:
        raise ValueError(f"{name} must be a vector of at least 3 numbers, got shape {array.shape}.")
    if n not in (None, array.size):
        raise ValueError(f"{name} must have shape ({n},), got {array.shape}.")
    return array


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
