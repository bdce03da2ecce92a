"""Tables of strings from text files with preambles, units and notes (needs pandas)."""

from __future__ import annotations

import csv
import gzip
import re
import shlex
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import (
    INTERVAL_END,
    MISSING,
    MONTH,
    is_compact,
    kind,
    main_kind,
    quoted,
)

__all__ = [
    "ROWS",
    "check_columns",
    "check_one_series",
    "choose",
    "count_rows",
    "joined",
    "melted",
    "read_table",
    "rows_with_time",
    "with_future",
]

ROWS = "rows"  # the time column of row numbers

_SEPARATORS = "\t;|, "  # spaces also occur within cells
_SAMPLE = 1000  # rows that determine the layout of a table
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}
_SERIAL = 20_000, 60_000  # dates of Excel, days since 1899-12-30
_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_MONTH_NAME = rf"(?i:(?:{MONTH})[a-z]*\.?)"
_YEAR = r"(?:1[5-9]|2[01])\d\d"
_STEPS = {12, 24, 48, 96, 288}  # numbers of months in a year and of equal steps in a day
_NUMBERED = r"(?:\d\d?[ .-]+)?"  # before names of months: 01-Jan
_PARTS = {  # of times: names of columns, mark before numbers, smallest and largest number
    "year": ("(?:epi|iso|mmwr)?year|yr|yy(?:yy)?|periods?", None, 1500, 2199),
    "month": ("mo(?:n|nth)?|mm", "M", 1, 12),
    "quarter": ("quarter|qtr", "Q", 1, 4),
    "week": ("(?:epi|iso|mmwr)?week|wk", "W", 1, 53),
    "day": ("da?y|dd", None, 1, 31),
    "doy": ("doy|yday|day", None, 1, 366),
    "hour": ("hours?|hr|hh(?:mm)?|hrmn|time|he|periods?", None, 0, 2400),
    "minute": ("minutes?|min|mm", None, 0, 59),
}
_CHAINS = [  # parts that make up a time, the preferred first
    (*days, *hours)
    for days in (("date",), ("year", "month", "day"), ("year", "doy"))
    for hours in ((), ("clock",), ("hour",), ("hour", "minute"))
] + [("year", "month"), ("year", "quarter"), ("year", "week")]
_INITIALS = "[JFMASOND]{2,3}"  # of two or three months: DJ, DJF
_WIDE = (  # parts of times, names of columns that become rows, and how many there must be
    ("month", _MONTH_NAME, {12}),
    ("month", _INITIALS, {12}),
    ("year", rf"{_YEAR}(?: \[YR\d{{4}}\])?", range(2, 700)),
    ("quarter", "(?i:q(?:tr)? ?[1-4]|[1-4]q)", {4}),
    ("hour", r"(?i:h|he|hour|tp)?[ _]?\d\d?|\d\d?:\d\d(?::00|-\d\d:\d\d)*", {*_STEPS, 23, 25}),
    ("date", "", range(2, 10**6)),
    ("step", r"[A-Za-z]_?\d+", range(30, 10**6)),
)
_NO_TIME = "(?i:total|mean|average|annual)?"  # cells beside sums of a year, and empty cells
_TIME_NAMES = (
    "(?i:t|x|times?|timestamp|when|ds|date|datetime|step|period|index|seconds?|year|month|day|hour"
    "|yyyy|unix)"
)


