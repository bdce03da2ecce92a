"""Regression of counts: likelihoods, models of the log rate, and predictive distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import NormalPrior
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import betainc, digamma, expit, logsumexp, ndtr, pdtr, polygamma
from torch import Tensor

from gpytorch_nkn.averaging import Transform, stacking_weights, weigh_unique
from gpytorch_nkn.estimators.nkn.ensemble import Ensemble
from gpytorch_nkn.estimators.nkn.table_models import laplace_model
from gpytorch_nkn.estimators.nkn.table_targets import Targets
from gpytorch_nkn.estimators.table_input import per_row
from gpytorch_nkn.fit import Rows
from gpytorch_nkn.layers import add_prior, log_normal_prior

__all__ = [
    "COUNTS",
    "RATES",
    "CountEnsemble",
    "CountMixture",
    "check_counted",
    "count_model",
    "log_exposures",
]

_DISPERSION = 0.3  # mode of the prior on the dispersion of negative binomial counts
_LEAST_DISPERSION = 1e-4  # smallest dispersion; the distribution is nearly Poisson
_NODES, _NODES_AROUND_MODE = 32, 16  # nodes of Gauss-Hermite quadrature
# Least ratio of the standard deviations of the count noise and the latent value for quadrature;
# below this ratio a normal approximation is accurate.
_NARROW = 0.35
_STEPS = 12  # Newton steps towards the mode of a latent value
_MOST = 1e9  # largest count for which these steps converge
_LARGEST = 1e15  # largest rate of a drawn count

COUNTS = ("poisson", "negative_binomial")  # likelihoods of counts


class _Rates(Targets):
    """Counts as targets, without standardisation; the process is the log rate."""

    def rows(self, x: Tensor, observed: np.ndarray) -> Rows:
        """Return rows with counts and logarithms of exposures ``2 x N``."""
        return Rows(x, torch.as_tensor(observed[:2]).to(x))

    def scores(
        self, targets: np.ndarray, mixture: Any, resolution: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log probabilities ``n`` and ranks ``2 x n`` of counts under their mixture."""
        ranks = np.stack([mixture.below(targets - 1), mixture.below(targets)])
        return mixture.log_density(targets), ranks

    def moments(self, mixture: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M`` of a mixture."""
        return mixture.moments()


RATES: Targets = _Rates(Transform("log", lower=0.0, power=0.0), 0.0, 1.0, -np.inf, np.inf)


class _Counts(torch.distributions.Distribution):
    """Distribution of counts with log rates ``... x N`` per unit of exposure."""

    def __init__(self, log_rate: Tensor, dispersion: Tensor | None):
        super().__init__(log_rate.shape, validate_args=False)
        self.log_rate, self.dispersion = log_rate, dispersion

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return log probabilities ``... x N`` of counts and log exposures ``2 x N``."""
        counts, offset = targets
        log_mean = self.log_rate + offset
        if self.dispersion is None:
            return counts * log_mean - log_mean.exp() - torch.lgamma(counts + 1)
        size = 1 / self.dispersion
        return torch.distributions.NegativeBinomial(
            size, logits=log_mean - size.log(), validate_args=False
        ).log_prob(counts)


class _CountLikelihood(Likelihood):
    """Poisson, or negative binomial with the variance ``mean + dispersion * mean**2``.

    The rate is the exponential of the process, so that the log exposure is an offset.
    """

    def __init__(self, dispersed: bool):
        super().__init__()
        self._dispersed = dispersed
        if dispersed:
            self.raw_dispersion = torch.nn.Parameter(torch.zeros(1))
            self.register_constraint("raw_dispersion", GreaterThan(_LEAST_DISPERSION))
            add_prior(self, "dispersion", log_normal_prior(_DISPERSION, 2.0))

    @property
    def dispersion(self) -> Tensor:
        """Excess of the variance over the mean, relative to the squared mean."""
        if not self._dispersed:
            return torch.zeros(1)
        return self.raw_dispersion_constraint.transform(self.raw_dispersion)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _Counts(function_samples, self.dispersion if self._dispersed else None)


def count_model(rows: Rows, kernel: Kernel, *, dispersed: bool) -> Any:
    """Create a model of counts and log exposures ``2 x N``."""
    counts, offset = rows.y
    level = float((counts.sum() + 0.5).log() - offset.logsumexp(-1))
    mean = ConstantMean(constant_prior=NormalPrior(level, 1.0))
    mean.initialize(constant=level)
    return laplace_model(rows, kernel, mean, _CountLikelihood(dispersed))


def check_counted(likelihood: str, y: np.ndarray) -> None:
    """Raise a ``ValueError`` unless targets ``N`` are counts."""
    wrong = np.flatnonzero((y < 0) | (y != np.floor(y)) | (y > _MOST))
    if wrong.size:
        raise ValueError(
            f"likelihood={likelihood!r} needs targets 0, 1, ..., {_MOST:g}, got "
            f"{y[wrong[0]]:g} in row {wrong[0]}: give counts and their exposure in place of "
            "rates, or set likelihood='gaussian'."
        )


def log_exposures(likelihood: str, exposure: Any, count: int) -> np.ndarray:
    """Return logarithms ``N`` of exposures, 0 for ``None``."""
    if exposure is None:
        return np.zeros(count)
    if likelihood not in COUNTS:
        raise ValueError(
            f"exposure needs likelihood='poisson' or 'negative_binomial', got {likelihood!r}."
        )
    return np.log(per_row("exposure", exposure, count, positive=True))


@dataclass(frozen=True)
class CountMixture:
    """Distributions of ``M`` counts, with mixtures of normal distributions of their log rates.

    Given its rate, a count has a Poisson distribution (all ``dispersions`` are 0) or a negative
    binomial distribution (all are positive).
    """

    weights: np.ndarray  # weights R of the components, which sum to 1
    means: np.ndarray  # means R x M of the logarithms of the rates
    stds: np.ndarray  # standard deviations R x M
    dispersions: np.ndarray  # R x 1

    @np.errstate(all="ignore")
    def log_density(self, values: np.ndarray, resolution: float = 0.0) -> np.ndarray:
        """Return log probabilities ``M`` of counts ``M``; minus infinity for other numbers.

        With a ``resolution``, return the logarithm of the probability of an interval of this width
        around each value, divided by the width.
        """
        if resolution:
            half = resolution / 2
            inside = self.below(np.ceil(values + half) - 1) - self.below(np.ceil(values - half) - 1)
            return np.log(inside / resolution)
        is_count = (values >= 0) & (values == np.floor(values))
        logs = self._log_densities(np.where(is_count, values, 0.0))
        logs = logsumexp(logs, axis=0, b=self.weights[:, None])
        return np.where(is_count, logs, -np.inf)

    def _log_densities(self, counts: np.ndarray) -> np.ndarray:
        """Return log probabilities ``R x M`` by quadrature around the mode of the latent value."""
        excess = self.dispersions
        mode, precision = self.means, 1 / np.maximum(self.stds, 1e-6) ** 2
        mode = np.clip(np.log(counts + 0.5), mode - 3 * self.stds, mode + 3 * self.stds)
        for _ in range(_STEPS):
            rate = np.exp(mode)
            share = rate / (1 + excess * rate)  # derivatives of log(1 + a e^f) / a
            slope = counts / (1 + excess * rate) - share - precision * (mode - self.means)
            curvature = share * (1 + excess * counts) / (1 + excess * rate) + precision
            mode = mode + np.clip(slope / curvature, -2.0, 2.0)
        width = 1 / np.sqrt(curvature)
        nodes, weights = hermegauss(_NODES_AROUND_MODE)
        latent = mode + width * nodes[:, None, None]
        scores = (latent - self.means) * np.sqrt(precision)
        given = _Counts(torch.as_tensor(latent), torch.as_tensor(excess) if excess.any() else None)
        logs = given.log_prob(torch.as_tensor(np.stack([counts, 0 * counts]))).numpy()
        logs += -(scores**2) / 2 + nodes[:, None, None] ** 2 / 2
        logs = logsumexp(logs, axis=0, b=weights[:, None, None])
        return logs + np.log(width * np.sqrt(precision)) - np.log(2 * np.pi) / 2

    @np.errstate(all="ignore")
    def below(self, values: np.ndarray) -> np.ndarray:
        """Return probabilities ``M`` of counts up to values ``M``."""
        counts = np.maximum(np.floor(values), 0.0)
        # P(Y <= k) = P(f < T), where T is a log-gamma variable, or a difference of two of them
        centre, variance = digamma(counts + 1), polygamma(1, counts + 1)
        size = 1 / self.dispersions  # infinite for Poisson counts
        if self.dispersions.any():
            centre, variance = centre + np.log(size) - digamma(size), variance + polygamma(1, size)
        probabilities = ndtr((centre - self.means) / np.sqrt(self.stds**2 + variance))
        narrow = np.broadcast_to(variance > (_NARROW * self.stds) ** 2, probabilities.shape)
        if narrow.any():
            nodes, weights = hermegauss(_NODES)
            latent = self.means[narrow] + self.stds[narrow] * nodes[:, None]
            k, size = (np.broadcast_to(v, probabilities.shape)[narrow] for v in (counts, size))
            if self.dispersions.any():
                conditional = betainc(size, k + 1, expit(np.log(size) - latent))
            else:
                conditional = pdtr(k, np.exp(latent))
            probabilities[narrow] = weights @ conditional / weights.sum()
        return np.where(values < 0, 0.0, self.weights @ probabilities)

    def quantile(self, probability: float) -> np.ndarray:
        """Return quantiles ``M``: the smallest counts with at least this cumulative probability."""
        lower = np.full(self.means.shape[1], -1.0)
        upper = np.ones_like(lower)
        while (short := self.below(upper) < probability).any() and upper.max() < _LARGEST:
            lower, upper = np.where(short, upper, lower), np.where(short, 4 * upper, upper)
        while (upper - lower > 1).any():
            middle = np.floor((lower + upper) / 2)
            short = self.below(middle) < probability
            lower, upper = np.where(short, middle, lower), np.where(short, upper, middle)
        return upper

    def std(self) -> np.ndarray:
        """Return standard deviations ``M``."""
        return self.moments()[1]

    @np.errstate(all="ignore")
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M``."""
        means = np.exp(self.means + self.stds**2 / 2)
        squares = np.exp(2 * (self.means + self.stds**2)) * (1 + self.dispersions)
        mean = self.weights @ means
        return mean, np.sqrt(mean + self.weights @ squares - mean**2)

    def sample(
        self, count: int, rng: np.random.Generator, scores: Callable[[int, int], np.ndarray]
    ) -> np.ndarray:
        """Return joint samples ``S x M``, see :meth:`.PredictiveMixture.sample`."""
        drawn = []
        for component, number in enumerate(rng.multinomial(count, self.weights)):
            latent = self.means[component] + self.stds[component] * scores(component, number)
            rates = np.exp(np.minimum(latent, np.log(_LARGEST)))
            excess = self.dispersions[component]
            if excess > 0:
                rates = np.minimum(rates * rng.gamma(1 / excess, excess, rates.shape), _LARGEST)
            drawn.append(rng.poisson(rates).astype(float))
        return rng.permutation(np.concatenate(drawn))


class CountEnsemble(Ensemble):
    """Mixture of Gaussian processes of a log rate, with stacking weights."""

    widths = np.ones(1)

    def _weigh(self, table: np.ndarray, predictors: Sequence[Any]) -> np.ndarray:
        targets, means, variances = table
        excess = _dispersions(predictors)
        mixture = CountMixture(np.ones(1), means, np.sqrt(variances), excess)
        with np.errstate(all="ignore"):
            logs = mixture._log_densities(targets[0])
        return weigh_unique(means, lambda first: stacking_weights(logs[first]))

    def _weigh_widths(self, table: np.ndarray, variances: np.ndarray) -> np.ndarray:
        return np.ones(1)

    def mixture(
        self,
        weights: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        of_gaps: np.ndarray | float = 0.0,
        transform: Transform = RATES.transform,
    ) -> Any:
        """Return the mixture of counts for weights ``R S``, with ``S`` components per member."""
        excess = _dispersions(self.predictors)
        excess = np.repeat(excess, len(weights) // len(excess), axis=0)
        return CountMixture(weights, means, np.sqrt(variances + of_gaps), excess)


def _dispersions(predictors: Sequence[Any]) -> np.ndarray:
    """Return the dispersions ``R x 1`` of the counts of members."""
    return np.array([[predictor.model.observations.dispersion.item()] for predictor in predictors])
