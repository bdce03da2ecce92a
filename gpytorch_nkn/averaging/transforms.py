"""Monotone transforms of a Gaussian process's targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, ndtr, ndtri

__all__ = ["TRANSFORMS", "OrderedProbit", "Transform", "as_bounds", "candidate_transforms"]

TRANSFORMS = ("identity", "log", "log1p", "sqrt", "logit")
_NOUNS = {
    "identity": "identity",
    "log": "logarithm",
    "log1p": "shifted logarithm",
    "sqrt": "square root",
    "logit": "log odds",
    "probit": "normal score",
}
_ANSCOMBE = 3 / 8  # shift of counts before the square root
_MAX_COUNT = 10_000  # largest count with a cut point
_PSEUDO_COUNTS = 5.0  # weight of the hurdle model, in observations
_UNIFORM_WEIGHT = 1e-3  # weight of a uniform distribution, so that all counts are possible
_TAIL_PROBABILITY = 1e-9  # probability of counts above the last cut point


@dataclass(frozen=True)
class Transform:
    r"""Power or logarithm of the distance from an origin, or log odds between two ends.

    .. math:: z = (y - a)^\lambda, \qquad z = \log(y - a), \qquad z = \log\frac{y - a}{b - y}

    The probability of an integer target is the mass of an interval of width 1 around it. The bounds
    of integer targets are closed.
    """

    name: str = "identity"  # one of TRANSFORMS
    lower: float = -np.inf  # bounds of the targets
    upper: float = np.inf
    power: float = 1.0  # lambda; 0 for logarithms
    origin: float = 0.0  # a, at or below the lower bound
    end: float = np.inf  # b, at or above the upper bound
    closed: bool = False  # whether a bound is an atom with the probability beyond it
    whole: bool = False  # whether targets are integers

    @property
    def lost_variance(self) -> float:
        """Variance within the intervals of integers, which scores omit, on the process scale."""
        return 0.0

    def extended_to(self, largest: float) -> Transform:
        """Extend the transform to values up to ``largest``."""
        return self

    @property
    def is_identity(self) -> bool:
        """Whether the transform is the identity."""
        return self.power == 1

    @property
    def is_linear(self) -> bool:
        """Whether the transform is the identity without bounds."""
        return self.is_identity and self.lower == -np.inf and self.upper == np.inf

    @property
    def noun(self) -> str:
        """Name of the transform in a sentence."""
        return _NOUNS[self.name]

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds on the scale of the process."""
        lower, upper = self.forward(np.array([self.lower, self.upper])).tolist()
        return lower, upper

    def accepts(self, values: np.ndarray) -> bool:
        """Return whether targets ``N`` are within the bounds and have finite log slopes."""
        inside = values.min() >= self.lower and values.max() <= self.upper
        return bool(inside and np.isfinite(self.log_slope(values)).all())

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Transform values of any shape, clipped to the bounds."""
        values = np.clip(values, self.lower, self.upper)
        if self.is_identity:
            return values
        distance = values - self.origin
        if self.power:
            return distance**self.power
        with np.errstate(divide="ignore"):
            link = np.log(distance)
            return link if self.end == np.inf else link - np.log(self.end - values)

    def upper_end(self, values: np.ndarray) -> np.ndarray:
        """Return upper ends of the values' intervals, on the scale of the process."""
        scaled = self.forward(np.floor(values) + 0.5 if self.whole else values)
        if not self.closed:
            return scaled
        return np.where(
            values < self.lower, -np.inf, np.where(values >= self.upper, np.inf, scaled)
        )

    def lower_end(self, values: np.ndarray) -> np.ndarray:
        """Return lower ends of the values' intervals, on the scale of the process."""
        if self.whole or not self.closed:
            return self.upper_end(np.ceil(values) - 1 if self.whole else values)
        scaled = self.forward(values)
        return np.where(
            values <= self.lower, -np.inf, np.where(values > self.upper, np.inf, scaled)
        )

    def inverse(self, scaled: np.ndarray) -> np.ndarray:
        """Invert the transform, clipped to the bounds and to finite floats."""
        with np.errstate(over="ignore"):
            if self.is_identity:
                values = scaled
            elif self.power:
                values = self.origin + np.maximum(scaled, 0.0) ** (1 / self.power)
            elif self.end == np.inf:
                values = self.origin + np.exp(scaled)
            else:
                values = self.origin + (self.end - self.origin) * expit(scaled)
        values = np.ceil(values - 0.5) if self.whole else values
        largest = np.finfo(float).max
        return np.clip(values, max(self.lower, -largest), min(self.upper, largest))

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """Return the log of dz/dy at values; -infinity beyond the bounds and at the origin."""
        inside = self._are_inside(values)
        if self.is_identity:
            return np.where(inside, 0.0, -np.inf)
        inside &= (values > self.origin) & (values < self.end)
        distance = np.where(inside, values - self.origin, 1.0)
        slope = (self.power - 1) * np.log(distance)
        if self.power:
            slope += np.log(self.power)
        elif self.end < np.inf:
            to_end = np.where(inside, self.end - values, 1.0)
            slope += np.log(self.end - self.origin) - np.log(to_end)
        return np.where(inside, slope, -np.inf)

    def _are_inside(self, values: np.ndarray) -> np.ndarray:
        """Return whether values are valid targets."""
        inside = (values >= self.lower) & (values <= self.upper)
        return inside & (np.floor(values) == values) if self.whole else inside