def read_table(
    path: Path,
    notices: list[str],
    where: Mapping[str, str],
    na_values: Sequence[str],
    header: int | str | None,
    **layout: Any,
) -> tuple[pd.DataFrame, str]:
    """Read the rows of one table as strings, "" for missing values; also return the separator.

    The index is the line numbers.
    """
    rows, sep = _rows(path, notices, **layout)
    frame = _named(path, rows, header, sep, notices)
    check_columns(frame, where=where)
    for name, value in where.items():
        known, frame = quoted(frame[name].unique()), frame[frame[name] == value]
        if frame.empty:
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
    codes = pd.to_numeric(pd.Series([*na_values], dtype=object), errors="coerce").dropna()

    def cleared(cells: pd.Series) -> pd.Series:
        missing = cells.str.fullmatch(MISSING) | cells.isin([*na_values])
        if cells[~missing].str.fullmatch("(?i:true|false)").all():
            cells = cells.replace({"(?i:true)": "1", "(?i:false)": "0"}, regex=True)
        return cells.mask(missing | pd.to_numeric(cells, errors="coerce").isin(codes), "")

    frame = frame.apply(cleared).astype(object)
    for name in frame.columns[frame.columns.str.fullmatch("(?i)date|datum|timestamp|date.?time")]:
        days = pd.to_numeric(frame[name].mask(frame[name] == "", _SERIAL[0]), errors="coerce")
        if days.between(*_SERIAL).all():
            dates = pd.Timestamp("1899-12-30") + pd.to_timedelta(days, unit="D")
            texts = dates.dt.round("s").dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
            frame[name] = texts.where(frame[name] != "", "")
            notices.append(f"Numbers of {name!r} are read as dates of Excel.")
    return frame, sep


def check_columns(frame: pd.DataFrame, **named: Iterable[str]) -> None:
    """Raise an error if a column that an option names does not exist."""
    for option, names in named.items():
        for name in {*names} - {"", *frame}:
            columns = quoted(frame)
            raise ValueError(f"There is no {option} column {name!r}; the columns are {columns}.")


