"""Cells of text files: missing values, numbers, codes of missing values (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable

import numpy as np
import pandas as pd

__all__ = [
    "MISSING",
    "counted",
    "drop_advice",
    "find_sentinels",
    "is_missing",
    "listed",
    "number_parts",
    "once",
    "quoted",
    "read_numbers",
]

MISSING = (
    r"(?i:[-\u2013\u2014\u2026.:?*]*|n[/.]?a\.?|n/e|nan|none|\(?null\)?|nil|nat|#n/a.*|<na>"
    r"|#[a-z]+(?:/0)?[!?]|: ?[a-z]{1,3}"  # errors of Excel, flags of Eurostat
    "|m13)"  # the mean of a year of the Bureau of Labor Statistics
)
_NUMBER = (  # sign, mark, digits, closing sign, mark: -5, EUR 5, (1,234.5), 3-, 12.4*, 5 %, 15(b)
    r"^(?P<sign>[(+-]?) ?"
    r"(?P<before>[A-Za-z]{0,3}[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}|Rs\.?|[<>~*]|) ?"
    r"(?P<digits>[+-]?(?:\d[\d., ']*|[.,]\d+)(?:[eE][+-]?\d+)?)(?P<end>[-)]?) ?"
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|[A-Za-z]{1,4}|[(\[]\w{1,3}[)\]]|)$"
)
_STYLES = {  # by the decimal mark; the other mark may separate thousands
    mark: rf"[+-]?(?:[1-9]\d?\d?(?:{other}\d\d\d?)*{other}\d{{3}}|\d*)(?:{own}\d*)?(?:[eE].+)?"
    for mark, own, other in ((".", r"\.", ","), (",", ",", r"\."))
}
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9}
_CODE = re.compile(r"-?(?:9{2,}(?:\.9+)?|8{3,}|[1-9]0{2,}|32768|1)")  # usual for missing values


def quoted(texts: Iterable[object]) -> str:
    """Quote the first ten strings, each shortened to 40 characters."""
    full = list(map(str, texts))
    short = [repr(text if len(text) <= 40 else f"{text[:37]}...") for text in full[:10]]
    return ", ".join(short) + (", ..." if len(full) > 10 else "")


def listed(names: Iterable[str]) -> str:
    """List names in full, so that they can be copied."""
    return ", ".join(map(repr, names))


def counted(count: int, what: str = "row") -> str:
    """Return a number and its noun, such as ``2 rows``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_missing(cells: pd.Series, na_values: Collection[str] = ()) -> pd.Series:
    """Mask of the cells without a value: empty, NA, NaN, null, -, ., ?, or as given."""
    missing = cells.str.fullmatch(MISSING) | cells.isin(list(na_values))
    codes = pd.to_numeric(pd.Series(list(na_values), dtype=object), errors="coerce").dropna()
    return missing | pd.to_numeric(cells, errors="coerce").isin(codes) if len(codes) else missing


def once(function: Callable[[pd.Series], pd.Series], cells: pd.Series) -> pd.Series:
    """Apply a function of strings once to each distinct cell."""
    codes, unique = pd.factorize(cells)
    values = function(pd.Series(unique, dtype=object)).to_numpy()
    return pd.Series(values[codes], cells.index, values.dtype, cells.name)


def drop_advice(bad: pd.Series) -> str:
    """Return advice on cells that cannot be read."""
    cells = list(bad.unique())
    if len(cells) > 10:
        return f"correct the {len(cells)} different cells like this in the file"
    options = " ".join(f"--na-values={shlex.quote(cell)}" for cell in cells)
    return f"drop such rows by na_values={cells} ({options})"


def number_parts(cells: pd.Series) -> pd.DataFrame:
    """Split numbers into signs, digits and marks, with a mask for each decimal mark."""
    found = cells.str.extract(_NUMBER).fillna("")
    digits = found["digits"].str.replace(r"(?<=\d)[ '](?=\d{3})", "", regex=True).str.strip()
    fits = {mark: (digits != "") & digits.str.fullmatch(style) for mark, style in _STYLES.items()}
    parts = found.assign(digits=digits, mark=found["before"] + found["after"], **fits)
    return parts.assign(is_number=parts["."] | parts[","])


