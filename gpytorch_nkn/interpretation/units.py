"""Units of the data, and text for numbers, lengths of time and periods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

__all__ = [
    "YEARS",
    "Z95",
    "Units",
    "expectation",
    "length_text",
    "listed",
    "means_text",
    "percent",
    "period_name",
    "rounded",
    "singular",
    "three_digits",
]

Z95 = 1.959964  # 97.5 % quantile of the normal distribution
_DAY = 1 / 365.2425  # years
_SIZES = {"years": 1.0, "months": 1 / 12, "weeks": 7 * _DAY, "days": _DAY, "hours": _DAY / 24}
_SIZES |= {"minutes": _DAY / 1440, "seconds": _DAY / 86_400, "milliseconds": _DAY / 86_400_000}
_SHORT = {"yr": "years", "d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
#: Length in years of the known units of time.
YEARS = {short: _SIZES[unit] for short, unit in (_SHORT | {"ms": "milliseconds"}).items()}
YEARS |= {word: size for unit, size in _SIZES.items() for word in (unit, unit[:-1])}

_LADDER = ("yr", "days", "hours", "minutes", "seconds", "milliseconds")
_MIN_SHOWN, _MAX_SHOWN = 0.95, 1000.0  # range of numbers of one unit of time
_NAMED = {"yearly": "yr", "monthly": "month", "weekly": "week", "daily": "day", "hourly": "hour"}
_PERIODS = {name: YEARS[unit] for name, unit in _NAMED.items()}
_PERIODS |= {"half-yearly": 0.5, "quarterly": 0.25}
_MAX_DRAWN = 1e300
_PERIOD_TOLERANCE = 0.01  # relative tolerance of a named period


@dataclass(frozen=True)
class Units:
    """Units of inputs and targets: data = offset + scale * value in the model."""

    x_offset: np.ndarray = field(default_factory=lambda: np.zeros(1))  # per input column D
    x_scale: np.ndarray = field(default_factory=lambda: np.ones(1))
    y_offset: float = 0.0
    y_scale: float = 1.0
    names: tuple[str, ...] = ("x",)  # of the input columns D
    x_unit: str = ""  # of the first column, such as yr
    y_name: str = "y"
    y_unit: str = ""
    targets: str = "the targets"  # name of the targets before their transform, or of a rate
    link: Any = None  # transform of the targets: name, noun, forward, inverse, log_slope
    label: str = ""  # class whose predicted probability replaces the targets
    affine: bool = True  # otherwise lengths are in units of the transformed inputs
    # names of the codes of categories, by column
    categories: Mapping[int, Mapping[float, str]] = field(default_factory=dict)
    # first date of each column that counts the days since it
    first_dates: Mapping[int, np.datetime64] = field(default_factory=dict)
    # maps values M of the first column in the model to dates; None for numbers
    to_dates: Callable[[np.ndarray], np.ndarray] | None = None

    @classmethod
    def plain(cls, input_dim: int) -> Units:
        """Return units of a model without transforms."""
        names = ("x",) if input_dim == 1 else tuple(f"x{column}" for column in range(input_dim))
        return cls(x_offset=np.zeros(input_dim), x_scale=np.ones(input_dim), names=names)

    @property
    def log_targets(self) -> bool:
        """Whether the model is on the logarithm of the targets."""
        return self.link is not None and self.link.name == "log"

    def of_model(self, subject: str) -> str:
        """Describe a transform, such as "the logarithm of the targets"."""
        if self.label:
            return f"the probability of class {self.label}"
        return subject if self.link is None else f"the {self.link.noun} of {subject}"

    def original(self, values: np.ndarray) -> np.ndarray:
        """Invert the transform of targets of any shape, clipped to finite values for figures."""
        if self.link is None:
            return values
        return np.clip(self.link.inverse(values), -_MAX_DRAWN, _MAX_DRAWN)

    def named(self, columns: Sequence[str] | None) -> Units:
        """Return units with other names of the columns; None keeps them."""
        if columns is None:
            return self
        is_names = isinstance(columns, Sequence) and not isinstance(columns, str)
        if not is_names or not all(isinstance(name, str) for name in columns):
            raise TypeError(f"columns must be a sequence of names, got {columns!r}.")
        if len(columns) != len(self.x_scale):
            raise ValueError(f"columns must hold {len(self.x_scale)} names, got {len(columns)}.")
        return replace(self, names=tuple(columns))

    def with_categories(
        self, categories: Mapping[str, Sequence[str] | Mapping[float, str]] | None, x: np.ndarray
    ) -> Units:
        """Return units with names of category codes, by column name; None keeps them.

        Names are a sequence for codes 0, 1, ..., or a mapping from codes. Each code in the data
        ``x``, ``N x D``, needs a name.
        """
        if not (categories is None or isinstance(categories, Mapping)):
            raise TypeError(
                f"categories must map names of columns to names of codes, got {categories!r}."
            )
        code_names: dict[int, Mapping[float, str]] = dict(self.categories)
        for column, names in (categories or {}).items():
            if column not in self.names:
                raise ValueError(
                    f"categories must name columns among {listed(self.names)}, got {column!r}."
                )
            pairs = names.items() if isinstance(names, Mapping) else enumerate(names)
            named = {float(code): str(name) for code, name in pairs}
            if isinstance(names, str) or not named or len({*named.values()}) < len(named):
                raise ValueError(
                    f"categories of {column!r} must have distinct names, got {names!r}."
                )
            number = self.names.index(column)
            unknown = sorted(set(x[:, number].tolist()) - set(named))
            if unknown:
                raise ValueError(
                    f"categories of {column!r} must name all codes 0, 1, ... of the data, got "
                    f"{len(named)} names and the code {unknown[-1]:.10g}."
                )
            code_names[number] = named
        return replace(self, categories=code_names)

    def dates(self, column: int, values: np.ndarray) -> np.ndarray:
        """Convert values ``A`` of a column of dates to dates; other values do not change."""
        if self.to_dates is not None and column == 0:
            return self.to_dates((values - self.x_offset[0]) / self.x_scale[0])
        if column not in self.first_dates:
            return values
        return self.first_dates[column] + np.rint(86_400_000 * values).astype("timedelta64[ms]")

    def levels(self, column: int, codes: np.ndarray) -> tuple[str, ...] | None:
        """Return names of category codes ``A`` of a column; None for numbers."""
        code_names = self.categories.get(column)
        if code_names is None:
            return None
        return tuple(code_names.get(code, f"{code:.10g}") for code in codes.tolist())

    def length(self, values: Tensor, column: int = 0) -> str:
        """Write a length along a column, or the range of several lengths."""
        lengths = values.detach().double().cpu().numpy() * self.x_scale[column]
        unit = self.x_unit if column == 0 else ""
        ends = [length_text(float(end), unit) for end in (lengths.min(), lengths.max())]
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)

    def position(self, value: float, column: int = 0) -> str:
        """Write a position along a column, given in units of the model, as a number or a date."""
        if self.to_dates is not None and column == 0:
            unit = "D" if self.x_unit == "yr" else "m"
            return str(self.to_dates(np.array([value]))[0].astype(f"datetime64[{unit}]"))
        scale = float(self.x_scale[column])
        number = rounded(float(self.x_offset[column]) + scale * value, scale)
        return f"{number} {self.x_unit}".rstrip() if column == 0 else number


def period_name(period: float, unit: str) -> str:
    """Return the name of a period in a unit of time, such as ``yearly``, or an empty string."""
    years = period * YEARS.get(unit, math.nan)
    return next(
        (name for name, base in _PERIODS.items() if abs(years / base - 1) < _PERIOD_TOLERANCE), ""
    )


def length_text(value: float, unit: str) -> str:
    """Write a length with its unit; of time in a unit that gives a readable number."""
    years = YEARS.get(unit)
    if years is not None and math.isfinite(value) and not _MIN_SHOWN <= value < _MAX_SHOWN:
        for other in _LADDER:
            shown = value * years / YEARS[other]
            if shown >= _MIN_SHOWN:
                return f"{three_digits(shown)} {other}"
    return f"{three_digits(value)} {unit}".rstrip()


def singular(unit: str) -> str:
    """Return the singular of a unit."""
    if unit in YEARS and unit.endswith("s") and len(unit) > 2:
        return unit[:-1]
    return unit or "unit of time"


def three_digits(value: float) -> str:
    """Write a number with three significant digits, without an exponent if possible."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value}"
    return rounded(value, 0.1 * float(f"{value:.2e}")) if value else "0"