def _text(path: Path, encoding: str | None, notices: list[str]) -> str:
    """Read a text file."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}.") from None
    if data[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise ValueError(f"{path} is no text but a workbook or an archive; save it as CSV first.")
    guess = "utf-16" if b"\0" in data[:4] else "utf-8-sig"
    for name in [encoding] if encoding else [guess, "cp1252", "latin-1"]:
        with suppress(UnicodeError, LookupError):
            text = data.decode(name)
            if name not in (encoding, guess):
                notices.append(f"The text is read as {name}; encoding (--encoding) sets another.")
            return text.translate(_SPACES)
    raise ValueError(f"{path} is not text in {encoding!r}; leave encoding (--encoding) out.")


def _rows(
    path: Path, notices: list[str], sep: str | None, encoding: str | None, skiprows: int
) -> tuple[pd.DataFrame, str]:
    """Split a text into stripped cells, with line numbers; also return the separator."""
    lines = [line.strip(" ") for line in re.split("\r\n|\r|\n", _text(path, encoding, notices))]
    lines[:skiprows] = [""] * min(skiprows, len(lines))
    is_comment = [line[:1] in ("#", "%") and line[:4].lower() != "#n/a" for line in lines]
    used = [i for i, line in enumerate(lines) if line and not is_comment[i]]
    if not used:
        raise ValueError(f"{path} is empty.")

    def split(some: Iterable[str], sep: str) -> list[list[str]]:
        return list(csv.reader(some, delimiter=sep, skipinitialspace=True))

    def usual(sep: str) -> tuple[float, int]:
        """Return the fraction of rows with the most frequent number of cells, and this number."""
        widths = [len(row) for row in split([lines[i] for i in used[:_SAMPLE]], sep)]
        width = max(set(widths), key=lambda width: (widths.count(width), width))
        share = widths.count(width) / len(widths)
        return share * (width > 1) * (0.9 if sep == " " else 1.0), width

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
        reader = csv.reader(lines, delimiter=sep, skipinitialspace=True)
        numbers, cells = zip(*((reader.line_num, row) for row in reader), strict=True)
        rows = pd.DataFrame([*cells], numbers, dtype=object).fillna("").map(lambda c: c.strip(" '"))
        rows = rows.astype(object)  # for Python's regular expressions; pandas 3 would take RE2
    except (csv.Error, re.error) as error:
        raise ValueError(f"{path} cannot be split at {sep!r} (sep, --sep): {error}.") from None
    return rows[(rows != "").any(axis=1)], sep


def _named(
    path: Path, rows: pd.DataFrame, header: int | str | None, sep: str, notices: list[str]
) -> pd.DataFrame:
    """Return the rows of data with unique column names, without empty columns.

    The header is the fullest line in the block above the first row of data. Lines without numbers
    are dropped.
    """
    main = rows.apply(main_kind)
    data = main.index[main != "text"]
    if not len(data):
        raise ValueError(
            f"{path} has no column of numbers, got {quoted(rows.iloc[-1][rows.iloc[-1] != ''])}; "
            "if cells are separated by an unusual character, name it by sep (--sep)."
        )
    found = rows[data].head(_SAMPLE).map(kind)
    filled = (found == main[data]).sum(axis=1)
    is_data = ((found == main[data]) | found.isin(["missing", "text"])).all(axis=1)
    is_data &= (found[data[0]] != "text") & (2 * filled >= filled[filled > 0].median())
    begin = int(is_data.to_numpy().argmax())
    lead, count = rows[data[0]].tail(_SAMPLE).map(kind), (rows[data] != "").sum(axis=1)
    is_note = (lead == "text") | ((lead != "missing") & (count[lead.index] < min(2, len(data))))
    end = len(rows) - int((~is_note[::-1]).to_numpy().argmax())
    names = rows.iloc[:begin]
    gaps = names.index.to_series().diff() > 1
    names = names[gaps.cumsum() == gaps.sum()]  # the last block above the data
    named = data[(rows.head(_SAMPLE)[is_data][data] != "").any()]
    named = named[(named > 0) | (len(named) == 1)]  # the name of the first column may be missing
    count = names[named].replace("", None).nunique(axis=1)
    timed = [i for i in data if main[i] in ("date", "clock")] or data[:1]
    fill = 2 * (count + (names[named].map(kind) == "text").sum(axis=1))
    fill += names[timed].apply(lambda cells: cells.str.fullmatch(_TIME_NAMES)).any(axis=1)
    is_header = (fill == fill.max()) & (2 * count >= len(named)) & (header is not None)
    names = names[is_header].iloc[:1]
    first = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna()
    if header is not None and names.empty and rows.shape[1] > 2 and len(first) > 1:
        is_years = int((first.diff().iloc[1:] == 1).all())  # names of columns
        begin, names = begin + is_years, rows.iloc[begin : begin + is_years]
    if isinstance(header, int):
        begin, names = header + 1, rows.iloc[header : header + 1]

    valued = rows[data].apply(lambda column: column.str.contains(r"\d")).any(axis=1)
    valued |= rows.shape[1] == 1
    valued.iloc[:begin] = valued.iloc[end:] = False
    body, left = rows[valued], rows[~valued].drop(names.index)
    if body.empty:
        raise ValueError(f"{path} has a header and no rows.")
    if len(left):
        text = quoted([", ".join(filter(None, left.iloc[0]))[:80]])
        notices.append(f"Lines beside the data that are dropped: {len(left)} (such as {text}).")
    is_used = (body != "").any()
    if names.empty:
        body = body.loc[:, is_used]
        labels = _labels(body)
        notices.append(f"No header; the columns are called {quoted(labels)}.")
        return body.set_axis(labels, axis=1)
    name = names.iloc[0]
    beyond = is_used[name[name != ""].index[-1] + 1 :]
    if beyond.sum() == 1 and sep != "," and (body[beyond.idxmax()] != "").all():
        name = name.shift(1, fill_value="")  # the first column has names of rows
    elif any(main_kind(body[i]) != "text" for i in beyond[beyond].index):
        line = (body[beyond.index] != "").any(axis=1).idxmax()
        raise ValueError(
            f"{path}, line {line}: expected {(name != '').sum()} cells as in the header, got "
            f"{quoted(body.loc[line])}; numbers with decimal commas need quotes, or number all "
            "columns by header=None (--header none)."
        )
    name = name[is_used | (name != "")]
    again = name.groupby(name).cumcount()
    body = body[name.index].set_axis(name.where(again == 0, name + "." + again.map(str)), axis=1)
    is_index = body.shape[1] > 1 and body.columns[0].lower() in ("", "#", "unnamed: 0")
    numbers = pd.to_numeric(body.iloc[:, 0], errors="coerce")
    is_index &= numbers.iloc[0] in (0, 1) and bool((numbers.diff().iloc[1:] == 1).all())
    return body.iloc[:, int(is_index) :]


def _labels(body: pd.DataFrame) -> list[str]:
    """Return names for the columns of a file without a header.

    The first columns are the year, month, day and hour if their values fit; a further part is
    added only while the times so far repeat. 12 numbers after the year are months; 24, 48, 96 or
    288 numbers after a date are the steps of the day.
    """
    labels = [f"column {i + 1}" for i in range(body.shape[1])]
    bounds = {"year": (1500, 2199), "month": (1, 12), "day": (1, 31), "hour": (0, 24)}
    for i, (part, ends) in enumerate([*bounds.items()][: len(labels)]):
        n = pd.to_numeric(body.iloc[:, i], errors="coerce")
        is_new = i > 0 and not body.iloc[:, :i].duplicated().any()
        if is_new or not (n.between(*ends) & (n % 1 == 0)).all():
            break
        labels[i] = part
    is_time = [
        label == "year" or _part(body[i]) == "date" for i, label in zip(body, labels, strict=True)
    ]
    first = is_time.index(True) + 1 if True in is_time else 0
    count = [*body.iloc[:, first:].apply(main_kind), "text"].index("text")
    if first and count in _STEPS and "month" not in labels:
        clocks = [f"{m // 60:02}:{m % 60:02}" for m in range(0, 1440, 1440 // count)]
        labels[first : first + count] = MONTH.split("|") if count == 12 else clocks
    return labels


def melted(
    frame: pd.DataFrame, named: Collection[str], notices: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Turn columns of months, years, hours, ... into rows, except columns that an option names.

    Also returns the part of the time that the columns had, if there are any.
    """
    kinds = frame.apply(main_kind)
    names = pd.Series([c for c in frame if c not in named and kinds[c] == "number"], dtype=object)
    for part, pattern, counts in _WIDE:
        found = [*names[names.str.fullmatch(pattern) if pattern else names.map(kind) == "date"]]
        is_dated = part in ("year", "step") and "date" in [*kinds]
        if len(found) in counts and not is_dated:
            others = frame.columns.drop(found)
            notices.append(f"Columns of {part}s are turned into rows.")
            label = f"value by {part}"
            frame = frame.melt(others, found, part, label, ignore_index=False)
            if pattern == _INITIALS:  # the order gives the month
                frame[part] = frame[part].map({name: f"{i + 1}" for i, name in enumerate(found)})
            frame[part] = frame[part].str.replace(r" \[.*|^[a-zA-Z]_?(?=\d+$)", "", regex=True)
            return frame.sort_index(kind="stable"), [part]
    return frame, []


