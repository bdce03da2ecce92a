"""The data's own units; numbers, lengths of time and periods as people and JSON write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
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
    "percent",
    "period_name",
    "plain",
    "rounded",
    "singular",
    "three_digits",
]

Z95 = 1.959964  # 97.5 % quantile of the normal distribution
_YEAR = 365.2425  # days
_SIZES = {"yr": 1.0, "months": 1 / 12, "weeks": 7 / _YEAR, "days": 1 / _YEAR}
_SIZES |= {"hours": _SIZES["days"] / 24, "minutes": _SIZES["days"] / 1440}
_SIZES |= {"seconds": _SIZES["days"] / 86_400, "milliseconds": _SIZES["days"] / 86_400_000}
_WORDS = {
    "yr": ("yr", "year", "years"),
    "months": ("month", "months"),
    "weeks": ("week", "weeks"),
    "days": ("d", "day", "days"),
    "hours": ("h", "hour", "hours"),
    "minutes": ("min", "minute", "minutes"),
    "seconds": ("s", "second", "seconds"),
    "milliseconds": ("ms", "millisecond", "milliseconds"),
}
#: Length in years of the units of time that are understood.
YEARS = {word: _SIZES[unit] for unit, words in _WORDS.items() for word in words}

_LADDER = ("yr", "days", "hours", "minutes", "seconds", "milliseconds")
_LEAST, _MOST = 0.95, 1000.0  # of a unit, before another one is taken
_NAMED = {
    "yearly": 1.0,
    "half-yearly": 0.5,
    "quarterly": 0.25,
    "monthly": 1 / 12,
    "weekly": _SIZES["weeks"],
    "daily": _SIZES["days"],
    "hourly": _SIZES["hours"],
}
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_HOURS = 4.0  # days of a typical distance from the mean, below which the hour matters
_LARGE = {"million": 1e6, "billion": 1e9, "trillion": 1e12}
_LARGEST = 1e300
_NEAR = 0.01  # relative distance at which a period has the name


@dataclass(frozen=True)
class Units:
    """What a model's inputs and targets mean: data = offset + scale * value in the model."""

    x_offset: np.ndarray = field(default_factory=lambda: np.zeros(1))  # per input column D
    x_scale: np.ndarray = field(default_factory=lambda: np.ones(1))
    y_offset: float = 0.0
    y_scale: float = 1.0
    names: tuple[str, ...] = ("x",)  # of the input columns D
    x_unit: str = ""  # of the first column, such as yr
    y_name: str = "y"
    y_unit: str = ""
    link: Any = None  # transform of the targets: name, noun, forward, inverse, log_slope
    affine: bool = True  # otherwise lengths are those of the transformed inputs
    # names of the codes of columns that hold categories, by number of the column
    categories: Mapping[int, Mapping[float, str]] = field(default_factory=dict)
    # dates M of the first column's values M in the model; None for numbers
    to_dates: Callable[[np.ndarray], np.ndarray] | None = None

    @classmethod
    def plain(cls, input_dim: int) -> Units:
        """The model's units themselves."""
        names = ("x",) if input_dim == 1 else tuple(f"x{place}" for place in range(input_dim))
        return cls(x_offset=np.zeros(input_dim), x_scale=np.ones(input_dim), names=names)

    @property
    def log_targets(self) -> bool:
        """The model is one of the logarithm of the targets."""
        return self.link is not None and self.link.name == "log"

    def of_model(self, what: str) -> str:
        """In words, what the model has of the targets, which are called ``what``."""
        return what if self.link is None else f"the {self.link.noun} of {what}"

    def original(self, values: np.ndarray) -> np.ndarray:
        """Targets that the model has as values of any shape, such that they can be drawn."""
        if self.link is None:
            return values
        return np.clip(self.link.inverse(values), -_LARGEST, _LARGEST)

    def named(self, columns: Sequence[str] | None) -> Units:
        """The same with other names of the columns; None leaves them."""
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
        """The same with the names of the codes of some columns; None leaves them.

        Args:
            categories: By the name of the column the names of codes 0, 1, ..., or by code.
            x: Data ``N x D``, of whose codes each must have a name.
        """
        if not (categories is None or isinstance(categories, Mapping)):
            raise TypeError(
                f"categories must map names of columns to names of codes, got {categories!r}."
            )
        known: dict[int, Mapping[float, str]] = dict(self.categories)
        for column, given in (categories or {}).items():
            if column not in self.names:
                raise ValueError(
                    f"categories must be of columns among {listed(self.names)}, got {column!r}."
                )
            pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
            named = {float(code): str(name) for code, name in pairs}
            if isinstance(given, str) or not named or len({*named.values()}) < len(named):
                raise ValueError(
                    f"categories of {column!r} must be different names, got {given!r}."
                )
            place = self.names.index(column)
            unknown = sorted(set(x[:, place].tolist()) - set(named))
            if unknown:
                raise ValueError(
                    f"categories of {column!r} must name all codes 0, 1, ... of the data, got "
                    f"{len(named)} names and the code {unknown[-1]:.10g}."
                )
            known[place] = named
        return replace(self, categories=known)

    def levels(self, column: int, codes: np.ndarray) -> tuple[str, ...] | None:
        """Names of codes ``A`` of a column of categories; None for a column of numbers."""
        known = self.categories.get(column)
        if known is None:
            return None
        return tuple(known.get(code, f"{code:.10g}") for code in codes.tolist())

    def length(self, values: Tensor, column: int = 0) -> str:
        """A length along a column as text; from the smallest to the largest of several."""
        lengths = values.detach().double().cpu().numpy() * self.x_scale[column]
        unit = self.x_unit if column == 0 else ""
        ends = [length_text(float(end), unit) for end in (lengths.min(), lengths.max())]
        return ends[0] if ends[0] == ends[1] else " to ".join(ends)

    def place(self, value: float, column: int = 0) -> str:
        """A place along a column, given in units of the model, as text: a number or a date."""
        if self.to_dates is not None and column == 0:
            return self._date(value)
        scale = float(self.x_scale[column])
        number = rounded(float(self.x_offset[column]) + scale * value, scale)
        return f"{number} {self.x_unit}".rstrip() if column == 0 else number

    def _date(self, value: float) -> str:
        assert self.to_dates is not None
        date = self.to_dates(np.array([value]))[0].astype("datetime64[m]").item()
        month = f"{_MONTHS[date.month - 1]} {date.year}"
        if self.x_unit == "yr":
            return month
        hour = f"{date:%H:%M}, " if self.x_scale[0] * YEARS[self.x_unit] * _YEAR < _HOURS else ""
        return f"{hour}{date.day} {month}"