@dataclass(frozen=True)
class OrderedProbit(Transform):
    r"""Transform of integers to normal scores: each is an interval of a standard normal variable.

    .. math:: P(y \le k) = \Phi(c_k), \qquad z = E[Z \mid c_{k-1} < Z \le c_k]

    where :math:`Z` is standard normal. A standardised process therefore predicts the smoothed
    distribution of the training counts far from the data.
    """

    cuts: tuple[float, ...] = ()  # cut points c_k, starting at the lower bound

    @classmethod
    def of(cls, values: np.ndarray, lower: float, upper: float) -> OrderedProbit:
        """Compute cut points from the smoothed empirical distribution of counts ``N``."""
        cuts = _cuts((values - lower).astype(int))[: int(min(upper - lower, _MAX_COUNT))]
        return cls("probit", lower, upper, 0.0, closed=True, whole=True, cuts=cuts)

    def extended_to(self, largest: float) -> OrderedProbit:
        """Extend the cut points to twice ``largest``, spaced as square roots of counts."""
        num_cuts, count = len(self.cuts), int(2 * (largest - self.lower)) + 2
        if largest - self.lower < num_cuts:
            return self
        roots = np.sqrt(np.arange(int(min(count, self.upper - self.lower, _MAX_COUNT))))
        slope = (self.cuts[-1] - self.cuts[0]) / max(roots[num_cuts - 1], 1.0)
        added_cuts = self.cuts[-1] + max(slope, 1.0) * (roots[num_cuts:] - roots[num_cuts - 1])
        return replace(self, cuts=(*self.cuts, *added_cuts.tolist()))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Return scores of values of any shape."""
        return self._scores[self._indices(values)]

    def upper_end(self, values: np.ndarray) -> np.ndarray:
        """Return cut points at the upper ends of the values' intervals."""
        return self._ends[self._indices(values) + 1 - (values < self.lower)]

    def inverse(self, scaled: np.ndarray) -> np.ndarray:
        """Return integers whose intervals contain the scores."""
        return self.lower + np.searchsorted(self._ends[1:-1], scaled)

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """Return log lengths of the values' intervals; -infinity unless values are integers."""
        widths = np.diff(self._ends)
        logs = np.log(np.where(widths < np.inf, widths, 1.0))
        return np.where(self._are_inside(values), logs[self._indices(values)], -np.inf)

    @cached_property
    def lost_variance(self) -> float:
        """Expected variance of a standard normal variable within its interval."""
        return float(1 - np.diff(ndtr(self._ends)) @ self._scores**2)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.array([-np.inf, *self.cuts, np.inf])

    @cached_property
    def _scores(self) -> np.ndarray:
        low, high = self._ends[:-1], self._ends[1:]
        density = np.exp(-(self._ends**2) / 2) / np.sqrt(2 * np.pi)
        masses = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        is_seen = masses > 1e-300
        scores = -np.diff(density) / np.where(is_seen, masses, 1.0)
        middle = np.where(np.isfinite(high), (low + high) / 2, low)
        return np.clip(np.where(is_seen, scores, middle), low, high)

    def _indices(self, values: np.ndarray) -> np.ndarray:
        return np.clip(np.floor(values) - self.lower, 0, len(self.cuts)).astype(int)


def as_bounds(
    bounds: Sequence[float | None] | None, name: str = "bounds"
) -> tuple[float, float] | None:
    """Check bounds and return them as two floats; a bound of ``None`` becomes infinite."""
    if bounds is None:
        return None
    expected = f"{name} must be (lower, upper), increasing numbers or None, got {bounds!r}."
    try:
        lower, upper = bounds
        ends = (
            -np.inf if lower is None else float(lower),
            np.inf if upper is None else float(upper),
        )
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if not ends[0] < ends[1]:
        raise ValueError(expected)
    return ends


