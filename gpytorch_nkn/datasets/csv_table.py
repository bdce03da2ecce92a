"""Tables of strings from text files with preambles, units and notes (needs pandas)."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import counted, is_missing, once, quoted
from gpytorch_nkn.datasets.csv_columns import TIME_NAMES
from gpytorch_nkn.datasets.csv_times import kind, main_kind

__all__ = ["check_columns", "read_table"]

_SEPARATORS = ("\t", ";", "|", ",", r"\s+")  # spaces also occur within cells
_SAMPLE = 1000  # rows that determine the layout of a table
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}


def read_table(
    path: Path,
    where: Mapping[str, str],
    na_values: Sequence[str],
    sep: str | None,
    encoding: str | None,
    header: int | str | None,
    skiprows: int,
    notices: list[str],
) -> tuple[pd.DataFrame, str]:
    """Read the rows of one table; also return the separator.

    The index is the line numbers. The header is the longest line in the block above the first row
    of data. Lines without numbers are dropped. Cells without a value are empty strings.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no table with numbers.
    """
    text = _text(path, encoding, notices).translate(_SPACES)
    cells, sep = _split(path, text, {r"\t": "\t"}.get(sep or "", sep), skiprows)
    frame = _body(path, cells, *_header(path, cells, header), sep, notices)
    check_columns(frame, where=where)
    for name, value in where.items():
        if not (frame[name] == value).any():
            known = quoted(frame[name].unique())
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
        frame = frame[frame[name] == value]
    missing = frame.apply(lambda column: once(partial(is_missing, na_values=na_values), column))
    return frame.mask(missing, "").astype(object), sep  # strings of Python, also in pandas 3


def check_columns(frame: pd.DataFrame, **named: Iterable[str]) -> None:
    """Raise an error if a column that an option names does not exist."""
    for option, names in named.items():
        for name in filter(None, names):
            if name not in frame:
                raise ValueError(
                    f"There is no {option} column {name!r}; the columns are {quoted(frame)}."
                )


def _text(path: Path, encoding: str | None, notices: list[str]) -> str:
    """Read a text file, also from gzip or zip."""
    data = path.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        elif path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                data = archive.read(archive.namelist()[0])
    except (EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as text: {error}.") from None
    if data[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path} is no text but a workbook or an archive; save it as CSV first.")
    guess = "utf-16" if b"\0" in data[:4] else "utf-8-sig"
    for name in [encoding] if encoding else [guess, "cp1252", "latin-1"]:
        with suppress(UnicodeError, LookupError):
            text = data.decode(name)
            if name not in (encoding, guess):
                notices.append(
                    f"The text is read in {name}; another encoding is named by encoding "
                    "(--encoding)."
                )
            return text
    raise ValueError(f"{path} is not text in {encoding!r}; leave encoding (--encoding) out.")


def _split(path: Path, text: str, sep: str | None, skiprows: int) -> tuple[pd.DataFrame, str]:
    """Split lines into stripped cells; the index is the line numbers. Also return the separator."""
    lines = [line.strip(" ") for line in re.split("\r\n|\r|\n", text)]
    lines[:skiprows] = [""] * min(skiprows, len(lines))
    is_comment = [line[:1] == "#" and line[:4].lower() != "#n/a" for line in lines]
    used = [i for i, line in enumerate(lines) if line and not is_comment[i]][:_SAMPLE]
    if not used:
        raise ValueError(f"{path} is empty.")

    def count(line: str, sep: str) -> int:
        return line.count(sep) + 1 if len(sep) == 1 else len(re.split(sep, line))

    def usual(sep: str) -> tuple[int, int]:
        """Return the most frequent number of cells, after the number of lines that have it."""
        widths = [count(re.sub('"[^"]*"', "", lines[i]), sep) for i in used]
        width = max(set(widths), key=lambda width: (widths.count(width), width))
        return widths.count(width) if width > 1 else 0, width

    try:
        sep = sep or max(_SEPARATORS, key=lambda sep: usual(sep)[0] * (0.9 if len(sep) > 1 else 1))
        width = usual(sep)[1]
        first = next((i for i in used if count(lines[i], sep) == width), used[0])
        for i in np.flatnonzero(is_comment):  # the header may be a comment
            text = lines[i].lstrip("# ")
            is_header = i < first and count(text, sep) == width and re.search(r"\d", lines[first])
            lines[i] = text if is_header else ""
        cells = pd.read_csv(
            io.StringIO("\n".join(lines)),
            sep=sep,
            names=range(max(count(line, sep) for line in lines)),
            skipinitialspace=True,
            engine="python" if len(sep) > 1 and sep != r"\s+" else "c",
            dtype=object,  # with Python's regular expressions; pandas 3 would take RE2
            na_filter=False,
            skip_blank_lines=False,
        )
    except (pd.errors.ParserError, re.error) as error:
        raise ValueError(f"{path} cannot be split at {sep!r} (sep, --sep): {error}.") from None
    cells = cells.fillna("").map(str.strip)
    cells.index += 1
    return cells[(cells != "").any(axis=1)], sep


def _header(path: Path, rows: pd.DataFrame, header: int | str | None) -> tuple[int, pd.DataFrame]:
    """Return the index of the first row of data, and the row of column names, if there is one."""
    if isinstance(header, int):
        return header + 1, rows.iloc[header : header + 1]
    main = rows.apply(main_kind)
    data = main.index[main != "text"]
    if not len(data):
        raise ValueError(
            f"{path} has no column of numbers, got {quoted(rows.iloc[-1][rows.iloc[-1] != ''])}; "
            "if cells are separated by an unusual character, name it by sep (--sep)."
        )
    found = rows[data].head(_SAMPLE).map(kind)
    fits = found == main[data]
    filled = fits.sum(axis=1)
    is_data = (fits | found.isin(["missing", "text"])).all(axis=1) & (found[data[0]] != "text")
    begin = int((is_data & (2 * filled >= filled[filled > 0].median())).to_numpy().argmax())
    names = rows.iloc[:begin]
    gaps = names.index.to_series().diff() > 1
    names = names[gaps.cumsum() == gaps.sum()]  # the last block above the data
    names = names[(names.iloc[:, int(rows.shape[1] > 1) :] != "").any(axis=1)]
    names = names[2 * (names != "").sum(axis=1) >= len(data)]
    used = (rows.head(_SAMPLE)[is_data] != "").any()
    lengths = 2 * ((names != "") * (2 * used - 1)).sum(axis=1) + names[data[0]].str.fullmatch(
        TIME_NAMES
    )
    names = names.iloc[[lengths.argmax()]] if len(names) else names
    first = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna()
    is_wide = len(data) > 2 or 1 < len(data) < rows.shape[1]
    is_unnamed = (names[data] != "").to_numpy().sum() < max(len(data) - 1, 1)
    if is_wide and is_unnamed and len(first) > 1 and (first.diff().iloc[1:] == 1).all():
        return begin + 1, rows.iloc[begin : begin + 1]  # columns are called by years
    return begin, names.iloc[: None if header else 0]


def _body(
    path: Path, rows: pd.DataFrame, begin: int, names: pd.DataFrame, sep: str, notices: list[str]
) -> pd.DataFrame:
    """Return the rows of data with unique column names, without empty columns."""
    data = [column for column in rows if main_kind(rows[column]) != "text"]
    valued = np.full(len(rows), rows.shape[1] == 1)
    valued |= rows[data].apply(lambda column: column.str.contains(r"\d")).any(axis=1)
    valued[:begin] = False
    body, left = rows[valued], rows[~valued].drop(names.index)
    if body.empty:
        raise ValueError(f"{path} has a header and no rows.")
    if len(left):
        text = quoted([", ".join(filter(None, left.iloc[0]))[:80]])
        notices.append(f"{counted(len(left), 'line')} beside the data dropped ({text}).")
    used = (body != "").any()
    if names.empty:
        labels = [f"column {i + 1}" for i in range(used.sum())]
        notices.append(f"No header; the columns are called {quoted(labels)}.")
        return body.loc[:, used].set_axis(labels, axis=1)
    name = names.iloc[0]
    beyond = used[name[name != ""].index[-1] + 1 :]
    if beyond.sum() == 1 and sep != "," and (body[beyond.idxmax()] != "").all():
        name = name.shift(1, fill_value="")  # the first column has names of rows
    elif beyond.any():
        line = (body[beyond.index] != "").any(axis=1).idxmax()
        raise ValueError(
            f"{path}, line {line}: expected {(name != '').sum()} cells as in the header, got "
            f"{quoted(body.loc[line])}; numbers with decimal commas need quotes, or number all "
            "columns by header=None (--header none)."
        )
    name = name[used | (name != "")]
    again = name.groupby(name).cumcount()
    body = body[name.index].set_axis(name.where(again == 0, name + "." + again.map(str)), axis=1)
    is_index = body.shape[1] > 2 and body.columns[0].lower() in ("", "#", "unnamed: 0")
    steps = pd.to_numeric(body.iloc[:, 0], errors="coerce").diff().iloc[1:]
    return body.iloc[:, int(is_index and (steps == 1).all()) :]
