"""Skewed targets: which transform they are modelled under, and what comes back of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import skew

from gpytorch_nkn.estimators.nkn.ensemble import mixture_log_density, mixture_quantile
from gpytorch_nkn.estimators.transforms import Transform

__all__ = ["chosen", "is_skewed", "log_density", "moments"]

_SKEWED = 0.5
_STANDARD_ERRORS = 2.0
_TAIL = 5e-4  # beyond, on either side, values count as the quantile there
_NODES = 40
_FAR = 40.0  # deviations, in which all of a Gaussian lies


def is_skewed(targets: np.ndarray) -> bool:
    """Whether targets ``N`` have a tail to the right that a logarithm or a root could mend."""
    return bool(targets.min() >= 0 and skew(targets) > _SKEWED)


def chosen(
    candidates: Sequence[Transform],
    targets: np.ndarray,
    held_out: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> Transform:
    """The transform under which held-out targets are predicted best.

    Args:
        candidates: The identity, and others.
        targets: ``N``.
        held_out: Gives, of targets on their new scale, those that were held out (``M``, in the same
            order for all candidates), and the log densities of these.

    Returns:
        The one with the highest log density per unit of the targets if it is above that of the
        identity by 2 standard errors; else the identity.
    """
    densities = []
    for transform in candidates:
        scaled, logs = held_out(transform.forward(targets))
        densities.append(logs + transform.log_slope(transform.inverse(scaled)))
    gains = np.array(densities) - densities[0]
    gains = gains[:, np.isfinite(gains).all(0)]
    if gains.shape[1] < 2:
        return candidates[0]
    means = gains.mean(1)
    errors = gains.std(1) / np.sqrt(gains.shape[1])
    best = int(means.argmax())
    return candidates[best if means[best] > _STANDARD_ERRORS * errors[best] else 0]


def moments(
    transform: Transform, shares: np.ndarray, means: np.ndarray, stds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations ``M`` of targets that are a mixture of ``R`` Gaussians when transformed.

    The rarest values, a thousandth in all, count as the quantiles that they lie beyond: under a
    logarithm the moments of wide tails, which held-out rows hardly tell, would outweigh all else.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    lower = mixture_quantile(shares, means, stds, _TAIL)
    upper = mixture_quantile(shares, means, stds, 1 - _TAIL)
    first, second = np.zeros_like(lower), np.zeros_like(lower)
    middle = transform.inverse(mixture_quantile(shares, means, stds, 0.5))
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        apart = transform.inverse(np.clip(means + node * stds, lower, upper)) - middle
        first += weight * (shares @ apart)
        second += weight * (shares @ apart**2)
    return middle + first, np.sqrt((second - first**2).clip(0))


def log_density(
    transform: Transform,
    shares: np.ndarray,
    means: np.ndarray,
    stds: np.ndarray,
    values: np.ndarray,
    resolution: float,
) -> np.ndarray:
    """Log density of targets ``M``, or its mean over an interval of that width around each."""
    if transform.is_identity and transform.lower == -np.inf and transform.upper == np.inf:
        return mixture_log_density(shares, means, stds, values, resolution=resolution)
    if not resolution:
        logs = mixture_log_density(shares, means, stds, transform.forward(values))
        return logs + transform.log_slope(values)
    lower, upper = (transform.position(values + half) for half in (-resolution / 2, resolution / 2))
    is_empty = lower >= upper  # there can be no targets
    lowest, highest = (means - _FAR * stds).min(0), (means + _FAR * stds).max(0)
    lower = np.where(np.isfinite(lower), lower, np.fmin(lowest, upper) - 1)
    upper = np.where(np.isfinite(upper), upper, np.fmax(highest, lower) + 1)
    width = np.where(is_empty, 1.0, upper - lower)
    logs = mixture_log_density(shares, means, stds, (lower + upper) / 2, resolution=width)
    return np.where(is_empty, -np.inf, logs + np.log(width) - np.log(resolution))
