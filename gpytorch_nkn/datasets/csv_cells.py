"""Numbers and sentinel values in text files, and the options of the reader (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "Reading",
    "drop_advice",
    "notice_sentinels",
    "number_parts",
    "option",
    "quoted",
    "read_numbers",
]

_NUMBER = (  # sign, mark, bracket, digits, closing sign, unit, mark: $ (1,234.5), 3-, 1.2K, 15(b)
    r"^(?P<sign>[(+-]?) ?"
    r"(?P<before>[A-Za-z]{0,3}(?P<coin>[$\u20ac\u00a3\u00a5\u20b9])|[A-Z]{3}|Rs\.?|[<>~*]|) ?"
    r"(?P<bracket>\(?)(?P<digits>[+-]?(?:\d[\d., ']*|[.,]\d+)(?:[eE][+-]?\d+)?)(?P<end>[-)]?) ?"
    r"(?P<unit>(?:(?(coin)[kKMBT]|[kKMB])$)?)"
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|[A-Za-z]{1,4}|[(\[]\w{1,3}[)\]]|)$"
)
_STYLES = {  # by the decimal mark; the other may separate thousands; 0123,4 are two numbers
    mark: rf"[+-]?(?:[1-9]\d?\d?(?:{sep}\d\d\d?)*{sep}\d{{3}}|(?!0\d+,)\d*)([{mark}]\d*)?([eE].+)?"
    for mark, sep in ((".", ","), (",", "[.]"))
}


class Reading(SimpleNamespace):
    """Arguments of :func:`read_time_series`, completed from the file, and the notices so far."""

    def __init__(self, **arguments: Any):
        super().__init__(**{"notices": [], **arguments})
        time, missing = arguments["time"], arguments["na_values"]
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        if self.future is not None and not self.covariates:
            raise ValueError("future needs covariates: name them (--covariates), too.")
        self.time: list[str] = [time] if isinstance(time, str) else list(time or ())
        self.where: dict[str, str] = dict(arguments["where"] or {})
        single = isinstance(missing, str) or not isinstance(missing, Iterable)
        self.na_values: list[Any] = [missing] if single else list(missing)

    def changed(self, **arguments: Any) -> Reading:
        """Return a copy with other arguments."""
        return Reading(**vars(self) | arguments)

    def note(self, text: str, is_so: object = True) -> None:
        """Add a notice if its condition holds."""
        self.notices += [text] * bool(is_so)


def quoted(texts: Iterable[object]) -> str:
    """Quote up to twenty strings in full, so that they can be copied."""
    full = list(map(str, texts))
    return ", ".join(map(repr, full[:20])) + (", ..." if len(full) > 20 else "")


def option(name: str, *value: Any) -> str:
    """Write an option for Python and the command: ``sep (--sep)``, ``time='t' (--time=t)``."""
    flag = "--" + name.replace("_", "-")
    if not value:
        return f"{name} ({flag})"
    given = value[0]
    items = [f"{k}={v}" for k, v in given.items()] if isinstance(given, dict) else np.ravel(given)
    words = " ".join(f"{flag}={shlex.quote(str(item))}" for item in items)
    if name == "covariates":
        words = shlex.join([flag, *given])
    if given is None or isinstance(given, bool):
        words = {None: f"{flag}=none", True: flag, False: f"--no-{name}"}[given]
    return f"{name}={given!r} ({words})"


def drop_advice(bad: pd.Series) -> str:
    """Return advice on cells that are neither values nor known to be missing."""
    cells = list(bad.unique())
    if len(cells) > 10:
        return f"correct the {len(cells)} different cells like this in the file"
    return f"drop such rows by {option('na_values', cells)}"


def number_parts(cell: str) -> tuple[str, str, float, bool, bool]:
    """Return digits, marks and factor, and whether the number fits a decimal point or comma."""
    match = re.match(_NUMBER, cell)
    if match is None:
        return "", "", 1.0, False, False
    digits = re.sub(r"(?<=\d)[ '](?=\d{3})", "", match["digits"]).strip()
    point, comma = (re.fullmatch(style, digits) is not None for style in _STYLES.values())
    sign = -1.0 if match["sign"] + match["bracket"] + match["end"] in ("()", "-") else 1.0
    factor = sign * 1000.0 ** " kmbt".index(match["unit"].lower() or " ")
    return digits, match["before"] + match["after"], factor, point, comma


def read_numbers(cells: pd.Series, reading: Reading) -> np.ndarray:
    """Convert a column of strings to numbers ``N``.

    The decimal mark is a point if it fits at least as many cells as a comma. The comma of ``1,234``
    separates thousands beside ``123`` or in files with commas, and is ambiguous in others. In files
    with semicolons, point and comma change roles.
    """
    decimal, name, unique = reading.decimal, cells.name, pd.Series(cells.unique(), dtype=object)
    parts = pd.DataFrame(map(number_parts, unique), columns=["digits", "mark", "factor", ".", ","])
    usual, other = (",", ".") if reading.sep == ";" else (".", ",")
    digits, is_unusual = parts["digits"].astype(object), parts["digits"].str.count(f"[{other}]") > 0
    is_ambiguous = decimal is None and is_unusual.all() and parts["."].equals(parts[","])
    if is_ambiguous and reading.sep != ",":
        raise ValueError(
            f"Numbers such as {unique[0]!r} in the column {name!r} may have a decimal mark or a "
            f"thousands separator: set {option('decimal', '.')} or {option('decimal', ',')}."
        )
    whole = digits[~digits.str.contains(f"[{usual}]")]
    if decimal is None and parts[usual].all() and parts[other].all() and len(whole):
        ends, is_short = digits.drop(whole.index).str[-1], whole.str.fullmatch(r"[+-]?\d{1,3}")
        if "0" in {*ends} and is_short.all() and (whole.str.len() == 3).any():
            decimal, is_ambiguous = other, True
    decimal = decimal or (usual if parts[usual].sum() >= parts[other].sum() else other)
    plain = digits.str.replace("." if decimal == "," else ",", "", regex=False)
    values = plain.str.replace(decimal, ".", regex=False).where(parts[decimal]).astype(float)
    marks = parts["mark"].str.replace(r"[<>~*]|[(\[].*", "", regex=True)
    marks = marks.mask((marks == "") & (parts["factor"].abs() > 1), "kMBT")
    is_unit = (marks != "").all() and marks.str.contains(r"[A-Za-z]{2}|[^\x00-\x7f]|\$").any()
    mixed = (marks != marks.mode()[0]) & is_unit  # W and kW, not flags such as p and e
    bad = cells[cells.isin(unique[~np.isfinite(values) | mixed])]
    if len(bad):
        advice = f"{drop_advice(bad)}, or name another column by {option('target')}"
        like = f" like {unique[~mixed].iloc[0]!r}" if mixed.any() else ""
        if name in reading.covariates:
            advice = f"write numbers, such as 1 and 0, or leave it out of {option('covariates')}"
        raise ValueError(
            f"Line {bad.index[0]}: the column {name!r} must hold numbers{like}, got "
            f"{quoted(bad.unique())}; {advice}."
        )
    marked = cells[cells.isin(unique[parts["mark"] != ""])]
    mark = "Commas" if decimal == "." else "Points"
    reading.note(f"{mark} in numbers of {name!r} separate thousands.", is_ambiguous)
    is_decimal = decimal == "," and digits.str.contains(",").any()
    reading.note(f"Numbers of {name!r} have decimal commas.", is_decimal)
    text = f"marks such as in {quoted(marked[:1])} are dropped, values are kept."
    reading.note(f"Values of {name!r} with a mark: {len(marked)}; {text}", len(marked))
    return cells.map(dict(zip(unique, values * parts["factor"], strict=True))).to_numpy(float)


def notice_sentinels(values: np.ndarray, name: str, reading: Reading) -> None:
    """Add a notice of values that may stand for missing ones (sentinel values), if any.

    A sentinel is a minimum or maximum that is repeated or begins with 99. Its distance from all
    other values exceeds their range, or it is an integer and the only negative value.
    """
    counts, sentinels = pd.Series(values).value_counts().sort_index(), list[str]()
    while len(counts) > 2:
        v = counts.index.to_numpy()
        low, high = np.diff(v)[[0, -1]]
        end, others = (v[0], v[1:]) if low > high else (v[-1], v[:-1])
        is_far = max(low, high) > np.ptp(others) or (end < 0 <= others[0] and end == round(end))
        if not is_far or (counts[end] == 1 and not f"{abs(end)}".startswith("99")):
            break
        sentinels.append(f"{end:.12g}")
        counts = counts.drop(end)
    if sentinels and 2 * counts.sum() > values.size:
        reading.note(
            f"Values of {name!r} that are far from all others: {values.size - counts.sum()}; if "
            f"they stand for missing values, set {option('na_values', sentinels)}."
        )