def _part(cells: pd.Series) -> str:
    """Return the part of a time in a column, "" for none."""
    cells = cells[~cells.str.fullmatch(_NO_TIME)]
    main, some = main_kind(cells), cells.drop_duplicates().head(1000)
    if main in ("date", "clock") or some.empty:
        return main.replace("text", "")
    if some.str.fullmatch(_NUMBERED + _MONTH_NAME).all():
        return "month"
    words = re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    parts = some.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0| ?- ?\d\d?)?$")
    n, mark = parts[1].astype(float), str(parts.iloc[0, 0]).upper()
    for part, (names, own, low, high) in _PARTS.items():
        is_named = mark == own or re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words or "year")
        if is_named and n.between(low, high).all():
            return part
    is_time = re.search("dat|time|day|week|month|period", words) or some.iloc[0][2:3] == "."
    is_time = is_time or pd.to_numeric(some, errors="coerce").is_monotonic_increasing
    return "date" if n.isna().any() and is_time and is_compact(some) else ""


def choose(
    frame: pd.DataFrame, times: Sequence[str], target: str | None, covariates: Sequence[str]
) -> tuple[dict[str, str], str, list[str]]:
    """Find the columns of the parts of the time, the target, and other columns of numbers.

    The time is the first of _CHAINS with few repeated times, else a column of numbers that has a
    usual name, equal steps or rising values. The target is the only other column of numbers.
    """
    part = {name: _part(frame[name]) for name in frame}
    timely = {n for n in frame if part[n] or re.fullmatch(_TIME_NAMES + "|(?i:yr)", n)}
    numbers = [name for name in frame if name != target and main_kind(frame[name]) == "number"]
    found: dict[str, str] = {}
    for name in times or frame.columns.drop([target] if target else []):
        first = found.setdefault(part[name], name)
        if part[name] == "date" and frame[name].nunique() > 2 * frame[first].nunique():
            found["date"] = name
    excess = {
        chain: max(frame.duplicated([found[p] for p in chain]).mean(), _REPEATED)
        for chain in _CHAINS
        if {*chain} <= {*found} and len(frame[[found[p] for p in chain]].drop_duplicates()) > 1
    }
    if times and 1 < len(times) == len(found) and "" not in found:
        found = {p: found[p] for p in ("date", *_PARTS, "clock") if p in found}
    elif times:
        found = {str(i): name for i, name in enumerate(times)}
    elif excess:
        found = {p: found[p] for p in min(excess, key=excess.__getitem__)}
    else:
        ranks = {}
        for name in numbers:  # 2 for equal steps, 1 for other rising or falling values
            values = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce").dropna()
            steps, is_full = values.diff().iloc[1:], 2 * len(values) > len(frame)
            rises = is_full and bool((steps > 0).all() or (steps < 0).all())
            ranks[name] = (name in timely, rises * (1 + (steps.nunique() <= 1)))
        if len(ranks) + (target is not None) < 2:  # a column of text, which no form fits
            names = frame.columns.drop([target] if target else [])
            ranks = {n: (bool(re.fullmatch(_TIME_NAMES, n)), 2 - (n in ranks)) for n in names}
        best = max(ranks, key=ranks.__getitem__)  # the first of these
        if not any(ranks[best]):
            raise ValueError(
                f"Which column holds the time? No dates, and none of {quoted(ranks)} rises from "
                "row to row: name it by time (--time), or set time='rows' (--time rows)."
            )
        found = {"0": best}
    others = [name for name in frame if name not in {*found.values(), *covariates, target}]
    if target is None and len(others) > 1:
        others = [name for name in others if name in numbers]
        others = [name for name in others if frame[name].nunique() > 1] or others
        others = [name for name in others if name not in timely] or others
    if target is None and len(others) != 1:
        names = quoted(others or frame)
        raise ValueError(f"The target may be any of {names}: name it by target (--target).")
    target = target or others[0]
    rest = [name for name in numbers if name not in {*found.values(), target, *covariates, *timely}]
    return found, target, rest


