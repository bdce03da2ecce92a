"""Outliers of a series."""

from __future__ import annotations

import numpy as np

__all__ = ["FEWEST", "SHARE", "outlying"]

FEWEST = 20  # targets of the shortest series that can have outliers
_OUTLYING = 12.0  # least ratio to the RMS of the smaller errors
_LEAST = 3.0  # least standardised error of an outlier, for noise-free series
SHARE = 0.02  # largest fraction of outliers
_NEAR = 0.8  # least ratio to a neighbour's error, for two outliers in a row


def outlying(errors: np.ndarray) -> np.ndarray:
    """Rows whose error is more than 12 times the RMS of all smaller errors, and a local maximum.

    Errors are absolute standardised leave-one-out errors. The ratio is to smaller errors because
    an outlier inflates the RMS. Neighbours of an outlier have large errors, too, because the
    outlier predicts them.
    """
    order = np.argsort(errors)
    smaller = np.sqrt(np.cumsum(errors[order] ** 2) / np.arange(1, errors.size + 1))
    upper = np.arange(errors.size // 2, errors.size)
    gaps = upper[errors[order[upper]] > np.maximum(_OUTLYING * smaller[upper - 1], _LEAST)]
    if not gaps.size:
        return gaps
    padded = np.concatenate([[0.0], errors, [0.0]])
    largest = errors >= _NEAR * np.maximum(padded[:-2], padded[2:])
    return np.flatnonzero(largest & (errors >= errors[order[gaps[0]]]))
