"""Outliers of a series."""

from __future__ import annotations

import numpy as np

__all__ = ["FEWEST", "outlying", "too_many"]

FEWEST = 20  # targets, below which none is an outlier
_OUTLYING = 12.0  # times the errors of the other targets
_LEAST = 3.0  # standardised error of an outlier; those of exact series are near zero inside
_SHARE = 0.02  # of the targets
_NEAR = 0.8  # of the larger error beside it, from which on two in a row are both outliers


def too_many(count: int, num_rows: int) -> bool:
    """Whether so many outliers are the nature of a series."""
    return count > 1 + _SHARE * num_rows


def outlying(errors: np.ndarray) -> np.ndarray:
    """Rows whose error is more than 12 times the RMS of all smaller ones, and near a local maximum.

    Errors are absolute and standardised, each of a target predicted from all others (Gaussian ones
    of 400 reach 4). The ratio is to smaller errors, since an outlier also widens what it is
    compared with; neighbours of an outlier have large errors, as the outlier predicts them.
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
