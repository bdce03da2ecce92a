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
    "is_missing",
    "notice_sentinels",
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
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|(?![kKMB]$)[A-Za-z]{1,4}|[(\[]\w{1,3}[)\]]|)$"
)
_STYLES = {  # by the decimal mark; the other mark may separate thousands
    mark: rf"[+-]?(?:[1-9]\d?\d?(?:{other}\d\d\d?)*{other}\d{{3}}|\d*)(?:{own}\d*)?(?:[eE].+)?"
    for mark, own, other in ((".", r"\.", ","), (",", ",", r"\."))
}
_CODE = re.compile(r"-?(?:9{2,}(?:\.9+)?|8{3,}|[1-9]0{2,}|32768|1)")  # usual for missing values


def quoted(texts: Iterable[object]) -> str:
    """Quote up to twenty strings in full, so that they can be copied."""
    full = list(map(str, texts))
    return ", ".join(map(repr, full[:20])) + (", ..." if len(full) > 20 else "")


def counted(count: int, what: str = "row") -> str:
    """Return a number and its noun, such as ``2 rows``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_missing(cells: pd.Series, na_values: Collection[str] = ()) -> pd.Series:
    """Mask of the cells without a value: empty, NA, NaN, null, -, ., ?, or as given."""
    missing = cells.str.fullmatch(MISSING) | cells.isin([*na_values])
    codes = pd.to_numeric(pd.Series([*na_values], dtype=object), errors="coerce").dropna()
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


def number_parts(cell: str) -> tuple[str, str, bool, bool, bool]:
    """Digits and mark of a number, whether it is negative, and whether each decimal mark fits."""
    found = re.match(_NUMBER, cell)
    if found is None:
        return "", "", False, False, False
    digits = re.sub(r"(?<=\d)[ '](?=\d{3})", "", found["digits"]).strip()
    point, comma = (re.fullmatch(style, digits) is not None for style in _STYLES.values())
    is_negative = found["sign"] + found["end"] in ("()", "-")
    return digits, found["before"] + found["after"], is_negative, point, comma


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
    columns = ["digits", "mark", "negative", ".", ","]
    parts = pd.DataFrame([number_parts(cell) for cell in unique], columns=columns)
    digits, mark = parts["digits"].astype(object), parts["mark"]
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
    values *= np.where(parts["negative"], -1.0, 1.0)
    if mark.nunique() > 1:
        marked = cells[cells.isin(unique[mark != ""])]
        notices.append(
            f"{counted(len(marked), 'value')} of {name!r} with a mark, such as "
            f"{marked.iloc[0]!r}: marks are dropped, values are kept."
        )
    elif mark.any():
        notices.append(f"Values of {name!r} are in {mark[0]}.")
    return cells.map(dict(zip(unique, values, strict=True))).to_numpy(float)


def notice_sentinels(values: np.ndarray, name: str, notices: list[str]) -> None:
    """Add a notice on sentinel values for missing ones, if there are any.

    A sentinel is a usual code (-99, 9999, ...) or a repeated minimum or maximum. Its distance from
    the other values exceeds their range, or it is the only negative whole number.
    """
    counts = pd.Series(values).value_counts().sort_index()
    ends = pd.concat([counts.iloc[:50], counts.iloc[50:].tail(50)])
    value, codes = ends.index.to_numpy(), np.array([f"{v:.12g}" for v in ends.index])
    suspect = np.array([bool(_CODE.fullmatch(code)) for code in codes])
    suspect |= np.isin(value, counts.index[[0, -1]])
    suspect &= (ends.to_numpy() > 1) | np.char.startswith(np.char.lstrip(codes, "-"), "99")
    for _ in range(2):  # the second time, with the suspects that are not far as other values
        others = counts.index.drop(value[suspect])
        if len(others) < 2:
            return
        low, high = others[[0, -1]]
        is_far = np.maximum(low - value, value - high) > high - low
        suspect &= is_far | ((low >= 0) & (value < 0) & (value == np.round(value)))
    found = ends[suspect]
    if len(found) and 2 * found.sum() < values.size:
        names = codes[suspect].tolist()
        rows = ", ".join(f"{counted(n)} with {c}" for n, c in zip(found, names, strict=True))
        options = " ".join(f"--na-values={code}" for code in names)
        notices.append(
            f"{name!r} has {rows}, far from all other values; if this stands for missing values, "
            f"set na_values={names} ({options})."
        )