def candidate_transforms(
    option: str, values: np.ndarray, bounds: tuple[float, float] | None = None, *, prefix: str = ""
) -> list[Transform]:
    """Return the candidate transforms of an option, one of :data:`TRANSFORMS` or ``"auto"``.

    The origin and the end of a transform may lie outside the bounds, for ``"log1p"`` by the
    resolution. For counts or targets on a bound the distance is 3/8 (``"sqrt"``, Anscombe 1948) or
    1/2 (``"logit"``) of the resolution. The resolution is 1 for integers without an upper bound,
    otherwise the smallest positive distance of a target from a bound. Bounds of counts, and bounds
    on which targets lie, are closed. Targets are counts if they, the lower bound and a finite upper
    bound are integers. Without ``bounds``, targets are unbounded for ``"identity"`` and for
    ``"auto"`` with negative targets, otherwise between 0 and infinity. Messages put ``prefix``
    before the names of arguments.
    """
    has_bounds = bounds is not None
    smallest, largest = float(values.min()), float(values.max())
    if bounds is None:
        unbounded = option == "identity" or (option == "auto" and smallest < 0)
        bounds = (-np.inf if unbounded else 0.0, np.inf)
    lower, upper = bounds
    which = (
        f"{prefix}transform={option!r}"
        if not has_bounds or option == "logit"
        else f"{prefix}bounds={bounds}"
    )
    if option == "logit" and not np.isfinite(bounds).all():
        raise ValueError(
            f"{prefix}transform='logit' needs finite {prefix}bounds=(lower, upper), such as (0, 1) "
            f"or (0, 100), got {bounds if has_bounds else None}."
        )
    if option not in ("auto", "identity") and lower == -np.inf:
        raise ValueError(
            f"{prefix}transform={option!r} needs a lower bound, got {prefix}bounds={bounds}."
        )
    if option == "log" and smallest <= lower:
        where = "positive targets" if lower == 0 else f"targets above {lower:g}"
        also = "; 'log1p' and 'sqrt' accept this value" if smallest == lower else ""
        raise ValueError(f"{prefix}transform='log' needs {where}, got {smallest:g}{also}.")
    if smallest < lower or largest > upper:
        beyond = smallest if smallest < lower else largest
        kind = "non-negative targets" if not has_bounds else "targets within the bounds"
        raise ValueError(f"{which} needs {kind}, got {beyond:g}.")
    names: Sequence[str] = (option,)
    if option == "auto":
        names = ["identity"]
        if np.isfinite(bounds).all():
            names = ["identity", "logit"]
        elif np.isfinite(lower):
            names = ["identity", "sqrt", "log"] if smallest > lower else ["identity", "sqrt"]
    return [_transform(name, values, lower, upper) for name in names]


def _transform(name: str, values: np.ndarray, lower: float, upper: float) -> Transform:
    whole = _are_whole(values, lower, upper)
    closed = bool(whole or values.min() == lower or values.max() == upper)
    if name == "identity":
        return Transform(name, lower, upper, closed=closed, whole=whole)
    unit = _resolution(values, lower, upper)
    if name == "logit":
        shift = unit / 2 if closed else 0.0
        return Transform(name, lower, upper, 0.0, lower - shift, upper + shift, closed, whole)
    if name in ("log", "log1p"):
        origin = lower - unit if name == "log1p" else lower
        return Transform(name, lower, upper, 0.0, origin, closed=closed, whole=whole)
    origin = lower - _ANSCOMBE * unit if whole or values.min() == lower else lower
    return Transform(name, lower, upper, 0.5, origin, closed=closed, whole=whole)


def _are_whole(values: np.ndarray, lower: float, upper: float) -> bool:
    """Return whether targets and bounds are integers, with a finite lower bound."""
    ends = [lower] if np.isinf(upper) else [lower, upper]
    return bool(np.isfinite(lower) and (np.append(values, ends) % 1 == 0).all())


def _cuts(counts: np.ndarray) -> tuple[float, ...]:
    """Return normal scores of the distribution function of counts ``N``.

    A hurdle model (zeros, or 1 plus a negative binomial variable) smooths the empirical
    distribution.
    """
    from scipy.stats import nbinom  # a slow import that few series need

    positive, n = counts[counts > 0] - 1, len(counts)
    share = (positive.size + 0.5) / (n + 1)
    mean = positive.mean() + 0.5 / (positive.size + 1)
    variance = max(float(positive.var()), 1.05 * mean)
    sizes = nbinom(mean**2 / (variance - mean), mean / variance)
    most = int(max(sizes.isf(_TAIL_PROBABILITY), positive.max())) + 2
    flat = (1 - np.arange(most) / (positive.max() + 2)).clip(0)
    above = share * ((1 - _UNIFORM_WEIGHT) * sizes.sf(np.arange(most) - 1) + _UNIFORM_WEIGHT * flat)
    exceedance = 1 - np.cumsum(np.bincount(counts, minlength=most)[:most]) / n
    above = (n * exceedance + _PSEUDO_COUNTS * above) / (n + _PSEUDO_COUNTS)
    return tuple((-ndtri(above[above > 0])).tolist())


def _resolution(values: np.ndarray, lower: float, upper: float) -> float:
    """Return 1 for unbounded integers, or the smallest positive distance from a bound."""
    if np.isinf(upper) and (values == np.round(values)).all():
        return 1.0
    distances = np.concatenate([values - lower, upper - values])
    return float(distances[(distances > 0) & np.isfinite(distances)].min())
