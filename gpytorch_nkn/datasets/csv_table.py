"""Tables of strings from text files as they are found (needs pandas)."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import counted, quoted
from gpytorch_nkn.datasets.csv_times import kinds, main_kind

__all__ = ["read_table"]

_SEPARATORS = ("\t", ";", r"\|", ",", r"\s+")  # commas and spaces also occur within cells
_SAMPLE = 1000  # rows that tell what a table looks like
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}


def read_table(
    path: Path,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    header: int | str | None = "infer",
    skiprows: int = 0,
) -> tuple[pd.DataFrame, str, list[str]]:
    """Stripped cells by names of columns and numbers of lines, the separator, and notices.

    The header is the longest line in the block above the first row of data. Lines without numbers
    are dropped.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no table with numbers.
    """
    lines, notices = _lines(path, encoding)
    lines = [line.translate(_SPACES).strip(" ") for line in lines]
    lines[:skiprows] = [""] * min(skiprows, len(lines))
    if told := re.fullmatch("sep=(.)", lines[0]) if lines else None:  # as Excel writes it
        sep, lines[0] = sep or told[1], ""
    is_comment = [bool(re.match("#(?!n/a)", line, re.I)) for line in lines]
    plain = [re.sub('"[^"]*"', "", line) for line in lines]
    sample = [line for line, is_so in zip(plain, is_comment, strict=True) if line and not is_so]
    sample = sample[:_SAMPLE]
    if not sample:
        raise ValueError(f"{path} is empty.")

    def usual(pattern: str) -> tuple[int, int]:
        """Number of lines with the usual number of cells, and this number."""
        widths = [len(re.split(pattern, line)) for line in sample]
        width = max(set(widths), key=lambda width: (widths.count(width), width))
        return widths.count(width) if width > 1 else 0, width

    if sep is None:
        sep = max(_SEPARATORS, key=lambda pattern: usual(pattern)[0])
    sep = {r"\t": "\t", r"\|": "|"}.get(sep, sep)
    pattern = re.escape(sep) if len(sep) == 1 else sep
    try:
        first, width = plain.index(sample[0]), usual(pattern)[1]
        for i in np.flatnonzero(is_comment):  # the header may be a comment
            text = lines[i].lstrip("# ")
            lines[i] = text if i < first and len(re.split(pattern, text)) == width else ""
        cells = pd.read_csv(
            io.StringIO("\n".join(lines)),
            sep=sep,
            names=range(max(len(re.split(pattern, line)) for line in lines)),
            skipinitialspace=True,
            engine="python" if len(sep) > 1 and sep != r"\s+" else "c",
            dtype=object,  # with Python's regular expressions; pandas 3 would take RE2
            na_filter=False,
            skip_blank_lines=False,
        )
    except (pd.errors.ParserError, re.error) as error:
        raise ValueError(f"{path} cannot be split at {sep!r} (sep, --sep): {error}.") from None
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    cells.index += 1
    return _table(path, cells[(cells != "").any(axis=1)], header, sep, notices), sep, notices


def _lines(path: Path, encoding: str | None) -> tuple[list[str], list[str]]:
    """Lines of a file, which may be packed by gzip or zip, and a notice on its encoding."""
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
            lines = re.split("\r\n|\r|\n", data.decode(name))
            told = (
                f"The text is read in {name}; another encoding is named by encoding (--encoding)."
            )
            return lines, [told] * (encoding is None and name != guess)
    raise ValueError(f"{path} is not text in {encoding!r}; leave encoding (--encoding) out.")


def _table(
    path: Path, rows: pd.DataFrame, header: int | str | None, sep: str, notices: list[str]
) -> pd.DataFrame:
    """The rows of data with different names of columns, without empty columns and row numbers."""
    main = rows.apply(main_kind)
    data = main.index[main != "text"]
    if not len(data):
        raise ValueError(
            f"{path} has no column of numbers, got {quoted(rows.iloc[-1][rows.iloc[-1] != ''])}; "
            "if cells are separated by an unusual character, name it by sep (--sep)."
        )
    if isinstance(header, int):
        begin, names = header + 1, rows.iloc[header : header + 1]
    else:
        found = rows[data].head(_SAMPLE).apply(kinds)
        filled = (found == main[data]).sum(axis=1)
        begins = (2 * filled >= filled[filled > 0].median()) & (filled > 0)
        begins &= found[data[0]].isin([main[data[0]], "missing"])
        begins &= (found.isin(["missing", "text"]) | (found == main[data])).all(axis=1)
        begin = int(begins.to_numpy().argmax())
        names = rows.iloc[:begin]
        gaps = names.index.to_series().diff() > 1
        names = names[gaps.cumsum() == gaps.sum()]  # the last block above the data
        names = names[(names.iloc[:, int(rows.shape[1] > 1) :] != "").any(axis=1)]
        names = names.iloc[[(names != "").sum(axis=1).argmax()]] if len(names) else names
        first = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna()
        is_wide = len(data) > 2 or 1 < len(data) < rows.shape[1]
        is_unnamed = (names[data] != "").to_numpy().sum() < max(len(data) - 1, 1)
        if is_wide and is_unnamed and len(first) > 1 and (first.diff().iloc[1:] == 1).all():
            begin, names = begin + 1, rows.iloc[begin : begin + 1]  # columns are called by years
        names = names.iloc[:0] if header is None else names
    valued = rows[data].apply(lambda column: column.str.contains(r"\d")).any(axis=1)
    valued |= rows.shape[1] == 1
    body = rows.iloc[begin:][valued.iloc[begin:]]
    if body.empty:
        raise ValueError(f"{path} has a header and no rows.")
    if len(left := rows.drop(names.index).drop(body.index)):
        text = quoted([", ".join(filter(None, left.iloc[0]))])
        notices.append(f"{counted(len(left), 'line')} beside the data dropped ({text}).")
    used = (body != "").any()
    if names.empty:
        body = body.loc[:, used].set_axis([f"column {i + 1}" for i in range(used.sum())], axis=1)
        notices.append(f"No header; the columns are called {quoted(body.columns)}.")
        return body
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
    counts = list(map(str, range(len(body) + 1)))
    is_index = body.shape[1] > 2 and body.columns[0].lower() in ("", "#", "unnamed: 0")
    is_index = is_index and list(body.iloc[:, 0]) in (counts[:-1], counts[1:])
    return body.iloc[:, int(is_index) :]
