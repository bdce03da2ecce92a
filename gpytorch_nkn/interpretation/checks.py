"""Predictions of held-out observations, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import special, stats

from gpytorch_nkn.averaging import PredictiveMixture, Transform
from gpytorch_nkn.interpretation.source import FittedGP
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["Coverage", "LeaveOneOut", "autocorrelation", "held_out"]

_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
_MAX_LAGS = 20


@dataclass(frozen=True)
class Coverage:
    """Fraction of the held-out observations inside their predictive intervals."""

    level: float  #: nominal probability of the intervals
    fraction: float  #: fraction of observations inside the intervals
    lower: float  #: ends of the central 95 % range of the fraction for a calibrated model
    upper: float
    p_value: float  #: of a two-sided binomial test


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Predictions of held-out observations, in units of the data."""

    mean: np.ndarray  #: predictive means N
    std: np.ndarray  #: predictive standard deviations N, noise included
    z_scores: np.ndarray  #: errors N in standard deviations
    coverage: tuple[Coverage, ...]  #: one for each of five levels
    p_value: float  #: Kolmogorov-Smirnov test of the z-scores, which ignores their dependence
    of_all: bool = False  #: whether z-scores are of all members of an estimator's mixture

    @classmethod
    @np.errstate(under="ignore")  # small probabilities round to zero
    def of_mixture(
        cls, y: np.ndarray, weights: np.ndarray, means: np.ndarray, stds: np.ndarray
    ) -> LeaveOneOut:
        """Score a mixture of predictions ``K x N``, with weights ``K``, at observations ``N``.

        The z-score is the normal quantile of the mixture's cumulative probability.
        """
        scores = (y - means) / stds
        z_scores = scores[0]
        if len(weights) > 1:
            below = special.logsumexp(special.log_ndtr(scores), axis=0, b=weights[:, None])
            above = special.logsumexp(special.log_ndtr(-scores), axis=0, b=weights[:, None])
            least = special.ndtri_exp(np.minimum(np.minimum(below, above), -np.log(2)))
            z_scores = np.where(below < above, least, -least)
        mean = weights @ means
        return cls(mean, np.sqrt(weights @ (stds**2 + (means - mean) ** 2)), *_test(z_scores))

    def with_ranks(self, ranks: np.ndarray) -> LeaveOneOut:
        """Return scores with z-scores from cumulative probabilities ``2 x N`` at observations y.

        These are P(Y < y) and P(Y <= y). Where they differ, as for counts, the rank is drawn
        uniformly between them.

        Reference: Czado, Gneiting and Held (2009), Predictive model assessment for count data.
        """
        lower, upper = ranks
        drawn = lower + np.random.default_rng(0).uniform(size=lower.shape) * (upper - lower)
        z_scores = stats.norm.ppf(np.clip(drawn, np.finfo(float).tiny, 1 - np.finfo(float).epsneg))
        return LeaveOneOut(self.mean, self.std, *_test(z_scores), of_all=True)

    def of_counts(self, transform: Transform, scaled: np.ndarray) -> LeaveOneOut:
        """Return scores of counts, given their transformed values ``N``."""
        mixture = PredictiveMixture(np.ones(1), self.mean[None], self.std[None], (transform,))
        counts = transform.inverse(scaled)
        ranks = np.stack([mixture.below(counts - 1), mixture.below(counts)])
        return replace(self.with_ranks(ranks), of_all=False)


def _test(z_scores: np.ndarray) -> tuple[np.ndarray, tuple[Coverage, ...], float]:
    coverage, size = [], z_scores.size
    for level in _LEVELS:
        inside = int((np.abs(z_scores) <= stats.norm.ppf((1 + level) / 2)).sum())
        lower, upper = np.array(stats.binom.interval(0.95, size, level)) / size
        p_value = float(stats.binomtest(inside, size, level).pvalue)
        coverage.append(Coverage(level, inside / size, float(lower), float(upper), p_value))
    p_value = float(stats.kstest(stats.norm.cdf(z_scores), "uniform").pvalue)
    return z_scores, tuple(coverage), p_value


def held_out(
    processes: Sequence[tuple[float, FittedGP]],
) -> tuple[np.ndarray, LeaveOneOut, LeaveOneOut]:
    r"""Predict each observation from earlier observations, and from all other observations.

    Hyperparameters stay fixed. With the Cholesky factor L of the noisy covariance and the targets r
    minus their prior mean, the one-step-ahead prediction is

    .. math:: \mu_n = r_n - L_{nn} e_n, \qquad \sigma_n = L_{nn}, \qquad L e = r

    A mixture has several ``processes``, and weights that sum to one. Return observations ``N`` in
    units of the data, and both predictions.

    References: Dawid (1984), Present position and potential developments: the prequential approach;
    Rasmussen and Williams (2006), section 5.4.2.
    """
    ahead: list[tuple[np.ndarray, np.ndarray]] = []
    others: list[tuple[np.ndarray, np.ndarray]] = []
    for _, gp in processes:
        noisy = gp.covariance + torch.diag_embed(gp.noise)
        residual = (gp.targets - gp.mean).double().cpu()
        posterior = ExactPosterior(noisy.double().cpu(), residual)
        std = posterior.factor.diagonal()
        lower, right = posterior.factor, residual.unsqueeze(-1)
        errors = torch.linalg.solve_triangular(lower, right, upper=False)[..., 0]
        ahead.append(gp.in_data_units(residual - std * errors, std))
        mean, variance = posterior.leave_one_out()
        others.append(gp.in_data_units(mean, variance.sqrt()))
    _, first = processes[0]
    values, _ = first.in_data_units((first.targets - first.mean).double().cpu(), std)
    weights = np.array([weight for weight, _ in processes])
    ahead_scores, loo_scores = (
        LeaveOneOut.of_mixture(values, weights, *map(np.stack, zip(*predictions, strict=True)))
        for predictions in (ahead, others)
    )
    return values, ahead_scores, loo_scores


def autocorrelation(errors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return autocorrelations of errors ``N`` at up to 20 lags, and the p-value of a joint test.

    The Ljung-Box test (1978) assumes independent standardised one-step-ahead errors.
    """
    n = errors.size
    centered = errors - errors.mean()
    lags = np.arange(1, max(1, min(n // 4, _MAX_LAGS)) + 1)
    values = np.correlate(centered, centered, "full")[n : n + lags.size]
    values = values / (centered @ centered or 1.0)
    statistic = n * (n + 2) * (values**2 / (n - lags)).sum()
    return values, float(stats.chi2.sf(statistic, lags.size))
