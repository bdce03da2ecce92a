"""The wording of results that the checks of a model share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = [
    "Coverage",
    "graded",
    "interval_sentence",
    "plain",
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
