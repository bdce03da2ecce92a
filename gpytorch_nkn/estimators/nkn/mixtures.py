"""Mixtures of Gaussians, point by point."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

__all__ = ["mixture_log_density", "mixture_quantile"]


def mixture_log_density(
    shares: np.ndarray, means: np.ndarray, stds: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Log density of values ``M`` under mixtures of ``R`` Gaussians, with moments ``R x M``."""
    return logsumexp(norm.logpdf(values, means, stds), axis=0, b=shares[:, None])


def mixture_quantile(
    shares: np.ndarray, means: np.ndarray, stds: np.ndarray, probability: float
) -> np.ndarray:
    """Quantile of a mixture of Gaussians by bisection between those of its parts."""
    parts = means + stds * norm.ppf(probability)
    lower, upper = parts.min(0), parts.max(0)
    for _ in range(60):
        middle = (lower + upper) / 2
        below = shares @ ndtr((middle - means) / stds) < probability
        lower, upper = np.where(below, middle, lower), np.where(below, upper, middle)
    return (lower + upper) / 2
