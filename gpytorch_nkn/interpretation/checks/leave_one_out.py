"""Predictions of each observation from all the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import special, stats
from torch import Tensor

from gpytorch_nkn.interpretation.checks.check_tools import (
    CLEAR,
    SIGNS,
    check_size,
    p_text,
    plain,
    symmetric_matrix,
    vector,
)
from gpytorch_nkn.linalg import ExactPosterior

__all__ = ["Coverage", "LeaveOneOut", "leave_one_out"]

_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Coverage:
    """Share of the held-out observations inside their predictive intervals.

    Attributes:
        level: Probability of each interval.
        fraction: Share of the observations inside.
        lower: Lower end of the central 95 % of the shares that independent observations have.
        upper: Its upper end.
        p_value: Of the exact two-sided binomial test.
    """

    level: float
    fraction: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Predictions of each observation from all the others.

    Attributes:
        mean: Predictive means ``N``.
        std: Predictive standard deviations ``N``, noise included.
        z_scores: Errors ``N`` in standard deviations.
        log_density: Mean log predictive density of an observation, in nats.
        coverage: Share of the observations inside central intervals, by their level.
        p_value: Of a Kolmogorov-Smirnov test that the probability integral transform is uniform.
            It is approximate, as the errors are not independent.
    """

    mean: np.ndarray
    std: np.ndarray
    z_scores: np.ndarray
    log_density: float
    coverage: tuple[Coverage, ...]
    p_value: float

    @classmethod
    @np.errstate(under="ignore")  # small terms vanish
    def of_mixture(
        cls, y: np.ndarray, weights: np.ndarray, means: np.ndarray, stds: np.ndarray
    ) -> LeaveOneOut:
        """Of observations ``N`` that ``K`` processes predicted, with their weights.

        Errors in standard deviations are those of a normal distribution with the same probability.

        Args:
            y: Observations ``N``.
            weights: ``K``, of sum one.
            means: ``K x N``.
            stds: ``K x N``, noise included.
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
            lower, upper = stats.binom.interval(0.95, y.size, level)
            p_value = stats.binomtest(inside, y.size, level).pvalue
            ends = float(lower) / y.size, float(upper) / y.size
            coverage.append(Coverage(level, inside / y.size, *ends, float(p_value)))
        return cls(
            mean=mean,
            std=np.sqrt(weights @ (stds**2 + (means - mean) ** 2)),
            z_scores=z_scores,
            log_density=float(logs.mean()),
            coverage=tuple(coverage),
            p_value=float(stats.kstest(stats.norm.cdf(z_scores), "uniform").pvalue),
        )

    def sentences(self) -> list[str]:
        """A plain sentence on the intervals, and one on the distribution as a whole.

        A p-value below 0.05 is reported as a sign of misfit, one below 0.01 as misfit. That of the
        intervals is the smallest of the levels, times their number (Bonferroni).
        """
        worst = min(self.coverage, key=lambda c: c.p_value)
        p_value = min(1.0, len(self.coverage) * worst.p_value)
        if p_value >= SIGNS:
            shown = next(c for c in self.coverage if c.level == 0.95)
            first = (
                "The predictive intervals hold as many held-out observations as they should: "
                f"{shown.fraction:.1%} in those of 95% ({p_text(p_value)})."
            )
        else:
            verb = "are" if p_value < CLEAR else "may be"
            wrong = "narrow" if worst.fraction < worst.level else "wide"
            first = (
                f"The predictive intervals {verb} too {wrong}: those of {worst.level:.0%} hold "
                f"{worst.fraction:.1%} of the held-out observations, where {worst.lower:.1%} to "
                f"{worst.upper:.1%} are expected ({p_text(p_value)})."
            )
        if self.p_value >= SIGNS:
            second = (
                "The held-out observations show no departure from their predictive distributions"
            )
        elif self.p_value >= CLEAR:
            second = "There are signs that the predictive distributions of held-out data are wrong"
        else:
            second = "The held-out observations do not follow their predictive distributions"
        return [first, f"{second} ({p_text(self.p_value)})."]

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain numbers, lists and dictionaries."""
        return plain(self)


def leave_one_out(
    covariance: ArrayLike | Tensor,
    residual: ArrayLike | Tensor,
    y: ArrayLike | Tensor | None = None,
) -> LeaveOneOut:
    """Predict each observation from all the others, with the parameters of the model as they are.

    Args:
        covariance: Prior covariance ``N x N`` of the observations, noise included.
        residual: Observations minus their prior mean, ``N``.
        y: Observations ``N``. With them ``mean`` is the prediction of ``y``, else of ``residual``.

    Raises:
        TypeError: An argument does not hold real numbers.
        ValueError: A shape is wrong, a value not finite, or the covariance is not symmetric
            positive definite.

    Reference: Rasmussen and Williams (2006), section 5.4.2.
    """
    residual = vector("residual", residual)
    n = residual.size
    covariance = symmetric_matrix(covariance, n)
    offset = np.zeros(n)
    if y is not None:
        y = vector("y", y)
        check_size("y", y, n)
        offset = y - residual
    try:
        posterior = ExactPosterior(
            torch.from_numpy(np.array(covariance)), torch.from_numpy(np.array(residual))
        )
    except torch.linalg.LinAlgError as error:
        raise ValueError(
            f"covariance must be positive definite, got one of shape {covariance.shape} that is "
            "not; it must include the noise."
        ) from error
    mean, variance = (part.numpy() for part in posterior.leave_one_out())
    made = LeaveOneOut.of_mixture(residual, np.ones(1), mean[None], np.sqrt(variance)[None])
    return replace(made, mean=mean + offset)
