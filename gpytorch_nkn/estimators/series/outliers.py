"""Wild values of a series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.series.training import Series, Settings, train
from gpytorch_nkn.estimators.series.transforms import Transform

__all__ = ["wild_rows"]

_WILD = 12.0  # times the errors of the other targets
_FEWEST = 20  # targets, below which nothing is wild
_SHARE, _ROUNDS = 0.02, 5


def wild_rows(
    series: Series, scales: Sequence[Transform], settings: Settings, budget: float | None
) -> np.ndarray:
    """Mask ``N`` of targets that all others rule out.

    A target is wild if its standardised error, where it is predicted from all others, is more than
    12 times the root mean square of all smaller errors (Gaussian ones of 400 reach 4; a ratio,
    since a wild value also widens what it is compared with). The process that predicts is the
    candidate of walks, trends and seasons, which learns anew without what it found wild, as wild
    values hide others. Values of a level that stays predict each other: at most those next to a
    great step are wild. Of several scales, a value must be wild on each.

    Args:
        series: The series.
        scales: What may be modelled of the targets.
        settings: How to train.
        budget: Seconds; ``None`` for any number.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    wild = np.ones(len(series.time), bool)
    for transform in scales:
        if wild.any():
            part = None if budget is None else budget / (_ROUNDS * len(scales))
            wild &= _wild_rows(series, transform, settings, part)
    return wild


def _wild_rows(
    series: Series, transform: Transform, settings: Settings, part: float | None
) -> np.ndarray:
    wild = np.zeros(len(series.time), bool)
    if len(wild) < _FEWEST:
        return wild
    for _ in range(_ROUNDS):
        rest = series.select(~wild)
        member = train("walks", None, transform, rest, settings, part)
        if member.result is not None and member.result.interrupted:
            raise KeyboardInterrupt  # nothing has been reached that could forecast
        if member.status != "ok":
            break
        errors = _errors(ConditionedGP(member.model))
        first = len(rest.time) - len(errors)  # of the rows that forecasts depend on
        found = first + _outstanding(errors)
        if not found.size or np.ptp(np.delete(rest.values, found)) == 0:
            break
        if wild.sum() + found.size > 1 + _SHARE * len(wild):  # so many are its nature
            break
        wild[np.flatnonzero(~wild)[found]] = True
    return wild


@torch.no_grad()
def _errors(process: ConditionedGP) -> np.ndarray:
    """Absolute standardised errors of targets predicted from all others."""
    mean, variance = process.leave_one_out()
    return ((process.targets - mean).abs() / variance.sqrt()).cpu().numpy()


def _outstanding(errors: np.ndarray) -> np.ndarray:
    """Rows of the errors that stand out of all smaller ones, and are larger than next to them.

    Neighbours of a wild value have large errors, too, as long as it predicts them.
    """
    order = np.argsort(errors)
    smaller = np.sqrt(np.cumsum(errors[order] ** 2) / np.arange(1, errors.size + 1))
    upper = np.arange(errors.size // 2, errors.size)
    gaps = upper[errors[order[upper]] > _WILD * smaller[upper - 1]]
    if not gaps.size:
        return gaps
    padded = np.concatenate([[0.0], errors, [0.0]])
    largest = errors >= np.maximum(padded[:-2], padded[2:])
    return np.flatnonzero(largest & (errors >= errors[order[gaps[0]]]))
