"""Numbers as people write them: decimal commas, marks between thousands, signs of currencies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from functools import cache
from itertools import product

import numpy as np

__all__ = [
    "Cells",
    "is_missing",
    "is_plain_number",
    "listed",
    "looks_like_number",
    "read_numbers",
    "shown",
]

Cells = Sequence[tuple[int, str]]  # number of the line, and what stands there

_MISSING = {"", "-", "--", ".", "..", "...", "?", "na", "n/a", "nan", "none", "null"}
_MISSING |= {"#n/a", "#n/a n/a", "<na>", "nat", "nil", "\u2013", "\u2014", "\u2026"}
# decimal mark and mark between thousands; the first style that fits is taken
_STYLES = (*product(".", ("", ",", " ", "'")), *product(",", ("", ".", " ", "'")))
_UNIT = r"(?:[A-Z]{2,3})?[$\u20ac\u00a3\u00a5\u20b9%\u2030]|[A-Z]{3}"
_QUOTED = 5  # texts that a message puts into options
_WITH_UNIT = re.compile(rf"([+-]?) ?({_UNIT})? ?([+-]?[\d.,][\d.,' ]*?) ?({_UNIT})?", re.ASCII)


def shown(text: str) -> str:
    """A text in quotes as messages show it, shortened."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def listed(texts: Sequence[str]) -> str:
    """Texts as messages list them, the first ten if there are many."""
    return ", ".join(map(shown, texts[:10])) + (", ..." if len(texts) > 10 else "")


def is_missing(cell: str, na_values: Collection[str] = ()) -> bool:
    """Whether a cell says that there is no value: empty, NA, NaN, null, -, ., ?, or as given."""
    if cell.casefold() in _MISSING or cell in na_values:
        return True
    plain = _pattern(".", "")
    return bool(na_values and plain.fullmatch(cell)) and any(
        plain.fullmatch(mark) and float(mark) == float(cell) for mark in na_values
    )


def is_plain_number(cell: str) -> bool:
    """Whether a cell is a number without marks between thousands."""
    return bool(_pattern(".", "").fullmatch(cell) or _pattern(",", "").fullmatch(cell))


def looks_like_number(cell: str) -> bool:
    """Whether a cell is a number of any style."""
    return any(_pattern(*style).fullmatch(cell) for style in _STYLES) or bool(
        _WITH_UNIT.fullmatch(cell)
    )


