"""Mixtures of Gaussians for values, or for their logarithms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp
from scipy.stats import norm

__all__ = ["Mixture"]

_HALVINGS = 64  # as many as there are bits


@dataclass(frozen=True)
class Mixture:
    """What is forecast of ``M`` values: a mixture of normal and log-normal distributions.

    Attributes:
        weights: Weights ``R`` of its parts, of sum 1.
        means, stds: Moments ``R x M`` of the Gaussians, of logarithms where ``logs``.
        logs: Mask ``R`` of the parts that are for logarithms.
        floor: A value below which there are none: normal parts are cut there; minus infinity for
            none.
    """

    weights: np.ndarray
    means: np.ndarray
    stds: np.ndarray
    logs: np.ndarray
    floor: float = -np.inf

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """Natural logarithms ``M`` of densities at values ``M``, per unit of the values."""
        scaled, slope = self._scaled(values)
        inside = np.where(values >= self.floor, 0.0, -np.inf)
        with np.errstate(over="ignore"):
            parts = norm.logpdf(scaled, self.means, self.stds) + slope - self._log_mass() + inside
        return logsumexp(parts, axis=0, b=self.weights[:, None])

    def above(self, values: np.ndarray) -> np.ndarray:
        """Probabilities ``M`` of more than values ``M``."""
        return self.weights @ np.exp(self._log_above(values))

    def below(self, values: np.ndarray) -> np.ndarray:
        """Probabilities ``M`` of less than values ``M``, precise where they are small."""
        return self.weights @ -np.expm1(self._log_above(values))

    def quantile(self, probability: float) -> np.ndarray:
        """Quantiles ``M``, by bisection between those of the parts; at most the largest float."""
        with np.errstate(over="ignore"):
            ends = self.means - self.stds * ndtri_exp(np.log1p(-probability) + self._log_mass())
            logs = self.logs[:, None]
            ends = np.where(logs, np.exp(np.where(logs, ends, 0)), np.maximum(ends, self.floor))
        ends = np.minimum(ends, np.finfo(float).max)
        # The parts may lie hundreds of decades apart: floats are halved by their number in order.
        lower, upper = _order(ends.min(0)), _order(ends.max(0))
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
        mean, std = self.means[part], self.stds[part]
        with np.errstate(over="ignore"):
            if self.logs[part]:
                return np.minimum(np.exp(mean + std * scores), np.finfo(float).max)
            ends = mean - std * ndtri_exp(log_ndtr(-scores) + self._log_mass()[part])
        return np.maximum(ends, self.floor)

    def std(self) -> np.ndarray:
        """Standard deviations ``M``, infinite where a log-normal part is very wide."""
        start = (self.floor - self.means) / self.stds
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            cut = np.isfinite(start)
            ratio = np.where(cut, np.exp(norm.logpdf(start) - log_ndtr(-start)), 0.0)
            start = np.where(cut, start, 0.0)
            means = self.means + self.stds * ratio
            variances = self.stds**2 * np.clip(1 + start * ratio - ratio**2, 0.0, None)
            logs = self.logs[:, None]
            of_logs = np.exp(np.where(logs, self.means + self.stds**2 / 2, 0.0))
            variances = np.where(logs, of_logs**2 * np.expm1(self.stds**2 * logs), variances)
            means = np.where(logs, of_logs, means)
            mean = self.weights @ means
            variance = self.weights @ (variances + (means - mean) ** 2)
        return np.sqrt(np.where(np.isnan(variance), np.inf, variance))

    def _scaled(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values ``R x M`` as each part counts them, and the logarithms of that map's slope."""
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(values > 0, np.log(values), -np.inf)
        logs = self.logs[:, None]
        return np.where(logs, own, values), np.where(logs & (values > 0), -own, 0.0)

    def _log_above(self, values: np.ndarray) -> np.ndarray:
        """Logarithms ``R x M`` of the parts' probabilities of more than values ``M``."""
        scaled, _ = self._scaled(values)
        with np.errstate(invalid="ignore", over="ignore"):
            logs = log_ndtr((self.means - scaled) / self.stds) - self._log_mass()
        return np.minimum(np.where(values <= self.floor, 0.0, logs), 0.0)

    def _log_mass(self) -> np.ndarray:
        """Logarithms ``R x M`` of what the floor leaves of the parts."""
        floor = np.where(self.logs, -np.inf, self.floor)[:, None]
        return log_ndtr((self.means - floor) / self.stds)


def _order(values: np.ndarray) -> np.ndarray:
    """Integers in the order of floats ``M``, neighbours for neighbours."""
    return _flipped((values + 0.0).view(np.int64))  # one zero of the two


def _of_order(numbers: np.ndarray) -> np.ndarray:
    """The floats ``M`` of :func:`_order`."""
    return _flipped(numbers).view(np.float64)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """Bits of negative floats without their sign count downwards."""
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
