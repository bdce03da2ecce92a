"""Wild values of a series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.member import Member
from gpytorch_nkn.estimators.series.training import Series, Settings, train
from gpytorch_nkn.fit import Session

__all__ = ["CANDIDATE", "wild_rows"]

CANDIDATE = "smooth"  # that predicts each target from all others
_WILD = 12.0  # times the errors of the other targets
_FEWEST = 20  # targets, below which nothing is wild
_SHARE, _ROUNDS = 0.02, 5


def wild_rows(
    series: Series, scales: Sequence[Transform], settings: Settings, budget: float | None
) -> tuple[np.ndarray, list[Member]]:
    """Mask ``N`` of targets that all others rule out, and what was trained on all rows.

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

    Returns:
        The mask, and the candidates that learned from all rows of the series: they need not be
        trained again if none is wild.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    wild = np.ones(len(series.time), bool)
    trained: list[Member] = []
    session = Session(budget=budget)
    for transform in dict.fromkeys((scales[0], scales[-1])):  # others are between these
        if wild.any():
            wild &= _wild_rows(series, transform, settings, session, trained)
    return wild, trained


def _wild_rows(
    series: Series,
    transform: Transform,
    settings: Settings,
    session: Session,
    trained: list[Member],
) -> np.ndarray:
    wild = np.zeros(len(series.time), bool)
    if len(wild) < _FEWEST:
        return wild
    for _ in range(_ROUNDS):
        rest = series.select(~wild)
        part = session.part(0.5)  # most series need one round
        member = train(CANDIDATE, None, transform, rest, settings, part)
        if member.result is not None and member.result.interrupted:
            raise KeyboardInterrupt  # nothing has been reached that could forecast
        if member.status != "ok":
            break
        if not wild.any():
            trained.append(member)
        if rest.num_trained < len(rest.time):
            left = session.part(0.5)
            member.condition(rest.rows, rest.values, settings.device, seconds=left, filtered=False)
        errors = member.errors()
        first = len(rest.time) - len(errors)  # of the rows that forecasts depend on
        found = first + _outstanding(errors)
        if not found.size or np.ptp(np.delete(rest.values, found)) == 0:
            break
        if wild.sum() + found.size > 1 + _SHARE * len(wild):  # so many are its nature
            break
        wild[np.flatnonzero(~wild)[found]] = True
    return wild


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
