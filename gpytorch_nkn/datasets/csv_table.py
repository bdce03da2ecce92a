"""Tables of text from CSV files as they are found: encodings, separators, headers, comments."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpytorch_nkn.datasets.written_numbers import is_missing, listed, looks_like_number, shown
from gpytorch_nkn.datasets.written_times import looks_like_date

__all__ = ["CsvTable", "Row", "is_year", "read_table"]

_SEPARATORS = "\t;|, "  # a comma is also a decimal mark, and spaces are within dates
_NAMED_SEPARATORS = {"tab": "\t", r"\t": "\t", "space": " "}
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}
_ENOUGH = 1000  # lines that tell separator and columns
Row = tuple[int, list[str]]


@dataclass(frozen=True)
class CsvTable:
    """Cells of a file.

    Args:
        names: Names of the columns, all of them different.
        rows: Number of the line and cells of every row, as many as columns.
        sep: What separates the cells.
        notices: What there is to tell, one sentence each.
    """

    names: list[str]
    rows: list[Row]
    sep: str
    notices: list[str]


def _is_value(cell: str) -> bool:
    """Whether a cell is a number or a date."""
    return looks_like_number(cell) or looks_like_date(cell)


def is_year(cell: str) -> bool:
    """Whether a cell is a year of four digits from 1500 to 2199."""
    return bool(re.fullmatch("(?:1[5-9]|2[01])[0-9]{2}", cell))


def read_table(
    path: Path,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    has_header: bool | None = None,
    skiprows: int = 0,
) -> CsvTable:
    """The table in a text file.

    Left out are lines that begin with #, lines before the header with fewer cells than it, lines
    of text between header and data (units), and columns without a name and a value.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds neither a table of two columns nor one of numbers; the message says
            what and where.
    """
    lines = _text(path, encoding).splitlines(keepends=True)
    lines[:skiprows] = ["\n"] * min(skiprows, len(lines))
    sep = _NAMED_SEPARATORS.get(sep or "", sep)
    told = re.fullmatch(r"sep=(.)\s*", lines[0]) if lines else None  # as Excel writes it
    if told:
        sep, lines[0] = sep or told[1], "\n"
    if sep is not None and len(sep) != 1:
        raise ValueError(f"sep must be one character, 'tab' or 'space', got {sep!r}.")
    sep = sep or max(_SEPARATORS, key=lambda one: _agreement(_split(path, lines[:_ENOUGH], one)))
    table = _split(path, lines, sep)
    comments = [row for row in table if _is_comment(row)]
    table = [row for row in table if not _is_comment(row)]
    if not table:
        raise ValueError(f"{path} is empty.")
    width = _usual(len(_trimmed(cells)) for _, cells in table[:_ENOUGH])
    if width < 2:  # values that are mostly missing
        width = _usual(len(cells) for _, cells in table[:_ENOUGH])
    first = [cells[0] for _, cells in table[:_ENOUGH] if not is_missing(cells[0])]
    is_series = 2 * sum(map(looks_like_number, first)) > len(first)  # of one column
    if width < 2 and not is_series:
        raise ValueError(
            f"{path} needs a time and a target column, got only {shown(table[0][1][0])}; if cells "
            "are separated by an unusual sign, name it by sep (--sep)."
        )
    return _with_header(path, table, comments, width, sep, has_header)


def _text(path: Path, encoding: str | None) -> str:
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} cannot be unpacked: {error}.") from None
    if content[:4] in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path} is no text but a workbook or an archive; save it as CSV first.")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode(encoding or ("utf-16" if wide else "utf-8-sig"))
    except LookupError:
        raise ValueError(f"There is no encoding {encoding!r} (--encoding).") from None
    except UnicodeDecodeError:
        likely = "utf-16-le" if b"\0" in content else "latin-1"
        raise ValueError(
            f"{path} is not text in {encoding or 'UTF-8'}; name its encoding, such as "
            f"encoding='{likely}' (--encoding {likely})."
        ) from None
    if "\0" in text:
        raise ValueError(
            f"{path} is not a text file: it holds zero bytes; if it is text in UTF-16, say "
            "encoding='utf-16-le' (--encoding utf-16-le)."
        )
    return text.removeprefix("\ufeff").translate(_SPACES)


def _split(path: Path, lines: Sequence[str], sep: str) -> list[Row]:
    """Number and cells of the lines that are not blank."""
    if sep == " ":
        lines = [re.sub(r"[ \t]+", " ", line.strip()) + "\n" for line in lines]
    reader = csv.reader(lines, delimiter=sep, skipinitialspace=sep != " ")
    try:
        table = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    return [row for row in table if any(row[1])]


def _agreement(table: Sequence[Row]) -> float:
    """Share of the rows that have the usual number of cells; 0 if that is 1."""
    widths = [len(row[1]) for row in table if not _is_comment(row)]
    usual = _usual(widths)
    return widths.count(usual) / len(widths) if usual > 1 else 0.0


def _is_comment(row: Row) -> bool:
    return row[1][0].startswith("#") and not is_missing(row[1][0])


def _usual(counts: Iterable[int]) -> int:
    found = Counter(counts)
    return max(found, key=lambda count: (found[count], count), default=0)


def _trimmed(cells: list[str]) -> list[str]:
    filled = [i for i, cell in enumerate(cells) if cell]
    return cells[: filled[-1] + 1] if filled else []


def _with_header(
    path: Path,
    table: list[Row],
    comments: list[Row],
    width: int,
    sep: str,
    has_header: bool | None,
) -> CsvTable:
    notices = []
    begin = next((i for i, (_, cells) in enumerate(table) if len(_trimmed(cells)) >= width), 0)
    is_data = _data_test([cells for _, cells in table[begin + 1 :][:_ENOUGH]])
    line, names = table[begin]
    if has_header is None:
        years = sum(map(is_year, names))  # of a table with a column for each
        has_header = not is_data(names) or (years > 1 and not _is_value(names[0]))
        before = table[begin - 1][1] if begin else []
        if not has_header and len(before) == width - 1 > 1 and not any(map(_is_value, before)):
            raise ValueError(
                f"{path} has {len(before)} cells in line {table[begin - 1][0]} and {width} in line "
                f"{line}: numbers with decimal commas need quotes or another separator; lines that "
                "are no header are left out by skiprows (--skip-rows)."
            )
    rest = table[begin + 1 :]
    if has_header and not rest:
        raise ValueError(f"{path} has a header and no rows.")
    if not has_header:
        rest = table[begin:]
        written = [cells for number, cells in comments if number < line and len(cells) == width]
        if written:  # a header in a comment
            names = [written[-1][0].lstrip("# "), *written[-1][1:]]
        else:
            width = max(len(_trimmed(cells)) for _, cells in rest[:_ENOUGH])
            names = [f"column {i + 1}" for i in range(width)]
            notices.append(f"No header; the columns are called {listed(names)}.")
    if begin:
        text = ", ".join(filter(None, table[0][1]))
        notices.append(f"{_lines(begin)} before the table left out ({shown(text)}).")
    first = next((i for i, (_, cells) in enumerate(rest) if any(map(_is_value, cells))), 0)
    if first:
        text = ", ".join(filter(None, rest[0][1]))
        notices.append(f"{_lines(first)} of text after the header left out ({shown(text)}).")
    names, rest = _rectangle(path, _trimmed(names), rest[first:])
    return CsvTable(names, rest, sep, notices)


def _data_test(others: list[list[str]]) -> Callable[[list[str]], bool]:
    """Whether a row is like the others: values wherever most of these have values."""
    columns = range(max(map(len, others), default=0))
    kinds = []
    for c in columns:
        known = [cells[c] for cells in others if c < len(cells) and not is_missing(cells[c])]
        kinds.append(bool(known) and 2 * sum(map(_is_value, known)) > len(known))
    if not any(kinds):
        return lambda row: all(_is_value(cell) for cell in row)
    return lambda row: all(
        _is_value(cell) or is_missing(cell) for cell, kind in zip(row, kinds, strict=False) if kind
    )


def _rectangle(path: Path, names: list[str], rows: list[Row]) -> tuple[list[str], list[Row]]:
    """Names that differ, and rows of as many cells, without columns that are empty."""
    for line, cells in rows:
        if len(_trimmed(cells)) > len(names):
            raise ValueError(
                f"{path}, line {line}: expected {len(names)} cells as in the header, got "
                f"{len(_trimmed(cells))}; begin lines that are notes with #."
            )
    rows = [(line, (cells + [""] * len(names))[: len(names)]) for line, cells in rows]
    used = [c for c, name in enumerate(names) if name or any(cells[c] for _, cells in rows)]
    seen: Counter[str] = Counter()
    different = []
    for name in (names[c] for c in used):
        different.append(f"{name}.{seen[name]}" if seen[name] else name)  # as pandas does
        seen[name] += 1
    return different, [(line, [cells[c] for c in used]) for line, cells in rows]


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
