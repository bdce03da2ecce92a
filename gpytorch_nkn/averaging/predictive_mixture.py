"""Predictive distributions that are mixtures of transformed normal distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from gpytorch_nkn.averaging.transforms import Transform
from gpytorch_nkn.fit import check_number

__all__ = ["MixturePredictions", "PredictiveMixture"]

_HALVINGS = 64  # bisection steps, one per bit of a float
_NODES = 80  # nodes of Gauss-Hermite quadrature
_MAX_SUMMED = 256  # largest number of integers whose probabilities are summed exactly
_MAX_NARROW_WIDTH = 1e-5  # narrower intervals, in standard deviations, have a constant density


@dataclass(frozen=True)
class PredictiveMixture:
    """Predictive distributions of ``M`` values, each a mixture of ``R`` transformed Gaussians.

    An open bound of a transform truncates its Gaussian; a closed bound is an atom, with the
    probability beyond the bound. At counts and closed bounds, probabilities replace densities.
    """

    weights: np.ndarray  # weights R of the components, with sum 1
    means: np.ndarray  # means R x M of the Gaussians, on the transformed scales
    stds: np.ndarray  # standard deviations R x M of the Gaussians
    transforms: tuple[Transform, ...]  # transform of each component, R

    @np.errstate(under="ignore")  # small densities underflow
    def log_density(self, values: np.ndarray, resolution: float = 0.0) -> np.ndarray:
        """Return log densities ``M`` at values ``M``, per unit of the values.

        With a ``resolution``, densities are averages over an interval of this width around each
        value.
        """
        with np.errstate(over="ignore"):
            logs = -(self._scores(values) ** 2 + np.log(2 * np.pi)) / 2 - np.log(self._widths)
        logs = logs + self._by_component([kind.log_slope(values) for kind in self._distinct])
        if resolution or self._closed.any():
            half = resolution / 2
            low, high = self._scores(values - half, lower=True), self._scores(values + half)
            with np.errstate(invalid="ignore"):
                is_wide = high - low > _MAX_NARROW_WIDTH
            logs = np.where(is_wide, _log_between(low, high) - np.log(resolution or 1.0), logs)
        return logsumexp(logs - self._log_mass, axis=0, b=self.weights[:, None])

    def above(self, values: np.ndarray) -> np.ndarray:
        """Return the probabilities ``M`` of exceeding values ``M``, accurate in the tails."""
        return self._probability(self._scores(values), self._ends[1])

    def below(self, values: np.ndarray) -> np.ndarray:
        """Return cumulative probabilities ``M`` at values ``M``, accurate in the tails."""
        return self._probability(self._ends[0], self._scores(values))

    @np.errstate(under="ignore")  # small densities underflow
    def quantile(self, probability: float) -> np.ndarray:
        """Return the quantiles ``M`` of one probability."""
        # bisect integers that order floats, because scales may differ by hundreds of decades
        largest = np.full(self.means.shape[1], np.finfo(float).max)
        lower, upper = _ordered_integers(-largest), _ordered_integers(largest)
        for _ in range(_HALVINGS):
            middle = (lower & upper) + ((lower ^ upper) >> 1)  # mean without overflow
            values = _floats(middle)
            if probability < 0.5:
                is_low = self.below(values) < probability
            else:
                is_low = self.above(values) > 1 - probability
            lower, upper = np.where(is_low, middle, lower), np.where(is_low, upper, middle)
        return _floats(upper) + 0.0  # no negative zero

    def draws(self, component: int, scores: np.ndarray) -> np.ndarray:
        """Map standard normal scores ``S x M`` to values ``S x M`` of one component."""
        return self._values(component, scores, *(end[component] for end in self._ends))

    def sample(
        self, count: int, rng: np.random.Generator, scores: Callable[[int, int], np.ndarray]
    ) -> np.ndarray:
        """Draw ``count`` joint samples ``S x M``.

        ``scores(component, s)`` draws ``s`` joint samples of ``M`` normal scores.
        """
        counts = rng.multinomial(count, self.weights / self.weights.sum())
        drawn = [
            self.draws(component, scores(component, counts[component]))
            for component in np.flatnonzero(counts).tolist()
        ]
        return rng.permutation(np.concatenate(drawn))

    def std(self) -> np.ndarray:
        """Return standard deviations ``M``; infinite if a log-normal variance overflows."""
        return self.moments()[1]

    @np.errstate(under="ignore")  # small densities underflow
    def moments(
        self, limits: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations ``M``.

        Transformed values are clipped at ``limits``, two arrays ``M``; counts are then not rounded.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = [self._moments(component, limits) for component in range(len(self.weights))]
            means, variances = (np.stack(moment) for moment in zip(*pairs, strict=True))
            mean = self.weights @ means
            variance = self.weights @ (variances + (means - mean) ** 2)
        return mean, np.sqrt(np.where(np.isnan(variance), np.inf, variance))

    def _moments(
        self, component: int, limits: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance ``M`` of one component."""
        kind, mean, std = self.transforms[component], self.means[component], self._widths[component]
        if kind.is_linear:
            return mean, std**2
        if limits is not None:
            low, high = (end[component] for end in self._ends)
            return self._quadrature(component, low, high, limits)
        low, high = (bound[component] for bound in self._bounds)
        if not kind.closed:
            return self._between(component, low, high)
        points = np.array([kind.lower, kind.upper])
        if kind.whole:
            points = kind.lower + np.arange(min(_MAX_SUMMED, kind.upper - kind.lower + 1))
            low, high = (kind.upper_end(points[-1:]) - mean) / std, np.full_like(mean, np.inf)
        points = points[np.isfinite(points), None]
        ends = ((side(points) - mean) / std for side in (kind.lower_end, kind.upper_end))
        masses = np.exp([*_log_between(*ends), _log_between(low, high)])
        between, variance = self._between(component, low, high)
        values = np.vstack([np.broadcast_to(points, (len(points), mean.size)), between])
        values = np.where(masses > 0, values, 0.0)
        expected = (masses * values).sum(0)
        within = np.where(masses[-1] > 0, masses[-1] * variance, 0.0)
        return expected, (masses * (values - expected) ** 2).sum(0) + within

    def _between(
        self, component: int, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance ``M`` of one component between scores ``M``."""
        kind, mean, std = self.transforms[component], self.means[component], self._widths[component]
        if kind.power or kind.end < np.inf or kind.whole:
            return self._quadrature(component, low, high)
        mass = _log_between(low, high)  # moments of a truncated log-normal distribution
        first, second = (
            (order * std) ** 2 / 2 + _log_between(low - order * std, high - order * std) - mass
            for order in (1, 2)
        )
        mean = np.exp(mean + first)
        return kind.origin + mean, mean**2 * np.expm1(second - 2 * first)

    def _quadrature(
        self,
        component: int,
        low: np.ndarray,
        high: np.ndarray,
        limits: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        nodes, weights = hermegauss(_NODES)
        weights = weights / weights.sum()
        values = self._values(component, nodes[:, None], low, high, limits)
        mean = weights @ values
        return mean, weights @ (values - mean) ** 2

    @np.errstate(under="ignore")  # small densities underflow
    def _values(
        self,
        component: int,
        scores: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        limits: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Map scores ``S x M`` to values of one component, truncated at scores ``M``."""
        if np.isfinite(low).any() or np.isfinite(high).any():
            with np.errstate(invalid="ignore"):
                sign = np.where(low + high > 0, -1.0, 1.0)  # the tail with accurate logarithms
            least = np.where(sign > 0, low, -high)
            masses = log_ndtr(sign * scores) + _log_between(low, high)
            scores = sign * ndtri_exp(np.logaddexp(log_ndtr(least), masses))
        scaled = self.means[component] + self._widths[component] * scores
        kind = self.transforms[component]
        if limits is None:
            return kind.inverse(scaled)
        return replace(kind, whole=False).inverse(np.clip(scaled, *limits))

    @cached_property
    def _widths(self) -> np.ndarray:
        """Standard deviations ``R x M``, with the variance within the intervals of counts."""
        lost = [[kind.lost_variance] for kind in self.transforms]
        return np.sqrt(self.stds**2 + lost) if np.any(lost) else self.stds

    @cached_property
    def _distinct(self) -> list[Transform]:
        """Distinct transforms."""
        return list(dict.fromkeys(self.transforms))

    def _by_component(self, by_transform: list[np.ndarray]) -> np.ndarray:
        """Map one row per distinct transform to components; return a single row if all share it."""
        if len(by_transform) == 1:
            return by_transform[0][None]
        return np.stack([by_transform[self._distinct.index(kind)] for kind in self.transforms])

    def _scores(self, values: np.ndarray, *, lower: bool = False) -> np.ndarray:
        """Return scores ``R x M`` of the upper (or lower) ends of the values' intervals."""
        scaled = self._by_component(
            [(kind.lower_end if lower else kind.upper_end)(values) for kind in self._distinct]
        )
        with np.errstate(over="ignore"):
            return (scaled - self.means) / self._widths

    @cached_property
    def _closed(self) -> np.ndarray:
        return np.array([kind.closed for kind in self.transforms])[:, None]

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores ``R x M`` of the transforms' bounds."""
        low, high = np.array([kind.ends for kind in self.transforms]).T[..., None]
        return (low - self.means) / self._widths, (high - self.means) / self._widths

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores ``R x M`` at which the Gaussians are truncated."""
        low, high = self._bounds
        return np.where(self._closed, -np.inf, low), np.where(self._closed, np.inf, high)

    @cached_property
    def _log_mass(self) -> np.ndarray:
        """Log probabilities ``R x M`` of the Gaussians between their ends."""
        return _log_between(*self._ends)

    @np.errstate(under="ignore")  # small densities underflow
    def _probability(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the mixture's probabilities ``M`` between scores ``R x M``."""
        logs = _log_between(low, high) - self._log_mass
        return self.weights @ np.exp(np.minimum(logs, 0.0))


class MixturePredictions:
    """Quantiles, intervals and log densities of estimators that predict mixtures."""

    def predict_distribution(self, x: Any, /, **inputs: Any) -> PredictiveMixture:
        """Return the distributions of new observations."""
        raise NotImplementedError

    def predict_quantiles(self, x: Any, /, probabilities: ArrayLike, **inputs: Any) -> np.ndarray:
        """Return quantiles ``M x Q`` of new observations, in units of the targets.

        Args:
            x, **inputs: As in :meth:`predict_distribution`.
            probabilities: ``Q`` numbers between 0 and 1.

        Raises:
            ValueError: A probability is not between 0 and 1.
        """
        wanted = np.atleast_1d(np.asarray(probabilities, dtype=float))
        if wanted.ndim != 1 or not wanted.size or not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(
                f"probabilities must be numbers between 0 and 1, got {probabilities!r}."
            )
        mixture = self.predict_distribution(x, **inputs)
        return np.stack([mixture.quantile(probability) for probability in wanted.tolist()], -1)

    def predict_interval(
        self, x: Any, /, level: float = 0.95, **inputs: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper ends ``M`` of central prediction intervals, in target units.

        Args:
            x, **inputs: As in :meth:`predict_distribution`.
            level: Probability that an interval contains the observation, between 0 and 1.

        Raises:
            ValueError: ``level`` is not between 0 and 1.
        """
        check_number("level", level, positive=True)
        if not level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}.")
        ends = self.predict_quantiles(x, [(1 - level) / 2, (1 + level) / 2], **inputs)
        return ends[:, 0], ends[:, 1]

    def log_predictive_density(
        self, x: Any, /, y: ArrayLike, *, resolution: float | None = None, **inputs: Any
    ) -> np.ndarray:
        """Return log predictive densities ``M`` of observations, per unit of the targets.

        For counts, and for bounds on which training targets lie, return log probabilities instead.

        Args:
            x, **inputs: As in :meth:`predict_distribution`.
            y: Observations ``M``.
            resolution: Rounding unit of the observations, such as 0.1. Densities are averages over
                the interval of this width around each observation.

        Raises:
            ValueError: Observations are not ``M`` finite values, or ``resolution`` is not positive.
        """
        if resolution is not None and not 0 < resolution < np.inf:
            raise ValueError(f"resolution must be positive and finite, got {resolution}.")
        mixture = self.predict_distribution(x, **inputs)
        values = np.asarray(y, dtype=float)
        values = values[:, 0] if values.shape[1:] == (1,) else values
        count = mixture.means.shape[1]
        if values.shape != (count,) or not np.isfinite(values).all():
            raise ValueError(f"y must have {count} finite values, got shape {np.shape(y)}.")
        return mixture.log_density(values, resolution or 0.0)


@np.errstate(under="ignore")  # small densities underflow
def _log_between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return log probabilities of a standard normal variable between two scores."""
    with np.errstate(invalid="ignore", divide="ignore"):
        swap = low + high > 0  # the tail with accurate small probabilities
        low, high = np.where(swap, -high, low), np.where(swap, -low, high)
        if np.isneginf(low).all():
            return log_ndtr(high)
        most, least = log_ndtr(high), log_ndtr(low)
        return np.where(least < most, most + np.log1p(-np.exp(least - most)), -np.inf)


def _ordered_integers(values: np.ndarray) -> np.ndarray:
    """Map floats to integers in the same order; adjacent floats have adjacent integers."""
    return _flipped((values + 0.0).view(np.int64))  # + 0.0 removes negative zeros


def _floats(integers: np.ndarray) -> np.ndarray:
    """Invert :func:`_ordered_integers`."""
    return _flipped(integers).view(np.float64)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Flip all bits of negative numbers but the sign, which reverses their order."""
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
