"""Monotone maps between targets and the scale on which a process models them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

__all__ = ["TRANSFORMS", "Transform", "as_bounds", "candidate_transforms"]

TRANSFORMS = ("identity", "log", "log1p", "sqrt", "logit")
_NOUNS = {
    "identity": "identity",
    "log": "logarithm",
    "log1p": "shifted logarithm",
    "sqrt": "square root",
    "logit": "log odds",
}
_ANSCOMBE = 3 / 8  # of one count, added under a root


@dataclass(frozen=True)
class Transform:
    r"""A power of targets' distance from an origin, or a link of where they lie between two ends.

    .. math:: z = (y - a)^\lambda, \qquad z = \log(y - a), \qquad z = \log\frac{y - a}{b - y}

    Attributes:
        name: One of :data:`TRANSFORMS`.
        lower, upper: There are no targets beyond.
        power: The power :math:`\lambda`; 0 for logarithms.
        origin, end: The ends :math:`a` and :math:`b`, at or beyond the bounds.
        closed: Targets lie on the bounds: what a process has beyond them does so, too.
    """

    name: str = "identity"
    lower: float = -np.inf
    upper: float = np.inf
    power: float = 1.0
    origin: float = 0.0
    end: float = np.inf
    closed: bool = False

    @property
    def is_identity(self) -> bool:
        """It leaves targets as they are."""
        return self.power == 1

    @property
    def is_linear(self) -> bool:
        """Whether it leaves targets as they are and has no bounds."""
        return self.is_identity and np.inf == self.upper == -self.lower

    @property
    def noun(self) -> str:
        """Its name in a sentence."""
        return _NOUNS[self.name]

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds as the process counts them."""
        lower, upper = self.forward(np.array([self.lower, self.upper])).tolist()
        return lower, upper

    def holds(self, values: np.ndarray) -> bool:
        """Whether targets ``N`` can be modelled: they lie within the bounds, and map to numbers."""
        inside = values.min() >= self.lower and values.max() <= self.upper
        return bool(inside and np.isfinite(self.log_slope(values)).all())

    def forward(self, values: np.ndarray) -> np.ndarray:
        """What values of any shape are for the process; those beyond a bound count as the bound."""
        values = np.clip(values, self.lower, self.upper)
        if self.is_identity:
            return values
        distance = values - self.origin
        if self.power:
            return distance**self.power
        with np.errstate(divide="ignore"):
            link = np.log(distance)
            return link if self.end == np.inf else link - np.log(self.end - values)

    def position(self, values: np.ndarray) -> np.ndarray:
        """For the process, where what is at most these values ends."""
        scaled = self.forward(values)
        if not self.closed:
            return scaled
        return np.where(
            values < self.lower, -np.inf, np.where(values >= self.upper, np.inf, scaled)
        )

    def inverse(self, scaled: np.ndarray) -> np.ndarray:
        """The values; the largest float instead of infinity, and none beyond the bounds."""
        with np.errstate(over="ignore"):
            if self.is_identity:
                values = scaled
            elif self.power:
                values = self.origin + np.maximum(scaled, 0.0) ** (1 / self.power)
            elif self.end == np.inf:
                values = self.origin + np.exp(scaled)
            else:
                values = self.origin + (self.end - self.origin) * expit(scaled)
        largest = np.finfo(float).max
        return np.clip(values, max(self.lower, -largest), min(self.upper, largest))

    def log_slope(self, values: np.ndarray) -> np.ndarray:
        """Natural logarithms of the slope at values; minus infinity beyond the bounds.

        So, too, at the origin of a power or a logarithm, where the slope is infinite.
        """
        inside = (values >= self.lower) & (values <= self.upper)
        if self.is_identity:
            return np.where(inside, 0.0, -np.inf)
        inside &= (values > self.origin) & (values < self.end)
        distance = np.where(inside, values - self.origin, 1.0)
        slope = (self.power - 1) * np.log(distance)
        if self.power:
            slope += np.log(self.power)
        elif self.end < np.inf:
            rest = np.where(inside, self.end - values, 1.0)
            slope += np.log(self.end - self.origin) - np.log(rest)
        return np.where(inside, slope, -np.inf)


