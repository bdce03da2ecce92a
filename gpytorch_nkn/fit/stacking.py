"""Weights of models in a mixture of their predictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

__all__ = ["stacking_weights"]

_STEPS = 500
_TOLERANCE = 1e-10  # of the change of a weight in a step


def stacking_weights(log_densities: ArrayLike, *, evenness: float = 0.05) -> np.ndarray:
    r"""Weights under which a mixture predicts left-out data best.

    .. math::
        \max_{w \in \Delta} \; \frac1N \sum_{i} \log \sum_m w_m\, p_m(y_i \mid y_{-i})
        + \frac{\epsilon}{M} \sum_m \log w_m

    The objective is concave; expectation-maximisation rises to its maximum without a step size.
    The second term, a Dirichlet prior, keeps weights from zero. It guards against models whose
    lead in density on the data at hand is chance: on data unlike them they may well fail alone.

    Args:
        log_densities: ``M x N``: log predictive density of each model at each point, from a
            posterior that has not seen the point. Infinite or NaN values count as a density of 0.
        evenness: The weight :math:`\epsilon` of the prior; 0 for stacking without one, large
            values give equal weights.

    Returns:
        Weights ``M``, not negative, of sum 1. A model without a finite density gets 0.

    Raises:
        ValueError: The densities are no matrix, none is finite, or ``evenness`` is negative.

    Reference: Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
    predictive distributions, equation 8. The prior is not theirs.
    """
    logs = np.array(log_densities, dtype=float)
    if logs.ndim != 2 or logs.size == 0:
        raise ValueError(f"log_densities must be a matrix M x N, got shape {logs.shape}.")
    if not 0 <= evenness < np.inf:
        raise ValueError(f"evenness must be finite and not negative, got {evenness}.")
    logs[~np.isfinite(logs)] = -np.inf
    usable = np.isfinite(logs).any(1)
    if not usable.any():
        raise ValueError("No log density is finite.")
    weights = usable / usable.sum()
    logs = logs[:, np.isfinite(logs).any(0)]  # points that no model foresees tell nothing apart
    num_points = logs.shape[1]
    pseudo = evenness * num_points * usable / usable.sum()
    for _ in range(_STEPS):
        with np.errstate(divide="ignore"):
            joint = np.log(weights)[:, None] + logs
        shares = np.exp(joint - logsumexp(joint, axis=0))
        new = (shares.sum(1) + pseudo) / (num_points * (1 + evenness))
        change = np.abs(new - weights).max()
        weights = new
        if change < _TOLERANCE:
            break
    return weights / weights.sum()
