"""Predictions of observations from all others, and from those before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["Coverage", "LeaveOneOut", "leave_one_out", "one_step_ahead"]

_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Coverage:
    """Share of the held-out observations inside their predictive intervals."""

    level: float  #: probability of each interval
    fraction: float  #: share of the observations inside
    lower: float  #: ends of the central 95 % of the shares that the model expects
    upper: float
    p_value: float  #: of a two-sided test of the share


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Predictions of each observation from all the others."""

    mean: np.ndarray  #: predictive means N
    std: np.ndarray  #: predictive standard deviations N, noise included
    z_scores: np.ndarray  #: errors N in standard deviations
    log_density: float  #: mean log predictive density of an observation, in nats
    coverage: tuple[Coverage, ...]  #: with binomial ranges and p-values
    p_value: float  #: Kolmogorov-Smirnov test of the probability transform; errors are dependent

    @classmethod
    @np.errstate(under="ignore")  # small terms vanish
    def of_mixture(
        cls, y: np.ndarray, weights: np.ndarray, means: np.ndarray, stds: np.ndarray
    ) -> LeaveOneOut:
        """Of observations ``N`` that ``K`` processes predicted, with their weights.

        Means and standard deviations (noise included) are ``K x N``. Errors in standard deviations
        are those of a normal distribution with the same probability.
        """
        each = (y - means) / stds
        z_scores = each[0]
        if len(weights) > 1:
            below = special.logsumexp(special.log_ndtr(each), axis=0, b=weights[:, None])
            above = special.logsumexp(special.log_ndtr(-each), axis=0, b=weights[:, None])
            least = special.ndtri_exp(np.minimum(np.minimum(below, above), -np.log(2)))
            z_scores = np.where(below < above, least, -least)
        mean = weights @ means
        logs = special.logsumexp(stats.norm.logpdf(y, means, stds), axis=0, b=weights[:, None])
        coverage = []
        for level in _LEVELS:
            inside = int((np.abs(z_scores) <= stats.norm.ppf((1 + level) / 2)).sum())
            lower, upper = (
                float(end) / y.size for end in stats.binom.interval(0.95, y.size, level)
            )
            p_value = float(stats.binomtest(inside, y.size, level).pvalue)
            coverage.append(Coverage(level, inside / y.size, lower, upper, p_value))
        return cls(
            mean=mean,
            std=np.sqrt(weights @ (stds**2 + (means - mean) ** 2)),
            z_scores=z_scores,
            log_density=float(logs.mean()),
            coverage=tuple(coverage),
            p_value=float(stats.kstest(stats.norm.cdf(z_scores), "uniform").pvalue),
        )


def leave_one_out(covariance: Tensor, residual: Tensor) -> LeaveOneOut:
    """Predict each observation from all the others, with the parameters of the model as they are.

    The prior covariance ``N x N`` includes the noise; residuals ``N`` are less the prior mean.

    Reference: Rasmussen and Williams (2006), section 5.4.2.
    """
    posterior = ExactPosterior(covariance.double().cpu(), residual.double().cpu())
    mean, variance = (part.numpy()[None] for part in posterior.leave_one_out())
    return LeaveOneOut.of_mixture(posterior.residual.numpy(), np.ones(1), mean, np.sqrt(variance))


def one_step_ahead(factor: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean and standard deviation of each value given those before it (noise included).

    .. math::
        \mu_n = r_n - L_{nn} e_n, \qquad \sigma_n = L_{nn}, \qquad L e = r

    L is the Cholesky factor of the covariance ``N x N`` of the values, r ``N`` these less their
    prior mean.

    Reference: Dawid (1984), Present position and potential developments: the prequential approach.
    """
    innovations = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False)[..., 0]
    std = factor.diagonal()
    return residual - std * innovations, std