def period_name(period: float, unit: str) -> str:
    """Such as ``yearly`` for a period in a unit of time; empty if it has no name."""
    years = period * YEARS.get(unit, math.nan)
    return next((name for name, own in _NAMED.items() if abs(years / own - 1) < _NEAR), "")


def length_text(value: float, unit: str) -> str:
    """A length with its unit; one of time in another unit where its number would be odd."""
    years = YEARS.get(unit)
    if years is not None and math.isfinite(value) and not _LEAST <= value < _MOST:
        for other in _LADDER:
            shown = value * years / _SIZES[other]
            if shown >= _LEAST:
                return f"{three_digits(shown)} {other}"
    return f"{three_digits(value)} {unit}".rstrip()


def singular(unit: str) -> str:
    """One unit, after the word "per"."""
    if unit in YEARS and unit.endswith("s") and len(unit) > 2:
        return unit[:-1]
    return unit or "unit of time"


def three_digits(value: float) -> str:
    """Three digits, written out where that is not too long."""
    value = float(value)
    if not math.isfinite(value):
        return f"{value}"
    return rounded(value, 0.1 * value) if value else "0"


def rounded(value: float, change: float) -> str:
    """A number with as many digits as tell apart what differs by a hundredth of ``change``."""
    value, change = float(value), abs(float(change))
    if not (change > 0 and math.isfinite(change) and math.isfinite(value)):
        return three_digits(value)
    size = max(abs(value), change)
    for name, least in _LARGE.items():
        if least <= size < 1000 * least:
            text = rounded(value / least, change / least)
            return text if text == "0" else f"{text} {name}"
    last = math.floor(math.log10(change)) - 1  # power of ten of the last digit
    if 1e-4 <= size < 1e6 and last > -8:
        text = f"{value:.{max(0, -last)}f}"
        return "0" if float(text) == 0 else text
    if value == 0:
        return "0"
    digits = min(15, max(1, math.floor(math.log10(abs(value))) - last))
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def expectation(mean: float, std: float) -> str:
    """Mean and standard deviation, with two digits of the second unless it is next to nothing."""
    return f"{rounded(mean, max(std, 1e-4 * abs(mean)))} ± {rounded(std, std)}"


def listed(names: Sequence[str]) -> str:
    """Such as ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def percent(value: float) -> str:
    """A share with one digit, or what tells it apart from nothing and from everything."""
    if 0 < abs(value) < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < value < 1:
        return "more than 99.9 %"
    return f"{100 * value:.1f} %"


def plain(value: Any) -> Any:
    """A record, or a tree of values, as JSON knows it; what is no finite number becomes None."""
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
