"""Rows that are held out of a training."""

from __future__ import annotations

import numpy as np

__all__ = ["held_out_parts"]


def held_out_parts(
    count: int,
    parts: int,
    fraction: float,
    rng: np.random.RandomState,
    labels: np.ndarray | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random rows to train on and rows to hold out, with the same shares of every class.

    Every class has a row that is never held out, so one of a single row is always trained on.

    Args:
        count: Number of rows.
        parts: Number of parts to hold out in turn, which have no row in common.
        fraction: Share of the rows that each holds.
        rng: Where draws come from.
        labels: Classes ``N``, if there are any.

    Returns:
        Numbers of the rows to train on and of those held out, in increasing order; fewer pairs
        than asked for where there are too few rows to hold out.
    """
    order = rng.permutation(count)
    first = np.zeros(count, dtype=bool)
    if labels is None:
        first[order[0]] = True
    else:
        order = order[np.argsort(labels[order], kind="stable")]
        _, starts = np.unique(labels[order], return_index=True)
        first[order[starts]] = True
    free = order[~first[order]]
    number = min(round(parts * fraction * count), len(free))
    places = ((np.arange(number) + rng.uniform()) * len(free) / max(number, 1)).astype(int)
    turns = np.arange(number) % parts
    pairs = []
    for part in range(min(parts, number)):
        held = np.zeros(count, dtype=bool)
        held[free[places[turns == part]]] = True
        pairs.append((np.flatnonzero(~held), np.flatnonzero(held)))
    return pairs
