"""Mixtures of Gaussians, each for values on a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri_exp

from gpytorch_nkn.estimators.transforms import Transform

__all__ = ["Mixture"]

_HALVINGS = 64  # as many as there are bits
_NODES = 80  # of Gauss-Hermite quadrature


@dataclass(frozen=True)
class Mixture:
    """What is forecast of ``M`` values: a mixture of transformed normal distributions.

    A normal distribution that reaches beyond the bounds of its transform is cut there, or what is
    beyond lies on the bounds if these are closed. Densities on closed bounds are probabilities.

    Attributes:
        weights: Weights ``R`` of its parts, of sum 1.
        means, stds: Moments ``R x M`` of the Gaussians, on the scales of their transforms.
        transforms: What the ``R`` parts model.
    """

    weights: np.ndarray
    means: np.ndarray
    stds: np.ndarray
    transforms: tuple[Transform, ...]

    @np.errstate(under="ignore")  # of small densities
    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Natural logarithms ``M`` of densities at values ``M``, per unit of the values."""
        slope = self._by_part([kind.log_slope(values) for kind in self._kinds])
        with np.errstate(over="ignore"):
            scores = self._scores(values)
            parts = -(scores**2 + np.log(2 * np.pi)) / 2 - np.log(self.stds) + slope
        parts -= self._log_mass
        lower, upper = np.array([(kind.lower, kind.upper) for kind in self.transforms]).T[..., None]
        parts = np.where(self._closed & (values == lower), log_ndtr(self._bounds[0]), parts)
        parts = np.where(self._closed & (values == upper), log_ndtr(-self._bounds[1]), parts)
        return logsumexp(parts, axis=0, b=self.weights[:, None])

    def above(self, values: np.ndarray) -> np.ndarray:
        """Probabilities ``M`` of more than values ``M``, precise where they are small."""
        return self._sum(_log_between(self._scores(values), self._ends[1]))

    def below(self, values: np.ndarray) -> np.ndarray:
        """Probabilities ``M`` of at most values ``M``, precise where they are small."""
        return self._sum(_log_between(self._ends[0], self._scores(values)))

    @np.errstate(under="ignore")  # of small densities
    def quantile(self, probability: float) -> np.ndarray:
        """Quantiles ``M``, by bisection between all floats."""
        # The parts may lie hundreds of decades apart: floats are halved by their number in order.
        largest = np.full(self.means.shape[1], np.finfo(float).max)
        lower, upper = _order(-largest), _order(largest)
        for _ in range(_HALVINGS):
            middle = (lower & upper) + ((lower ^ upper) >> 1)  # the mean, without overflow
            values = _of_order(middle)
            if probability < 0.5:
                over = self.below(values) < probability
            else:
                over = self.above(values) > 1 - probability
            lower, upper = np.where(over, middle, lower), np.where(over, upper, middle)
        return _of_order(upper)

    def draws(self, part: int, scores: np.ndarray) -> np.ndarray:
        """Values ``S x M`` of one part at standard normal scores, cut as its quantiles are."""
        return self._draws(part, scores, self._ends)

    @np.errstate(under="ignore")  # of small densities
    def _draws(
        self, part: int, scores: np.ndarray, ends: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """Values ``S x M`` of one part that is cut at these scores."""
        low, high = (end[part] for end in ends)
        with np.errstate(invalid="ignore"):
            sign = np.where(low + high > 0, -1.0, 1.0)  # the tail in which logarithms are precise
        low = np.where(sign > 0, low, -high)
        shares = log_ndtr(sign * scores) + _log_between(*(end[part] for end in ends))
        cut = sign * ndtri_exp(np.logaddexp(log_ndtr(low), shares))
        return self.transforms[part].inverse(self.means[part] + self.stds[part] * cut)

    @np.errstate(under="ignore")  # of small densities
    def std(self) -> np.ndarray:
        """Standard deviations ``M``, infinite where a log-normal part is very wide."""
        with np.errstate(over="ignore", invalid="ignore"):
            moments = [self._moments(part) for part in range(len(self.weights))]
            means, variances = (np.stack(moment) for moment in zip(*moments, strict=True))
            mean = self.weights @ means
            variance = self.weights @ (variances + (means - mean) ** 2)
        return np.sqrt(np.where(np.isnan(variance), np.inf, variance))

    def _moments(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance ``M`` of one part."""
        mean, variance = self._moments_within(part)
        kind, (low, high) = self.transforms[part], (bound[part] for bound in self._bounds)
        if not kind.closed:
            return mean, variance
        shares = np.stack([ndtr(low), np.exp(_log_between(low, high)), ndtr(-high)])
        means = np.stack([np.full_like(mean, kind.lower), mean, np.full_like(mean, kind.upper)])
        means = np.where(shares > 0, means, 0.0)
        whole = (shares * means).sum(0)
        within = np.where(shares[1] > 0, shares[1] * variance, 0.0)
        return whole, (shares * (means - whole) ** 2).sum(0) + within

    def _moments_within(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        """Those within the bounds: closed forms of logarithms, else by quadrature."""
        kind, std = self.transforms[part], self.stds[part]
        if kind.power or kind.end < np.inf:
            nodes, weights = hermegauss(_NODES)
            weights = weights / weights.sum()
            values = self._draws(part, nodes[:, None], self._bounds)
            mean = weights @ values
            return mean, weights @ (values - mean) ** 2
        logs = [  # of the first two moments, less what the mean adds
            (order * std) ** 2 / 2
            + _log_between(*(end[part] - order * std for end in self._bounds))
            - _log_between(*(end[part] for end in self._bounds))
            for order in (1, 2)
        ]
        mean = np.exp(self.means[part] + logs[0])
        return kind.origin + mean, mean**2 * np.expm1(logs[1] - 2 * logs[0])

    @cached_property
    def _kinds(self) -> list[Transform]:
        """The transforms that differ."""
        return list(dict.fromkeys(self.transforms))

    def _by_part(self, of_kinds: list[np.ndarray]) -> np.ndarray:
        """What each part ``R`` has of that which kinds have."""
        return np.stack([of_kinds[self._kinds.index(kind)] for kind in self.transforms])

    def _scores(self, values: np.ndarray) -> np.ndarray:
        """Standardised values ``R x M``."""
        scaled = self._by_part([kind.position(values) for kind in self._kinds])
        with np.errstate(over="ignore"):
            return (scaled - self.means) / self.stds

    @cached_property
    def _closed(self) -> np.ndarray:
        return np.array([kind.closed for kind in self.transforms])[:, None]

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds ``R x M`` as scores."""
        low, high = np.array([kind.ends for kind in self.transforms]).T[..., None]
        return (low - self.means) / self.stds, (high - self.means) / self.stds

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores ``R x M`` at which the Gaussians are cut."""
        low, high = self._bounds
        return np.where(self._closed, -np.inf, low), np.where(self._closed, np.inf, high)

    @cached_property
    def _log_mass(self) -> np.ndarray:
        """Logarithms ``R x M`` of what the bounds leave of the Gaussians."""
        return _log_between(*self._ends)

    @np.errstate(under="ignore")  # of small densities
    def _sum(self, logs: np.ndarray) -> np.ndarray:
        return self.weights @ np.exp(np.minimum(logs - self._log_mass, 0.0))


@np.errstate(under="ignore")  # of small densities
def _log_between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Logarithms of the probability that a standard normal variable lies between two scores."""
    with np.errstate(invalid="ignore", divide="ignore"):
        swap = low + high > 0  # into the tail where small probabilities are precise
        low, high = np.where(swap, -high, low), np.where(swap, -low, high)
        most, least = log_ndtr(high), log_ndtr(low)
        return np.where(least < most, most + np.log1p(-np.exp(least - most)), -np.inf)


def _order(values: np.ndarray) -> np.ndarray:
    """Integers in the order of floats ``M``, neighbours for neighbours."""
    return _flipped((values + 0.0).view(np.int64))  # one zero of the two


def _of_order(numbers: np.ndarray) -> np.ndarray:
    """The floats ``M`` of :func:`_order`."""
    return _flipped(numbers).view(np.float64)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Bits of negative floats without their sign count downwards."""
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
