"""Stacking weights of models in a mixture of their predictions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

__all__ = ["WIDTHS", "stack_predictions", "stacking_weights", "weigh_unique"]

_STEPS, _ROUNDS = 500, 20  # limits of EM steps, and of alternations between models and factors
_TOLERANCE = 1e-10  # largest change of a weight in one EM step at convergence

# Calibration factors of standard deviations. The Dirichlet prior on their weights has five
# pseudo-counts for the factor 1, plus 0.5 % of the number of points, split evenly over all factors.
WIDTHS = 2.0 ** np.arange(-1.0, 3.5, 0.5)
_UNIT_PSEUDO_COUNTS = 5.0
_WIDTH_CONCENTRATION = 0.005


@np.errstate(under="ignore")  # small densities underflow
def stacking_weights(log_densities: ArrayLike, *, concentration: float = 0.05) -> np.ndarray:
    r"""Return weights ``M`` (sum 1) of the mixture that predicts held-out data best.

    .. math::
        \max_{w \in \Delta} \; \frac1N \sum_{i} \log \sum_m w_m\, p_m(y_i \mid y_{-i})
        + \frac{\epsilon}{M} \sum_m \log w_m

    over the simplex. Expectation-maximisation maximises this concave objective. The second term, a
    Dirichlet prior, keeps weights positive, because with few data a model may be best by chance.

    Args:
        log_densities: Held-out log predictive densities ``M x N`` of M models at N points. Infinite
            and NaN entries count as a density of 0.
        concentration: Weight :math:`\epsilon` of the prior; 0 for no prior. Large values give equal
            weights.

    Raises:
        ValueError: ``log_densities`` is not a matrix or has no finite entry, or ``concentration``
            is negative.

    Reference: Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
    predictive distributions, equation 8. The prior is not in the paper.
    """
    logs = np.array(log_densities, dtype=float)
    if logs.ndim != 2 or logs.size == 0:
        raise ValueError(f"log_densities must be a matrix M x N, got shape {logs.shape}.")
    if not 0 <= concentration < np.inf:
        raise ValueError(f"concentration must be finite and not negative, got {concentration}.")
    logs[~np.isfinite(logs)] = -np.inf
    usable = np.isfinite(logs).any(1)
    if not usable.any():
        raise ValueError("log_densities must have a finite entry, got none.")
    logs = logs[:, np.isfinite(logs).any(0)]  # points without finite densities are uninformative
    uniform = usable / usable.sum()
    weights = _maximise(logs, uniform, concentration * logs.shape[1] * uniform)
    return weights / weights.sum()


@np.errstate(under="ignore")  # small densities underflow
def _maximise(logs: np.ndarray, weights: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the MAP weights ``M`` for log densities ``M x N`` and pseudo-counts ``M``."""
    densities = np.exp(logs - logs.max(0))
    total = logs.shape[1] + prior.sum()
    for _ in range(_STEPS):
        mixed = np.maximum(weights @ densities, np.finfo(float).tiny)
        new = (weights * (densities @ (1 / mixed)) + prior) / total
        change = np.abs(new - weights).max()
        weights = new
        if change < _TOLERANCE:
            break
    return weights


def weigh_unique(predictions: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return weights ``M``; models with equal predictions ``M x N`` split one weight evenly.

    ``weigh`` maps the indices of distinct models to their weights.
    """
    _, first, alike = np.unique(predictions, axis=0, return_index=True, return_inverse=True)
    return (weigh(first) / np.bincount(alike))[alike]


def stack_predictions(
    targets: ArrayLike, means: ArrayLike, variances: ArrayLike, *, weights: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return weights of models and of factors :data:`WIDTHS` that predict held-out targets best.

    .. math:: p(y_i) = \sum_m w_m \sum_k s_k\, N(y_i \mid \mu_{mi}, c_k^2 \sigma_{mi}^2),
        \qquad c_k \in \{2^{-1}, 2^{-1/2}, \dots, 2^3\}

    with weights :math:`w_m` of models and :math:`s_k` of factors. Unlike in
    :func:`stacking_weights`, each prediction is a scale mixture of Gaussians, because noise is
    seldom Gaussian. With few targets, the prior keeps most of the weight at the factor 1.

    Targets are ``N``; held-out means and variances, noise included, are ``M x N``. Weights of
    models and weights of factors each sum to 1. ``weights`` of the models, if given, are fixed.
    """
    y, mean = np.asarray(targets, dtype=float), np.asarray(means, dtype=float)
    stds = np.sqrt(np.asarray(variances, dtype=float))[:, None] * WIDTHS[:, None]
    with np.errstate(all="ignore"):
        scores = (y - mean[:, None]) / stds
        logs = -(scores**2 + np.log(2 * np.pi)) / 2 - np.log(stds)  # M x K x N
    logs[np.isnan(logs)] = -np.inf
    factor_weights = np.where(WIDTHS == 1, 1.0, 0.0)
    prior = _UNIT_PSEUDO_COUNTS * factor_weights + _WIDTH_CONCENTRATION * y.size / WIDTHS.size
    learned = weights is None
    fractions = np.full(len(mean), 1 / len(mean)) if learned else np.asarray(weights, dtype=float)
    uniform = np.full(WIDTHS.size, 1 / WIDTHS.size)
    for _ in range(_ROUNDS):  # coordinate ascent
        before = factor_weights
        with np.errstate(divide="ignore", under="ignore"):
            if learned:
                by_model = logsumexp(logs, axis=1, b=factor_weights[:, None])
                fractions = stacking_weights(by_model)
            used = fractions > 0
            by_factor = logsumexp(logs[used], axis=0, b=fractions[used, None, None])
        factor_weights = _maximise(by_factor[:, np.isfinite(by_factor).any(0)], uniform, prior)
        if not learned or np.abs(factor_weights - before).max() < 1e-6:
            break
    return fractions, factor_weights