def as_bounds(
    bounds: Sequence[float | None] | None, name: str = "bounds"
) -> tuple[float, float] | None:
    """Bounds as two numbers, of which one may be infinite.

    Raises:
        ValueError: They are not two numbers, the first of them the smaller.
    """
    if bounds is None:
        return None
    expected = f"{name} must be a lower and an upper number (None for none), got {bounds!r}."
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
    option: str,
    values: np.ndarray,
    bounds: tuple[float, float] | None = None,
    *,
    prefix: str = "",
) -> list[Transform]:
    """Return the transforms that an option stands for.

    Where targets lie on a bound at which the transform or its slope is infinite, the origin is
    moved beyond the bound: by 3/8 of the resolution for roots (Anscombe 1948), by the resolution
    for ``"log1p"``, by half of it for ``"logit"``. The resolution of whole numbers is 1, that of
    others the smallest distance of a target from the bound. Bounds with targets on them are closed.

    Args:
        option: One of :data:`TRANSFORMS`, or ``"auto"``.
        values: Targets ``N``.
        bounds: Between which targets lie; ``None`` for 0 and infinity where the option asks for
            targets that are not negative (``"auto"``: where they are so).
        prefix: Of the names of option and bounds, in messages.

    Raises:
        ValueError: Targets lie beyond the bounds, or the transform has no value for them.
    """
    given = bounds is not None
    smallest, largest = float(values.min()), float(values.max())
    if bounds is None:
        unbounded = option == "identity" or (option == "auto" and smallest < 0)
        bounds = (-np.inf if unbounded else 0.0, np.inf)
    lower, upper = bounds
    which = (
        f"{prefix}transform={option!r}"
        if not given or option == "logit"
        else f"{prefix}bounds={bounds}"
    )
    if option == "logit" and not np.isfinite(bounds).all():
        raise ValueError(
            f"{prefix}transform='logit' needs {prefix}bounds=(lower, upper) of the shares, such as "
            f"(0, 1) or (0, 100), got {bounds if given else None}."
        )
    if option not in ("auto", "identity") and lower == -np.inf:
        raise ValueError(
            f"{prefix}transform={option!r} needs a lower bound, got {prefix}bounds={bounds}."
        )
    if option == "log" and smallest <= lower:
        where = "positive targets" if lower == 0 else f"targets above {lower:g}"
        also = "; 'log1p' and 'sqrt' take zeros, too" if smallest == lower else ""
        raise ValueError(f"{prefix}transform='log' needs {where}, got {smallest:g}{also}.")
    if smallest < lower or largest > upper:
        beyond = smallest if smallest < lower else largest
        kind = "non-negative targets" if not given else "targets within the bounds"
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
    closed = bool(values.min() == lower or values.max() == upper)
    if name == "identity":
        return Transform(name, lower, upper, closed=closed)
    unit = _resolution(values, lower, upper)
    if name == "logit":
        shift = unit / 2 if closed else 0.0
        return Transform(name, lower, upper, 0.0, lower - shift, upper + shift, closed)
    if name in ("log", "log1p"):
        origin = lower - unit * (name == "log1p")
        return Transform(name, lower, upper, 0.0, origin, closed=closed)
    is_count = bool((values == np.round(values)).all())
    origin = lower - _ANSCOMBE * unit if is_count or values.min() == lower else lower
    return Transform(name, lower, upper, 0.5, origin, closed=closed)


def _resolution(values: np.ndarray, lower: float, upper: float) -> float:
    """1 for whole numbers, else the smallest distance of a target from the bounds."""
    if np.isinf(upper) and (values == np.round(values)).all():
        return 1.0
    distances = np.concatenate([values - lower, upper - values])
    return float(distances[(distances > 0) & np.isfinite(distances)].min())