def count_rows(
    frame: pd.DataFrame, read_times: Callable[[pd.Series, list[str]], Any], notices: list[str]
) -> None:
    """Add a column of row numbers, which count from the last row if dates fall."""
    dates = [name for name in frame if main_kind(frame[name]) == "date"][:1]
    falls = False
    with suppress(ValueError):  # without readable dates
        falls = any((np.diff(read_times(frame[d], [])[0]).astype(int) <= 0).all() for d in dates)
    numbers = np.arange(len(frame)).astype(str).astype(object)
    frame[ROWS] = numbers[::-1] if falls else numbers
    first = f"last row, as {quoted(dates)} falls" if falls else "first row"
    notices.append(f"Rows are counted from the {first}.")


def with_future(
    frame: pd.DataFrame, future: pd.DataFrame, needed: Sequence[str], where: Mapping[str, str]
) -> pd.DataFrame:
    """Append the future rows of a second file, which must have the ``needed`` columns."""
    check_columns(future, future=needed)
    for name in where.keys() & set(future):
        future = future[future[name] == where[name]]
    return pd.concat([frame, future.reindex(columns=frame.columns, fill_value="")])


def rows_with_time(
    frame: pd.DataFrame,
    times: Sequence[str],
    target: str,
    covariates: Sequence[str],
    date_format: str | None,
    notices: list[str],
) -> pd.DataFrame:
    """Return the rows with a time, and with a target or all covariates."""
    if len(times) > 1 and (frame[times[0]] == "").any():  # merged cells
        filled = frame[times[0]].replace("", None).ffill().fillna("")
        frame = frame.assign(**{times[0]: filled})
        notices.append(f"Empty cells of {times[0]!r} take the value above.")
    timed = ~frame[[*times]].apply(lambda cells: cells.str.fullmatch(_NO_TIME)).any(axis=1)
    if date_format is None:  # words below the data
        is_time = frame[times[0]].iloc[-100:].map(kind) != "text"
        timed.iloc[len(frame) - int(is_time[::-1].argmax()) :] = False
    known = frame[target] != ""
    if len(lost := frame[~timed & known]):
        text = quoted([", ".join(filter(None, lost.iloc[0]))])
        notices.append(f"Rows without a time that are dropped: {len(lost)} (such as {text}).")
    is_future = bool(covariates) and (frame[[*covariates]] != "").all(axis=1)
    return frame[timed & (known | is_future)]