def rounded(value: float, change: float) -> str:
    """Write a number with the digits that resolve a hundredth of ``change``."""
    value, change = float(value), abs(float(change))
    if not (change > 0 and math.isfinite(change) and math.isfinite(value)):
        return three_digits(value)
    size = max(abs(value), change)
    last = math.floor(math.log10(change)) - 1  # power of ten of the last digit
    if 1e-4 <= size < 1e9 and last > -8:
        text = f"{value:.{max(0, -last)}f}"
        return "0" if float(text) == 0 else text
    if value == 0:
        return "0"
    digits = min(15, max(1, math.floor(math.log10(abs(value))) - last))
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def expectation(mean: float, std: float) -> str:
    """Write mean and standard deviation, with two digits of the latter."""
    return f"{rounded(mean, max(std, 1e-4 * abs(mean)))} ± {rounded(std, std)}"


def listed(names: Sequence[str]) -> str:
    """Join names, as in ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def percent(value: float) -> str:
    """Write a fraction as a percentage with one decimal, or a bound near 0 and 100 %."""
    if 0 < abs(value) < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < value < 1:
        return "more than 99.9 %"
    return f"{100 * value:.1f} %"


def means_text(means: Mapping[str, float]) -> str:
    """Write the means of the tasks, about which shares are computed; empty without tasks."""
    if not means:
        return ""
    text = ", ".join(f"{mean:.4g} (task {name})" for name, mean in means.items())
    return f"Shares refer to the variation about the means of the tasks: {text}."
