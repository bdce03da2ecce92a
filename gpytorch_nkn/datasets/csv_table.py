"""Tables of strings from text files with preambles, units and notes (needs pandas)."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import Reading, option, quoted
from gpytorch_nkn.datasets.csv_columns import ANY_YEAR, TIME_NAME, YEAR, selected
from gpytorch_nkn.datasets.csv_times import MISSING, MONTH, is_compact, kind, main_kind

__all__ = ["read_table"]

_SEPARATORS = "\t;|, "  # spaces also occur within cells
_SAMPLE = 1000  # rows that determine the layout of a table
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}
_SERIAL = 20_000, 60_000  # dates of Excel, days since 1899-12-30


def read_table(path: str | os.PathLike, reading: Reading) -> pd.DataFrame:
    """Read the rows of one table as strings, "" for missing values, indexed by line."""
    frame = selected(_named(Path(path), _rows(Path(path), reading), reading), reading)
    codes = pd.to_numeric(pd.Series([*reading.na_values], dtype=object), errors="coerce").dropna()

    def cleared(cells: pd.Series) -> pd.Series:
        missing = cells.str.fullmatch(MISSING) | cells.isin([*reading.na_values])
        cells = cells.replace({"(?i)^true$": "1", "(?i)^false$": "0"}, regex=True)
        return cells.mask(missing | pd.to_numeric(cells, errors="coerce").isin(codes), "")

    frame = frame.apply(cleared).astype(object)
    for name in frame.filter(regex="(?i)^(.* )?(dat(e|um)(.?time)?|timestamp)$"):
        days = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce")
        if (days.between(*_SERIAL) | (frame[name] == "")).all():
            dates = pd.to_datetime(days, unit="D", origin="1899-12-30").dt.round("s")
            frame[name] = dates.dt.strftime("%Y-%m-%d %H:%M:%S").astype(object).fillna("")
            reading.note(f"Numbers of {name!r} are read as Excel dates.")
    return frame


def _text(path: Path, reading: Reading) -> str:
    """Read a text file."""
    data, encoding = path.read_bytes(), reading.encoding
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}.") from None
    if data[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path} is not text but a workbook or an archive; save it as CSV first.")
    guess = {b"\0": "utf-16-be"}.get(data[:1], "utf-16" if b"\0" in data[:4] else "utf-8-sig")
    for name in [encoding] if encoding else [guess, "cp1252", "latin-1"]:
        with suppress(UnicodeError, LookupError):
            text = data.decode(name)
            other = f"The text is read as {name}; {option('encoding')} sets another."
            reading.note(other, name not in (encoding, guess))
            return text.translate(_SPACES)
    raise ValueError(f"{path} is not text in {encoding!r}; leave {option('encoding')} out.")


def _rows(path: Path, reading: Reading) -> pd.DataFrame:
    """Split a file into stripped cells, indexed by line; ``reading`` receives the separator."""
    lines = [line.rstrip(" ") for line in re.split("\r\n|\r|\n", _text(path, reading))]
    lines[: reading.skiprows] = [""] * min(reading.skiprows, len(lines))
    is_comment = [re.match("(?i) *(?:#(?!n/a)|%)", line) is not None for line in lines]
    used = [i for i, line in enumerate(lines) if line and not is_comment[i]]
    if not used:
        raise ValueError(f"{path} is empty.")

    def split(block: Iterable[str], sep: str) -> list[list[str]]:
        lines = [line.strip(" ") for line in block]
        return list(csv.reader(lines, delimiter=sep, skipinitialspace=True))

    def usual(sep: str) -> tuple[float, int]:
        """Return the fraction of rows with the most frequent number of cells, and this number."""
        widths = [len(row) for row in split([lines[i] for i in used[:_SAMPLE]], sep)]
        width = max(set(widths), key=lambda width: (widths.count(width) * width, width))
        share = widths.count(width) / len(widths)
        return share * (width > 1) * (0.9 if sep == " " else 1.0), width

    sep = reading.sep
    try:
        if sep and len(sep) > 1:
            lines, sep = [re.sub(sep, "\x1f", line) for line in lines], "\x1f"
        best = max(_SEPARATORS, key=lambda sep: usual(sep)[0])
        width = usual(sep := sep or best)[1]
        if width == 1 < usual(best)[1]:
            raise ValueError(f"{path} has no cells that are separated by {sep!r} (sep, --sep).")
        first = next((i for i in used if len(split(lines[i : i + 1], sep)[0]) == width), used[0])
        for i in np.flatnonzero(is_comment):  # the header may be a comment
            text = lines[i].lstrip("#% ")
            is_header = i < first and re.search(r"\d", lines[first])
            lines[i] = text if is_header and len(split([text], sep)[0]) == width else ""
        lines = _aligned(lines, width) if sep == " " else lines
        reader = csv.reader(lines, delimiter=sep, skipinitialspace=True)
        numbers, cells = zip(*((reader.line_num, row) for row in reader), strict=True)
        columns = zip_longest(*([c.strip(" '=\"") for c in row] for row in cells), fillvalue="")
        # Objects keep Python's regular expressions; strings of pandas 3 would take RE2.
        rows = pd.DataFrame(dict(enumerate(columns)), numbers, dtype=object)
    except (csv.Error, re.error) as error:
        raise ValueError(f"{path} cannot be split at {sep!r} (sep, --sep): {error}.") from None
    reading.sep = sep
    return rows[(rows != "").any(axis=1)]


def _aligned(lines: list[str], width: int) -> list[str]:
    """Write "" for empty cells in columns of fixed width, where lines with all cells align."""
    spans = [np.array([m.span() for m in re.finditer(r"\S+", line)] or [(0, 0)]) for line in lines]
    full = np.stack([span for span in spans if len(span) == width] or [np.zeros((width, 2))])
    begin, end = full[..., 0].min(0), full[..., 1].max(0)
    lines = [line.strip(" ") for line in lines]
    for i, span in enumerate(spans) if (begin[1:] > end[:-1]).all() else ():
        columns = end.searchsorted(span[:, 0], side="right")
        if lines[i] and len(span) < width > columns[-1] and (np.diff(columns) > 0).all():
            cells = dict(zip(columns, lines[i].split(), strict=True))
            lines[i] = " ".join(cells.get(column, '""') for column in range(width))
    return lines


def _named(path: Path, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return the lines with numbers, with unique column names, or numbers from 1."""
    for some in (rows[(rows != "").sum(axis=1) > 1], rows):  # first without notes
        main = some.agg(main_kind)
        main = main[main != "text"]
        if len(main):
            break
    data = main.index
    if not len(data):
        raise ValueError(
            f"{path} has no column of numbers, got {quoted(rows.iloc[-1][rows.iloc[-1] != ''])}; "
            f"if cells are separated by an unusual character, name it with {option('sep')}."
        )
    begin, end, names = _layout(rows, main, reading.header)
    valued = rows[data].apply(lambda column: column.str.contains(r"\d")).any(axis=1)
    valued |= rows.shape[1] == 1
    valued.iloc[:begin] = valued.iloc[end:] = False
    body, left = rows[valued], rows[~valued].drop(names.index)
    if body.empty:
        raise ValueError(f"{path} has a header and no rows.")
    if len(left):
        text = quoted([", ".join(filter(None, left.iloc[0]))[:80]])
        reading.note(f"Dropped lines outside the data: {len(left)} (such as {text}).")
    is_used = (body != "").any()
    if names.empty:
        body = body.loc[:, is_used]
        labels = _labels(body)
        reading.note(f"No header; the columns are called {quoted(labels)}.")
        return body.set_axis(labels, axis=1)
    later = left[(left.index > body.index[0]) & (left.index < body.index[-1])]
    is_header = (later[0] == names.iloc[0, 0]) & (later[0] != "")
    other = later[is_header & (later != names.iloc[0]).any(axis=1)]
    if len(other):
        line = int(other.index[0])
        raise ValueError(
            f"Line {line}: another table begins with {quoted(other.iloc[0])}. Read it alone by "
            f"{option('skiprows', line - 1)}, or save the table above as a file of its own."
        )
    name = names.iloc[0].str.strip(" ,")
    beyond = is_used[name[name != ""].index[-1] + 1 :]
    if beyond.sum() == 1 and reading.sep != "," and (body[beyond.idxmax()] != "").all():
        name = name.shift(1, fill_value="")  # the first column has names of rows
    elif any(main_kind(body[i]) != "text" for i in beyond[beyond].index):
        line = (body[beyond.index] != "").any(axis=1).idxmax()
        raise ValueError(
            f"{path}, line {line}: expected {(name != '').sum()} cells as in the header, got "
            f"{quoted(body.loc[line])}; numbers with decimal commas need quotes, or number all "
            f"columns by {option('header', None)}."
        )
    numbers = pd.to_numeric(body.iloc[:, 0], errors="coerce")
    is_index = body.shape[1] > 1 and name[0].lower() in ("", "#", "unnamed: 0")
    is_index &= numbers.iloc[0] in (0, 1) and bool((numbers.diff().iloc[1:] == 1).all())
    name = name[is_used | (name != "")].iloc[int(is_index) :]
    name = name.where(name != "", "column " + (name.index + 1).astype(str))
    again = name.groupby(name).cumcount()
    return body[name.index].set_axis(name.where(again == 0, name + "." + again.map(str)), axis=1)