def read_numbers(
    cells: pd.Series, notices: list[str], *, decimal: str | None = None, sep: str = ","
) -> np.ndarray:
    """Convert a column of strings to numbers ``N``.

    A comma before three digits separates thousands if other cells have no comma. It is ambiguous
    if all cells have this form. In files with semicolons, the same holds for points.

    Raises:
        ValueError: A cell is not a finite number, or the decimal mark is ambiguous.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}.")
    name, unique = cells.name, pd.Series(cells.unique(), dtype=object)
    plain = unique.mask(unique.str.contains("_", regex=False) | (decimal == ",") | (sep == ";"))
    if np.isfinite(pd.to_numeric(plain, errors="coerce")).all():  # long files without patterns
        return cells.to_numpy().astype(float)
    parts = number_parts(unique)
    digits, mark = parts["digits"], parts["mark"]
    if decimal is None:
        decimal = "," if parts[","].sum() > parts["."].sum() else "."
        seen = next((mark for mark in ",." if digits.str.contains(mark, regex=False).any()), "")
        if parts["."].equals(parts[","]) and (seen == "," or (seen and sep == ";")):
            is_everywhere = digits.str.contains(seen, regex=False).all()
            decimal = "," if is_everywhere == (seen == ",") else "."
            if is_everywhere and (seen == ".") == (sep == ";"):
                raise ValueError(
                    f"Numbers such as {unique[0]!r} in the column {name!r} may have a decimal mark "
                    "or a thousands separator: set decimal='.' or decimal=',' (--decimal . or "
                    "--decimal ,)."
                )
    plain = digits.str.replace("." if decimal == "," else ",", "", regex=False)
    values = plain.str.replace(decimal, ".", regex=False).where(parts[decimal]).astype(float)
    bad = cells[cells.isin(unique[~np.isfinite(values)])]
    if len(bad):
        raise ValueError(
            f"Line {bad.index[0]}: the column {name!r} must hold numbers, got "
            f"{quoted(bad.unique())}; {drop_advice(bad)}, or name another column (--target)."
        )
    if decimal == "," and digits.str.contains(",").any():
        notices.append(f"Numbers of {name!r} have decimal commas.")
    values *= np.where((parts["sign"] + parts["end"]).isin(["()", "-"]), -1.0, 1.0)
    scales = parts["after"].map(_SCALES)
    sizes = np.log(values.abs()[values != 0])
    if scales.nunique() > 1 or (sizes + np.log(scales.fillna(1.0))).std() < sizes.std():
        values *= scales.fillna(1.0)
        notices.append(f"K, M and B in {name!r} are thousands, millions and billions.")
    elif mark.nunique() > 1:
        marked = cells[cells.isin(unique[mark != ""])]
        notices.append(
            f"{counted(len(marked), 'value')} of {name!r} with a mark, such as "
            f"{marked.iloc[0]!r}: marks are dropped, values are kept."
        )
    elif mark.any():
        notices.append(f"Values of {name!r} are in {mark[0]}.")
    return cells.map(dict(zip(unique, values, strict=True))).to_numpy(float)


def find_sentinels(values: np.ndarray, name: str, notices: list[str]) -> None:
    """Add a notice on sentinel values for missing ones, if there are any.

    A sentinel is a usual code (-99, 9999, ...) or a repeated minimum or maximum. Its distance from
    the other values exceeds their range, or it is the only negative whole number.
    """
    counts = pd.Series(values).value_counts().sort_index()
    rank = np.arange(len(counts))
    ends = counts[(rank < 50) | (rank >= len(counts) - 50)]
    value, code = ends.index.to_numpy(), pd.Series([f"{v:.12g}" for v in ends.index], dtype=object)
    suspect = code.str.fullmatch(_CODE) | np.isin(value, counts.index[[0, -1]])
    suspect &= (ends.to_numpy() > 1) | code.str.fullmatch(r"-?99+(\.9+)?")
    for _ in range(2):  # the second time, with the suspects that are not far as other values
        others = counts.index.drop(value[suspect])
        if len(others) < 2:
            return
        low, high = others[[0, -1]]
        is_far = np.maximum(low - value, value - high) > high - low
        suspect &= is_far | ((low >= 0) & (value < 0) & (value == np.round(value)))
    found = ends[suspect.to_numpy()]
    if len(found) and 2 * found.sum() < values.size:
        codes = [f"{value:.12g}" for value in found.index]
        rows = ", ".join(f"{counted(n)} with {c}" for n, c in zip(found, codes, strict=True))
        options = " ".join(f"--na-values={code}" for code in codes)
        notices.append(
            f"{name!r} has {rows}, far from all other values; if this stands for missing values, "
            f"set na_values={codes} ({options})."
        )
