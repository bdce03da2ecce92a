"""Tables of strings from text files as they are found (needs pandas)."""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from pathlib import Path

import pandas as pd

from gpytorch_nkn.datasets.written_cells import counted, kind, listed

__all__ = ["main_kind", "read_table"]

_SEPARATORS = ("\t", ";", r"\|", ",", r"\s+")  # commas and spaces also occur within cells
_STRINGS = {"header": None, "dtype": str, "na_filter": False, "skip_blank_lines": False}
_SAMPLE = 1000  # cells that tell what a column holds
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

    Data begin where a line has values in the columns that mostly hold values. The header is the
    longest line in the block above; other lines without values are left out.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no table with numbers.
    """
    lines, notices = _lines(path, encoding)
    lines = [line.translate(_SPACES).strip(" ") for line in lines]
    lines[:skiprows] = [""] * min(skiprows, len(lines))
    if told := re.fullmatch("sep=(.)", lines[0]) if lines else None:  # as Excel writes it
        sep, lines[0] = sep or told[1], ""
    sep = sep and sep.replace(r"\t", "\t")
    sample = [re.sub('"[^"]*"', "", line) for line in lines if line and line[0] != "#"][:_SAMPLE]
    if not sample:
        raise ValueError(f"{path} is empty.")
    if sep is None:
        sep = max(_SEPARATORS, key=lambda one: _agreement([len(re.split(one, s)) for s in sample]))
    pattern = re.escape(sep) if len(sep) == 1 else sep
    try:
        cells = pd.read_csv(
            io.StringIO("\n".join(lines)),
            sep="|" if sep == r"\|" else sep,
            names=range(max(len(re.split(pattern, line)) for line in lines)),
            skipinitialspace=True,
            engine="python" if len(sep) > 1 and sep not in (r"\s+", r"\|") else "c",
            **_STRINGS,
        )
    except (pd.errors.ParserError, re.error) as error:
        raise ValueError(f"{path} cannot be split at {sep!r} (sep, --sep): {error}.") from None
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    cells.index += 1
    return _table(path, cells[(cells != "").any(axis=1)], header, sep, notices), sep, notices


def _lines(path: Path, encoding: str | None) -> tuple[list[str], list[str]]:
    """Lines of a file, which may be packed, and a notice on its encoding."""
    with path.open("rb") as file:
        start = file.read(4)
    if (start == b"PK\3\4" and path.suffix.lower() != ".zip") or start == b"\xd0\xcf\x11\xe0":
        raise ValueError(f"{path} is no text but a workbook or an archive; save it as CSV first.")
    guess = "utf-16-le" if start[1:2] == b"\0" else "utf-8-sig"
    for name in [encoding] if encoding else [guess, "utf-16", "cp1252", "latin-1"]:
        try:
            frame = pd.read_csv(
                path, sep="\x1f", names=["line"], quoting=csv.QUOTE_NONE, encoding=name, **_STRINGS
            )
            break
        except (UnicodeError, LookupError):
            continue
        except (EOFError, zlib.error, zipfile.BadZipFile, pd.errors.ParserError) as error:
            raise ValueError(f"{path} cannot be read as text: {error}.") from None
    else:
        raise ValueError(f"{path} is not text in {encoding!r}; leave encoding (--encoding) out.")
    is_told = encoding or name == guess or name == "utf-16"
    notice = f"The text is read in {name}; another encoding is named by encoding (--encoding)."
    return frame["line"].str.removeprefix("\ufeff").tolist(), [] if is_told else [notice]


def _agreement(widths: list[int]) -> float:
    """Share of the lines that have the usual number of cells; 0 if that is 1."""
    usual = max(set(widths), key=lambda width: (widths.count(width), width))
    return widths.count(usual) / len(widths) if usual > 1 else 0.0


def main_kind(cells: pd.Series) -> str:
    """Kind of more than half of the cells that are not missing, behind the first value."""
    found = cells.head(_SAMPLE).map(kind)
    counts = found[found.isin(["number", "date", "clock"]).cummax()].value_counts()
    counts = counts.drop("missing", errors="ignore")
    return str(counts.index[0]) if len(counts) and 2 * counts.iloc[0] > counts.sum() else "text"


def _table(
    path: Path, cells: pd.DataFrame, header: int | str | None, sep: str, notices: list[str]
) -> pd.DataFrame:
    comment = cells[0].str.match("#(?!n/a)", case=False)
    rows, main = cells[~comment], cells[~comment].apply(main_kind)
    data = main.index[main != "text"]
    if not len(data):
        raise ValueError(
            f"{path} has no column of numbers, got {listed(cells.iloc[-1][cells.iloc[-1] != ''])}; "
            "if cells are separated by an unusual character, name it by sep (--sep)."
        )
    kinds = rows[data].head(_SAMPLE).map(kind)
    valued = rows[data].apply(lambda column: column.str.contains(r"\d")).any(axis=1)
    valued |= rows.shape[1] == 1
    if isinstance(header, int):
        above, names, body = rows.iloc[:header], rows.iloc[header : header + 1], rows[header + 1 :]
    else:
        filled = (kinds == main[data]).sum(axis=1)
        begins = (2 * filled >= filled[filled > 0].median()) & (filled > 0)
        begins &= kinds[data[0]].isin([main[data[0]], "missing"])
        begins &= (kinds.isin(["missing", "text"]) | (kinds == main[data])).all(axis=1)
        begin = int(begins.to_numpy().argmax())
        names = _header(rows.iloc[:begin], cells[comment], rows.iloc[begin:])
        steps = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna().diff().iloc[1:]
        is_table = 1 < len(data) < rows.shape[1] or len(data) > 2
        if (
            is_table
            and (names[data] != "").to_numpy().sum() < max(len(data) - 1, 1)
            and len(steps)
            and (steps == 1).all()
        ):
            begin += 1  # columns are called by years
            names = rows.iloc[begin - 1 : begin]
        above, body = rows.iloc[:begin], rows.iloc[begin:]
        names = names.iloc[:0] if header is None else names
    above = above.drop(names.index, errors="ignore")
    for what, lines in (("above", above), ("in or below", body[~valued[body.index]])):
        if len(lines):
            text = listed([", ".join(filter(None, lines.iloc[0]))])
            notices.append(f"{counted(len(lines), 'line')} {what} the data left out ({text}).")
    body = body[valued[body.index]]
    if body.empty:
        raise ValueError(f"{path} has a header and no rows.")
    return _named(path, names, body, sep, notices)


def _header(above: pd.DataFrame, comments: pd.DataFrame, body: pd.DataFrame) -> pd.DataFrame:
    """The first of the longest lines in the last block above the data, or a comment as long."""
    width, gaps = int((body != "").any().sum()), above.index.to_series().diff() > 1
    block = above[gaps.cumsum() == gaps.sum()]
    block = block[(block.iloc[:, int(width > 1) :] != "").any(axis=1)]
    if len(block):
        return block.loc[[(block != "").sum(axis=1).idxmax()]]
    comments = comments[((comments != "").sum(axis=1) == width) & (comments.index < body.index[0])]
    return comments.iloc[-1:].apply(lambda column: column.str.lstrip("# "))


def _named(
    path: Path, header: pd.DataFrame, body: pd.DataFrame, sep: str, notices: list[str]
) -> pd.DataFrame:
    """The table with names that differ, without empty columns and numbers of rows."""
    used = (body != "").any()
    if header.empty:
        body = body.loc[:, used].set_axis([f"column {i + 1}" for i in range(used.sum())], axis=1)
        notices.append(f"No header; the columns are called {listed(body.columns)}.")
        return body
    names = header.iloc[0]
    beyond = used[names[names != ""].index[-1] + 1 :]
    if beyond.sum() == 1 and sep != "," and (body[beyond.idxmax()] != "").all():
        names = names.shift(1, fill_value="")  # the first column has names of rows
    elif beyond.any():
        line = (body[beyond.index] != "").any(axis=1).idxmax()
        raise ValueError(
            f"{path}, line {line}: expected {(names != '').sum()} cells as in the header, got "
            f"{listed(body.loc[line])}; numbers with decimal commas need quotes, or number all "
            "columns by header=None (--header none)."
        )
    names = names[used | (names != "")]
    again = names.groupby(names).cumcount()
    body = body[names.index].set_axis(names.where(again == 0, names + "." + again.map(str)), axis=1)
    first, counts = list(body.iloc[:, 0]), list(map(str, range(len(body) + 1)))
    is_index = body.shape[1] > 2 and body.columns[0].lower() in ("", "#", "unnamed: 0")
    return body.iloc[:, 1:] if is_index and first in (counts[:-1], counts[1:]) else body