def _layout(
    rows: pd.DataFrame, main: pd.Series, header: int | str | None
) -> tuple[int, int, pd.DataFrame]:
    """Find the first row of data, the row after the last one, and the header: the fullest above."""
    data = main.index
    kinds = rows[data].head(_SAMPLE).map(kind)
    filled = (kinds == main).sum(axis=1)
    is_data = ((kinds == main) | kinds.isin(["missing", "text"])).all(axis=1)
    is_month = rows[data[0]].str.contains(ANY_YEAR) & (main[data[0]] == "date")  # in any language
    is_data &= ((kinds[data[0]] != "text") | is_month) & (2 * filled >= filled[filled > 0].median())
    begin = int(is_data.to_numpy().argmax())
    lead, count = rows[data[0]].tail(_SAMPLE).map(kind), (rows[data] != "").sum(axis=1)
    is_month &= count >= count.median()
    is_note = ((lead == "text") & ~is_month) | (
        (lead != "missing") & (count[lead.index] < min(2, len(data)))
    )
    end = len(rows) - int((~is_note[::-1]).to_numpy().argmax())
    if header is None:
        return begin, end, rows[:0]
    if isinstance(header, int):
        return header + 1, end, rows.iloc[header : header + 1]
    names = rows.iloc[:begin]
    gaps = names.index.to_series().diff() > 1
    names = names[gaps.cumsum() == gaps.sum()]  # the last block above the data
    named = data[(rows.head(_SAMPLE)[is_data][data] != "").any()]
    named = named[(named > 0) | (len(named) == 1)]  # the name of the first column may be missing
    count = names[named].replace("", None).nunique(axis=1)
    timed = [i for i in data if main[i] in ("date", "clock")] or data[:1]
    fill = 2 * (count + (names[named].map(kind) == "text").sum(axis=1))
    fill += names[timed].apply(lambda cells: cells.str.fullmatch(TIME_NAME)).any(axis=1)
    names = names[(fill == fill.max()) & (2 * count >= len(named))].iloc[:1]
    first = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna()
    if names.empty and kind(rows.iat[begin, 0]) in ("text", "missing") and len(first) > 1:
        is_years = int((first.diff().iloc[1:].abs() == 1).all())  # names of columns
        begin, names = begin + is_years, rows.iloc[begin : begin + is_years]
    return begin, end, names


def _labels(body: pd.DataFrame) -> list[str]:
    """Return names for columns without a header: months of a year, or steps of a day."""
    labels = [f"column {i + 1}" for i in range(body.shape[1])]
    kinds = [*body.apply(main_kind), "text"]
    years = body.iloc[:, 0].str.fullmatch(YEAR).all()
    dates = [i for i, name in enumerate(body) if kinds[i] == "date" or is_compact(body[name])]
    first = 1 if years else dates[0] + 1 if dates else 0
    count = kinds.index("text", first) - first
    if first and count in (12, 24, 48, 96, 288):
        clocks = [f"{m // 60:02}:{m % 60:02}" for m in range(0, 1440, 1440 // count)]
        labels[first : first + count] = MONTH.split("|") if count == 12 else clocks
    return labels