def joined(frame: pd.DataFrame, columns: Mapping[str, str], notices: list[str]) -> pd.Series:
    """Join columns of years, months, hours, ... into one column of times."""
    if len(columns) == 1:
        return frame[next(iter(columns.values()))]
    text = pd.Series("", frame.index, dtype=object)
    for part, name in columns.items():
        cells = frame[name].str.replace(r"\.0$|" + INTERVAL_END, "", regex=True)
        digits = cells.str.extract(r"(\d+)")[0]
        is_number = part == "hour" and not cells.str.contains("[.:]").any()
        if part == "clock" and cells.str.fullmatch(r"\d\d?:00(?::00)?").all():  # 01:00 to 24:00
            is_number = {*digits.astype(int)} == {*range(1, 25)}
        if is_number and digits.notna().all():
            minutes = _minutes(digits.astype(int), text, name, notices)
            cells = minutes.map({m: f"{m // 60}:{m % 60:02}" for m in minutes.unique()})
        if part == "date":  # midnight, beside a column of clocks
            cells = cells.str.replace(r"[ T]0?0:00(?::00)?(?:\.0*)?$", "", regex=True)
        if part == "month" and cells.str.contains("[A-Za-z]{3}").all():
            cells = cells.str.replace("^" + _NUMBERED, "", regex=True)
        padded = {"month": cells.str.zfill(2), "doy": digits.str.zfill(3)}  # 2001 1 is a quarter
        cells = (padded | {"quarter": "Q" + digits}).get(part, cells)
        if part == "minute":
            text = text.str.replace(r":\d\d$", ":", regex=True) + digits.str.zfill(2)
        else:
            text += " " + cells
    return text.str.strip().rename(" ".join(columns.values()))


def _minutes(n: pd.Series, days: pd.Series, name: str, notices: list[str]) -> pd.Series:
    """Convert hours (0 to 23 or 1 to 24), periods (1 to 48) or 1330 to minutes from midnight."""
    if n.max() > 100:
        return n // 100 * 60 + n % 100
    per_day = next((p for p in (24, 48) if n.max() <= p + p // 24), 96)
    first = int(n.min() > 0 and (n.max() >= 24 or per_day > 24))
    if first:
        notices.append(f"{name!r} counts from 1, {1440 // per_day} minutes each; times are starts.")
    if n.groupby(days).max().iloc[:-1].nunique() > 1:
        text = "the times count from midnight, also on days of 23 or 25 hours."
        notices.append(f"Days end at different numbers of {name!r}; {text}")
    return (n - first) * (1440 // per_day)


def check_one_series(frame: pd.DataFrame, x: np.ndarray, times: Sequence[str], target: str) -> None:
    """Raise an error if many rows are at the time of another row, as in files of several series."""
    count = pd.Series(x).value_counts()
    ids = [c for c in frame if c not in (*times, target) and 1 < frame[c].nunique() <= len(x) / 3]
    if len(x) - len(count) < (_REPEATED if ids else 0.5) * len(x):
        return
    again, where = " ".join(f"--time {shlex.quote(name)}" for name in times), ""
    if ids:
        name = min(ids, key=lambda c: frame.duplicated([*times, c]).sum())
        value = frame[name].iloc[0]
        where = f"where={ {name: value} } (--where {shlex.quote(f'{name}={value}')})"
        where = f"choose the rows of one series by {where}, "
    raise ValueError(
        f"{count.iloc[0]} rows have the time {count.index[0]}: {where}name all columns of the "
        f"time, or name {quoted(times)} by time ({again}) to use all rows."
    )