def read_numbers(
    cells: Cells, name: str, *, decimal: str | None = None, sep: str = ",", grouped: bool = True
) -> tuple[np.ndarray, list[str]]:
    """Numbers ``N`` of a column and what there is to tell about them.

    All of them are of one style. ``1,234`` is a thousand if ``decimal`` is a point, or if other
    numbers of the column have none of this mark (987), and is refused if all of them are of this
    form. So is ``1.234`` in a file with semicolons; elsewhere a point alone is a decimal point.

    Args:
        cells: The column.
        name: Name of the column.
        decimal: Decimal mark, a point or a comma; None finds it.
        sep: What separates the cells of the file.
        grouped: Whether there may be marks between thousands.

    Raises:
        ValueError: A cell is no finite number, or the decimal mark is in doubt.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}.")
    styles = [s for s in _STYLES if decimal in (None, s[0]) and (grouped or not s[1])]
    notices = []
    texts = [cell for _, cell in cells]
    fits = _fitting(texts, styles)
    if not fits and grouped:
        unit, stripped = _without_unit(texts)
        fits = _fitting(stripped, styles) if unit else []
        if fits:
            texts = stripped
            notices.append(f"Values of {shown(name)} are in {unit}.")
    if not fits:
        raise ValueError(_no_style(cells, name, styles))
    style = fits[0]
    readings = {tuple(_values(texts, s)): s for s in reversed(fits)}
    mark = next((m for m in ",." if any(m in text for text in texts)), "")
    if len(readings) > 1 and (mark == "," or sep == ";"):
        if all(mark in text for text in texts):
            raise ValueError(
                f"Numbers such as {shown(texts[0])} in the column {shown(name)} may have a decimal "
                f"{'comma' if mark == ',' else 'point'} or a mark between thousands: say "
                "decimal='.' or decimal=',' (--decimal . or --decimal ,)."
            )
        style = next(s for s in fits if s[1] == mark)
    values = np.array(_values(texts, style))
    if not np.isfinite(values).all():
        line, cell = cells[int(np.argmin(np.isfinite(values)))]
        raise ValueError(
            f"Line {line}: the column {shown(name)} must hold finite numbers, got {shown(cell)}."
        )
    if style[0] == "," and any("," in text for text in texts):
        notices.append(f"Numbers of {shown(name)} have decimal commas.")
    if style[1] and any(style[1] in text for text in texts):
        marks = {",": "commas", ".": "points", " ": "spaces", "'": "apostrophes"}[style[1]]
        notices.append(f"Numbers of {shown(name)} have {marks} between thousands.")
    return values, notices


def _no_style(cells: Cells, name: str, styles: Sequence[tuple[str, str]]) -> str:
    counts = [sum(bool(_pattern(*s).fullmatch(cell)) for _, cell in cells) for s in styles]
    best = _pattern(*styles[int(np.argmax(counts))])
    line, cell = next(c for c in cells if not best.fullmatch(c[1]))
    text = (
        f"Line {line}: the column {shown(name)} must hold finite numbers of one style, got "
        f"{shown(cell)}"
    )
    if len(cells) > 2 and not any(char.isdigit() for _, text in cells for char in text):
        return (
            f"The column {shown(name)} must hold numbers, got texts such as {shown(cell)}; name "
            "another one (target, --target)."
        )
    other = next((c for c in cells if best.fullmatch(c[1])), None)
    if any(char.isdigit() for char in cell):
        if other is None:
            return f"{text}."
        text += f" beside {shown(other[1])} in line {other[0]}"
    no_data = "lines that are no data need a # or skiprows (--skip-rows)."
    texts = list(dict.fromkeys(c for _, c in cells if not looks_like_number(c)))
    if cell not in texts:  # a number of another style
        return f"{text}; {no_data}"
    what = "it stands for a missing value"
    if len(texts) > 1:
        text += f", elsewhere {listed([t for t in texts if t != cell])}"
        what = "they stand for missing values"
    options = " ".join(f"--na-values={shlex.quote(t)}" for t in texts[:_QUOTED])
    rest = ", ..." if len(texts) > _QUOTED else ""
    text += f"; if {what}, say na_values=[{', '.join(map(repr, texts[:_QUOTED]))}{rest}] ({options}"
    text += " ...)" if rest else ")"
    return f"{text}; {no_data}" if any(char.isdigit() for t in texts for char in t) else f"{text}."


def _fitting(texts: Sequence[str], styles: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [s for s in styles if all(_pattern(*s).fullmatch(text) for text in texts)]


def _values(texts: Sequence[str], style: tuple[str, str]) -> list[float]:
    decimal, group = style
    return [float((t.replace(group, "") if group else t).replace(decimal, ".")) for t in texts]


def _without_unit(texts: Sequence[str]) -> tuple[str, list[str]]:
    """The one unit that all cells have, and the numbers without it; '' if there is none."""
    matches = [_WITH_UNIT.fullmatch(text) for text in texts]
    units = {(m[2] or "", m[4] or "") if m else ("", "") for m in matches}
    before, after = units.pop() if len(units) == 1 else ("", "")
    if bool(before) == bool(after):  # none, or two
        return "", []
    return before or after, [m[1] + m[3] for m in matches if m]


@cache
def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    whole = rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+" if group else r"\d+"
    if group == ".":
        whole = whole.replace(".", r"\.")
    mark = re.escape(decimal)
    return re.compile(rf"[+-]?(?:(?:{whole})(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?", re.ASCII)
