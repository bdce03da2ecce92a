"""Tables of text files, and the choice of their columns and rows (needs pandas)."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets import csv_cells
from gpytorch_nkn.datasets.csv_cells import MONTH, Reading, joined, kind, main_kind, option, quoted

__all__ = ["check_one_series", "read_columns", "rows_with_time"]

_SEPARATORS = "\t;|, "  # spaces also occur within cells
_SAMPLE = 1000  # rows that determine the layout of a table
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {0x2212: "-", 0x2019: "'"}
_DAY_NAME = "(?i)(.*[ _.-])?(date.?(num|time)?|day|month|period|time(stamp)?)"  # for Excel dates
_MINUTES = {n for n in range(1, 1441) if 1440 % n == 0} | {7 * 1440, 14 * 1440}  # usual steps
_ROWS = "rows"  # the time column of row numbers
_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_STEPS = {12, 23, 24, 25, 48, 96, 288}  # numbers of steps in a day
_YEAR = r"(?:1[5-9]|2[01])\d\d"
_IS_YEAR = re.compile(_YEAR).fullmatch
_WORD = r"([^\W\d_]{3,})"  # a month, or another word
_ANY_YEAR = rf"{_YEAR}|(?<!\d)\d\d$"  # also two digits at the end
_MONTH_NAME = rf"(?i:(?:{MONTH})[a-z]*\.?)"
_WORDS = {  # cells that show which part of the time a column has: 01-Jan, 1. Quartal
    "month": r"(?:\d\d?[ .-]+)?" + _MONTH_NAME,
    "quarter": r"[1-4](?i:[a-z.]{0,3} ?[qkt][a-z]*)",
}
_PARTS = {  # parts of times: pattern of column names, smallest and largest number
    "year": ("(?:epi|iso|mmwr)?year|yr|yy(?:yy)?|periods?", 1500, 2699),
    "month": ("mo(?:n|nth)?|mm", 1, 12),
    "quarter": ("quarter|qtr", 1, 4),
    "week": ("(?:epi|iso|mmwr)?week|wk", 1, 53),
    "day": ("da?y|dd", 1, 31),
    "doy": ("doy|yday|day", 1, 366),
    "hour": ("hours?|hr|hh(?:mm)?|hrmn|time|he|periods?", 0, 2400),
    "minute": ("minutes?|min|mm", 0, 59),
}
_CHAINS = [  # parts that make up a time, the preferred first
    (*days, *hours)
    for days in (("date",), ("year", "month", "day"), ("year", "doy"))
    for hours in map(str.split, ("", "clock", "hour", "hour minute"))
] + [("year", "month"), ("year", "quarter"), ("year", "week"), ("date", "day")]
_WIDE = (  # parts of times, names of columns that become rows, numbers of such columns
    ("month", _MONTH_NAME, {12}),
    ("year", rf"[xX]?{_YEAR}(?:\.0| \[YR\d{{4}}\])?", range(2, 700)),
    ("quarter", "(?i:q(?:tr)? ?[1-4]|[1-4]q)", {4}),
    ("hour", r"(?i)(he?|hour|[st]?p)?[ _]?\d\d?|\d+:\d\d[\d:-]*", _STEPS),
    ("week", r"(?i:week|wk|[ck]?w)[ _]?\d\d?", {52, 53}),
    ("day", r"\d\d?", {31}),
    ("date", r"\d{4}\.\d\d|\D+ \d{4}[MQKT]\d\d?", range(2, 10**6)),
    ("step", r"[A-Za-z]_?\d+", range(30, 10**6)),
)
_AROUND = r"(?i) \[.*|^[a-z]_?(?=\d+$)|^\D+ (?=\d{4}[mqkt]\d)|\.0?$"  # of times
# names of columns that identify series, not months or hours
_IDS = "(?i)(?<![a-z])(age|area|class|code|group|id|item|region|site|station|store|type|unit|zone)"
_NO_TIME = r"(?i)^$|(?:total|mean|average|annual)\b"  # sums or means of years
_TIMES = "(?i:[tx]|(date)?times?(tamp)?|when|ds|date|step|period|index|year|month|day|hour|unix)"


def read_columns(path: Path, reading: Reading) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Read a table with its future rows; return it, its columns of times, and unused numbers."""
    time, covariates, given = [*reading.time], reading.covariates, reading.changed(notices=[])
    frame = _read_table(path, reading)
    if reading.target is None:
        frame = _melted(frame, reading)
    months = _month_names(frame, reading)
    frame = frame.replace(months, regex=True)
    if reading.time == [_ROWS] or (frame.shape[1] == 1 and not time):
        _count_rows(frame, reading)
    named = {"where": reading.where, "time": reading.time, "covariates": covariates}
    _check_columns(frame, reading, **named, target=[given.target or ""])
    parts, unused = _choose(frame, reading)
    if reading.future is not None:
        more = _read_table(Path(reading.future), given)
        _check_columns(more, given, future=[*parts.values(), *covariates])
        more = more.replace(months, regex=True)
        frame = pd.concat([frame, more.reindex(columns=frame.columns, fill_value="")])
    return frame, parts, unused


def _read_table(path: Path, reading: Reading) -> pd.DataFrame:
    """Read the rows of one table as strings, "" for missing values, indexed by line."""
    frame = _selected(_named(path, _rows(path, reading), reading), reading)
    codes = [*pd.to_numeric(pd.Series(reading.na_values, dtype=object), errors="coerce").dropna()]
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    missing = frame.apply(lambda cells: cells.str.fullmatch(csv_cells.MISSING))
    frame = frame.mask(missing | numbers.isin(codes) | frame.isin(reading.na_values), "")
    for name in frame.columns[frame.columns.str.fullmatch(_DAY_NAME)]:
        days = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce")
        is_date, given = "date" in name.lower(), days[frame[name] != ""]
        is_day = given.between(*((20_000, 60_000) if is_date else (25_569, 49_000)))
        if len(given) and is_day.all() and (is_date or _is_regular(days, frame)):
            dates = pd.to_datetime(days, unit="D", origin="1899-12-30").dt.round("s")
            frame[name] = dates.dt.strftime("%Y-%m-%d %H:%M:%S").astype(object).fillna("")
            reading.note(f"Numbers of {name!r} are read as Excel dates.")
    return frame


def _is_regular(days: pd.Series, frame: pd.DataFrame) -> bool:
    """Return whether the steps are usual ones of minutes to years, and no column has dates."""
    minutes = 1440 * np.diff(np.sort(days.dropna().unique()))
    if not minutes.size or "date" in [*frame.apply(main_kind)]:
        return False
    low, high = minutes.min(), minutes.max()
    is_usual = round(low) in _MINUTES and np.median(minutes) < 1.1 * low
    are_multiples = abs(minutes / low - (minutes / low).round()).max() < 0.05
    return bool((is_usual and are_multiples) or 28 * 1440 <= low < high < 1.11 * low)  # or months


def _text(path: Path, reading: Reading) -> str:
    """Read a text file."""
    data, encoding = path.read_bytes(), reading.encoding
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}.") from None
    if re.match(rb"(?i)PK\x03\x04|\xd0\xcf\x11\xe0|PAR1|\s*(\[?\s*\{|<(!doc|\?xml|html))", data):
        raise ValueError(f"{path} is a workbook, an archive, JSON or HTML; save it as CSV first.")
    guess = {b"\0": "utf-16-be"}.get(data[:1], "utf-16" if b"\0" in data[:4] else "utf-8-sig")
    for name in [encoding] if encoding else [guess, "cp1252", "latin-1"]:
        with suppress(UnicodeError, LookupError):
            text = data.decode(name)
            if name not in (encoding, guess):
                reading.guess = f" The text is read as {name}; {option('encoding')} sets another."
                reading.note(reading.guess[1:])
            return text.translate(_SPACES)
    raise ValueError(f"{path} is not text in {encoding!r}; leave {option('encoding')} out.")


def _rows(path: Path, reading: Reading) -> pd.DataFrame:
    """Split a file into stripped cells, indexed by line; ``reading`` receives the separator."""
    lines = [line.rstrip(" ") for line in re.split("\r\n|\r|\n", _text(path, reading))]
    lines[: reading.skiprows] = [""] * min(reading.skiprows, len(lines))
    is_comment = [t.lstrip(" ")[:1] in {"#", "%"} and t[:4].lower() != "#n/a" for t in lines]
    used = [i for i, line in enumerate(lines) if line and not is_comment[i]]
    if not used:
        raise ValueError(f"{path} is empty.")

    def split(block: Iterable[str], sep: str) -> list[list[str]]:
        return list(csv.reader((t.strip(" ") for t in block), delimiter=sep, skipinitialspace=True))

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
    valued = rows[data].sum(axis=1).str.contains(r"\d") | (rows.shape[1] == 1)
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
    is_index = name[0].lower() in ("", "#", "unnamed: 0", "rownames") and numbers.is_unique
    counts = numbers.iloc[0] in (0, 1) and bool((numbers.diff().iloc[1:] == 1).all())
    is_index &= body.shape[1] > 1 and (counts or "date" in {*main}) and main.get(0) == "number"
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
    is_month = rows[data[0]].str.contains(_ANY_YEAR) & (main[data[0]] == "date")  # in any language
    is_data &= ((kinds[data[0]] != "text") | is_month) & (filled > 0)
    begin = int((is_data & (2 * filled >= filled[filled > 0].median())).to_numpy().argmax())
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
    named = data[(rows.iloc[begin:_SAMPLE][data] != "").any()]
    named = named[(named > 0) | (len(named) == 1)]  # the name of the first column may be missing
    count = names[named].replace("", None).nunique(axis=1)
    timed = [i for i in data if main[i] in ("date", "clock")] or data[:1]
    fill = 2 * (count + (names[named].map(kind) == "text").sum(axis=1))
    fill += names[timed].apply(lambda cells: cells.str.fullmatch(_TIMES)).any(axis=1)
    names = names[(fill == fill.max()) & (2 * count >= len(named))].iloc[:1]
    if len(names):  # rows below the header may have few values
        begin = int((is_data & (is_data.index > names.index[0])).to_numpy().argmax())
    first = pd.to_numeric(rows.iloc[begin][data], errors="coerce").dropna()
    if names.empty and kind(rows.iat[begin, 0]) in ("text", "missing") and len(first) > 1:
        is_years = int((first.diff().iloc[1:].abs() == 1).mean() > 0.9)  # names of columns
        begin, names = begin + is_years, rows.iloc[begin : begin + is_years]
    return begin, end, names


def _labels(body: pd.DataFrame) -> list[str]:
    """Return names for columns without a header: months after a column of years."""
    labels = [f"column {i + 1}" for i in range(body.shape[1])]
    kinds = [*body.apply(main_kind), "text"]
    if all(map(_IS_YEAR, body.iloc[:, 0])) and kinds.index("text", 1) == 13:
        labels[1:13] = MONTH.split("|")
    return labels


def _check_columns(frame: pd.DataFrame, reading: Reading, **named: Iterable[str]) -> None:
    """Raise an error if a column that an option names does not exist."""
    columns = f"the columns are {quoted(frame)}.{reading.guess}"
    for name, names in named.items():
        for missing in {*names} - {"", *frame}:
            raise ValueError(f"There is no {name} column {missing!r}; {columns}")


def _selected(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return the rows of one series, by the columns of ``where`` that exist."""
    for name in [name for name in reading.where if name in frame]:
        known, value = quoted(frame[name].unique()), reading.where[name]
        frame = frame[frame[name] == value]
        if frame.empty:
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
    return frame


def _melted(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Turn columns of months, years, hours, ... into rows, except columns that an option names."""
    kinds, time = frame.apply(main_kind), reading.time
    named = {*time, *reading.covariates}
    years = [c for c in frame if all(map(_IS_YEAR, frame[c]))][:1]  # others hold values
    names = pd.Series([c for c in frame if c not in named and kinds[c] == "number"], dtype=object)
    words = names[names.str.fullmatch(_WORD + r"\.?[ ./'-]*(?:\d\d){0,2}") & ~names.isin(years)]
    dated = words[words.str.contains(_ANY_YEAR)]
    header = (dated if len(dated) else words.head(12) + " 2001").to_frame("header")
    new = names.to_frame("header").replace(_month_names(header, reading), regex=True)["header"]
    frame, names = frame.rename(columns=dict(zip(names, new, strict=True))), new
    is_date = names.map(kind) == "date"
    is_date |= names.index.isin(dated.index) & (2 * is_date.sum() > len(dated))
    for part, pattern, counts in _WIDE:
        wide = [*names[names.str.fullmatch(pattern) | (is_date & (part == "date"))]]
        is_few = len(wide) not in counts or 2 * len(wide) < len(words)
        has_times = "date" in {*kinds} or (part == "step" and years)
        if is_few or (part in ("year", "step") and has_times):
            continue
        others, reading.target = frame.columns.drop(wide), f"value by {part}"
        reading.note(f"Columns of {part}s are turned into rows.")
        reading.time = [*time, part] if {*time} - {_ROWS, part} else time
        frame = frame.melt(others, wide, part, reading.target, ignore_index=False)
        frame[part] = frame[part].str.replace(_AROUND, "", regex=True).str.replace(".", "-")
        return _selected(frame.sort_index(kind="stable"), reading)
    return frame


def _month_names(frame: pd.DataFrame, reading: Reading) -> dict[str, dict[str, str]]:
    """Return English months for patterns of words in other languages, by column.

    All words, or twelve in one year, are consecutive. Years or three words give the first month.
    """
    names: dict[str, dict[str, str]] = {}
    months, years = MONTH.split("|"), [c for c in frame if all(map(_IS_YEAR, frame[c]))]
    for name in frame:
        cells, sample = frame[name], frame[name].head(1000)
        has_year = sample.str.contains(_ANY_YEAR).all()
        if not (has_year or years) or not 0 < sample.str.extract(_WORD)[0].nunique() <= 12:
            continue
        cells = pd.Series((cells if has_year else cells + " " + frame[years[0]]).unique())
        pairs = cells.str.extract(_WORD).assign(year=cells.str.extract(f"({_ANY_YEAR})")[0])
        pairs = pairs.dropna().drop_duplicates().astype({"year": int})
        year = pairs["year"] = pairs["year"] + 100 * (pairs["year"] < 30)  # two digits
        pairs = pairs[:: 1 if year.iloc[0] <= year.iloc[-1] else -1]
        word, year = (pairs.sort_values("year", kind="stable")[column] for column in pairs)
        full = year[word.groupby(year).transform("size") == 12]
        some = year == full.iloc[0] if len(full) else year > 0
        orders: list[tuple[int, dict[str, int]]] = [(-1, {})]
        for n in 12 * year[some].iloc[0] + np.add.outer(range(12), range(some.sum())):
            order = dict(zip(word[some], (n % 12).tolist(), strict=True))
            if (12 * year[some] + word[some].map(order) == n).all():
                like = {w: w[:3].lower().translate({0xE4: "a", 0xE9: "e"}) for w in order}
                orders += [(sum(like[w] == months[k] for w, k in order.items()), order)]
        english, order = max(orders, key=lambda item: item[0])
        is_time = (has_year or name in reading.time) and len(order) == 12 < len(word)
        is_in_order = ((12 * year + word.map(order)).diff().iloc[1:] > 0).all()
        is_foreign = not {w[:3].lower() for w in order} <= {*months}
        if is_in_order and (is_time or english >= 3) and is_foreign:
            names[name] = {rf"\b{w}\b\.?": months[k] for w, k in order.items()}
            (low, first), *_, (high, last) = sorted((k + 1, w) for w, k in order.items())
            reading.note(f"{first!r} to {last!r} in {name!r} are months {low} to {high}.")
    return names


def _part(cells: pd.Series) -> str:
    """Return the part of a time in a column, "" for none."""
    main, sample = main_kind(cells), cells.drop_duplicates().head(1000)
    sample = sample[~sample.str.contains(_NO_TIME)]
    if main in ("date", "clock") or sample.empty:
        return main.replace("text", "")
    for part, pattern in _WORDS.items():
        if sample.str.fullmatch(pattern).all():
            return part
    words = re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    if re.search("time|hour", words) and sample.str.fullmatch(r"[0-2]\d[0-5]\d[0-5]\d").all():
        return "clock"
    parts = sample.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0|h?(?: ?- ?\d\d?h?)?)$")
    n, mark = parts[1].astype(float), str(parts.iloc[0, 0]).lower()
    for part, (names, low, high) in _PARTS.items():
        is_named = mark == part[0] or re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words)
        is_short = part == "year" and sample.str.fullmatch(r"\d\d").all()
        if is_named and (is_short or n.between(low, high).all()):
            return part
    whole = pd.to_numeric(sample.str.replace("[.,].*", "", regex=True), errors="coerce")
    is_time = re.search("dat|time|day|week|month|period", words) or sample.iloc[0][2:3] == "."
    is_time = is_time or whole.is_monotonic_increasing or whole.is_monotonic_decreasing
    return "date" if is_time and csv_cells.is_compact(sample) else ""


def _counted(frame: pd.DataFrame, first: str, part: str) -> dict[str, str]:
    """Find columns after a year or date that count months, days or steps, until times are unique.

    If the first column has a name, the counts must reach the end of the year, month or day.
    """
    columns, after = {part: first}, frame.columns[frame.columns.get_loc(first) + 1 :]
    parts = ["hour"] if part == "date" else ["month", "day", "hour"]
    for finer, name in zip(parts, after, strict=False):
        n = pd.to_numeric(frame[name], errors="coerce")
        is_count = (n.between(*_PARTS[finer][1:]) & (n % 1 == 0)).all()
        is_count &= not re.search(_IDS, name)
        if not is_count or not frame.duplicated([*columns.values()]).any():
            break
        columns[finer] = name
    *coarse, _ = columns.values()
    if not coarse or frame.duplicated([*columns.values()]).any():
        return {}
    sizes = frame.groupby(coarse).size()
    is_full = sizes.max() in (12, 28, 29, 30, 31) or sizes.median() in _STEPS
    return columns if is_full or first.startswith("column ") else {}


def _choose(frame: pd.DataFrame, reading: Reading) -> tuple[dict[str, str], list[str]]:
    """Choose the columns of the time (by _CHAINS, else rising) and target; return other numbers."""
    target, times, covariates = reading.target, reading.time, reading.covariates
    part_of = {name: _part(frame[name]) for name in frame}
    numbers = [name for name in frame if name != target and main_kind(frame[name]) == "number"]
    first = {n: "year" for n in numbers if all(map(_IS_YEAR, frame[n]))}
    runs = {n: (frame[n] != frame[n].shift()).sum() for n in first}
    years = [n for n in first if runs[n] == frame[n].nunique() < len(frame)]  # in order, repeated
    first |= {n: "date" for n in frame if part_of[n] == "date"}
    counted = [c for i in first.items() if (c := _counted(frame, *i)) and target not in c.values()]
    named = {n for n in frame if re.fullmatch(_TIMES + "|(?i:yr)", n)}
    named -= {"x"} if "column 1" in frame else {*()}  # R calls values x, and no times
    timely = {n for n in frame if part_of[n] or (n in named and (not first or _rises(frame[n])))}
    timely |= {name for chain in counted for name in chain.values()}
    parts: dict[str, str] = {}
    for name in times or frame.columns.drop([target] if target else []):
        before = parts.setdefault(part_of[name], name)
        if part_of[name] == "date" and frame[name].nunique() > 2 * frame[before].nunique():
            parts["date"] = name
    if years and not times:
        parts.setdefault("year", years[0])
    chains = [{p: parts[p] for p in chain} for chain in _CHAINS if {*chain} <= {*parts}] + counted
    chains = [chain for chain in chains if len(frame[[*chain.values()]].drop_duplicates()) > 1]
    if times:
        is_known = 1 < len(times) == len(parts) and "" not in parts
        known = [chain for chain in counted if {*chain.values()} == {*times}]
        order = ("date", *_PARTS, "clock")
        known += [{p: parts[p] for p in order if p in parts}] * is_known
        parts = [*known, {str(i): name for i, name in enumerate(times)}][0]
    elif chains:
        repeated = [frame.duplicated([*chain.values()]).mean() for chain in chains]
        parts = chains[int(np.argmin(np.maximum(repeated, _REPEATED)))]
    else:
        parts = {"0": _rising(frame, numbers, timely, target, years)}
    timely |= {*years}
    used = {*parts.values(), *covariates}
    reading.target = target = target or _target(frame.drop(columns=used), numbers, timely)
    used |= {target, *timely}
    return parts, [name for name in numbers if name not in used]


def _target(frame: pd.DataFrame, numbers: list[str], timely: set[str]) -> str:
    """Return the only column, or the only one of numbers that change and are no times."""
    names = [*frame]
    if len(names) > 1:
        names = [name for name in names if name in numbers]
        names = [name for name in names if frame[name].nunique() > 1] or names
        names = [name for name in names if name not in timely] or names
    if len(names) != 1:
        some = quoted(names or frame)
        raise ValueError(f"The target may be any of {some}: choose one with {option('target')}.")
    return names[0]


def _rising(
    frame: pd.DataFrame, numbers: list[str], timely: set[str], target: str | None, years: list[str]
) -> str:
    """Choose the time in a table without dates: a usual name, or, without years, rising numbers."""
    if len(numbers) + (target is not None) < 2:
        names = [name for name in frame if name != target]
        return max(names, key=lambda n: (bool(re.fullmatch(_TIMES, n)), n not in numbers))
    ranks = {}
    for name in numbers:
        rises = not years and _rises(frame[name])
        ranks[name] = (name in timely, rises, rises and _rises(frame[name], equally=True))
    best = max(ranks, key=ranks.__getitem__)  # the first of these
    if not any(ranks[best]):
        raise ValueError(
            f"Which column holds the time? There are no dates, and {quoted(ranks)} may be values: "
            f"name it with {option('time')}, or set {option('time', 'rows')}."
        )
    return best


def _rises(cells: pd.Series, *, equally: bool = False) -> bool:
    """Return whether numbers rise or fall throughout, and are in most rows."""
    values = pd.to_numeric(cells.str.replace(",", "."), errors="coerce").dropna()
    steps = values.diff().iloc[1:]
    is_same = steps.nunique() <= 1 if equally else (steps > 0).all() or (steps < 0).all()
    return 2 * len(values) > len(cells) and bool(is_same)


def _count_rows(frame: pd.DataFrame, reading: Reading) -> None:
    """Add a column of row numbers; count from the last row if the newest is first."""
    dates, falls, reading.time = frame.apply(main_kind) == "date", False, [_ROWS]
    with suppress(ValueError, IndexError):  # without readable dates
        parts, quiet = {"date": frame.columns[dates][0]}, reading.changed(notices=[])
        x, _ = csv_cells.read_times(frame, parts, quiet)
        falls = bool((np.diff(x).astype(int) <= 0).all())
    reading.date_format = None
    frame[_ROWS] = np.arange(len(frame))[:: -1 if falls else 1].astype(str).astype(object)
    reading.note(f"Rows are counted from the {'last' if falls else 'first'} row.")


def rows_with_time(frame: pd.DataFrame, times: list[str], reading: Reading) -> pd.DataFrame:
    """Return the rows that have a time, and a target or all covariates."""
    if len(times) > 1 and (frame[times[0]] == "").any():  # merged cells
        frame = frame.assign(**{times[0]: frame[times[0]].replace("", None).ffill().fillna("")})
        reading.note(f"Empty cells of {times[0]!r} take the value above.")
    frame = frame[~joined(frame[times]).isin(reading.na_values)]  # such as 2001-02-30
    timed = ~frame[[*times]].apply(lambda cells: cells.str.contains(_NO_TIME)).any(axis=1)
    for coarse in (_YEAR, _YEAR + " ?Q[1-4]") if main_kind(frame[times[0]]) == "date" else ():
        is_coarse = frame[times[0]].str.fullmatch(coarse)  # sums or means beside months
        timed &= ~is_coarse | (is_coarse.mean() > 0.4) | (len(times) > 1)
    if reading.date_format is None:  # notes below the data
        tail = frame[times[0]].iloc[-100:]
        notes = tail.iloc[len(tail) - int((tail.map(kind) != "text")[::-1].argmax()) :]
        dated = notes.str.replace(_WORD, "may", regex=True).map(kind) == "date"  # unknown months
        timed.iloc[len(frame) - len(notes) :] = dated.all() and len(notes) > 2
    known, covariates = frame[reading.target] != "", [*reading.covariates]
    if len(lost := frame[~timed & known]):
        text = quoted([", ".join(filter(None, lost.iloc[0]))])
        reading.note(f"Dropped rows without a time: {len(lost)} (such as {text}).")
    is_future = bool(covariates) and (frame[covariates] != "").all(axis=1)
    return frame[timed & (known | is_future)]


def check_one_series(frame: pd.DataFrame, x: np.ndarray, times: list[str], target: str) -> None:
    """Raise an error if many rows share a time, as in files of several series."""

    def identifies(name: str) -> bool:
        """Return whether cells are text, or values that are about equally frequent."""
        counts = frame[name].value_counts()
        is_even = (2 * counts >= counts.max()).mean() > 0.5
        return 1 < len(counts) <= len(x) / 3 and (is_even or main_kind(frame[name]) == "text")

    count, advice = pd.Series(x).value_counts(), ["name all columns of the time"]
    ids = [c for c in frame if c not in (*times, target) and identifies(c)]
    if len(x) - len(count) < (_REPEATED if ids else 0.5) * len(x):
        return
    if ids:
        name = min(ids, key=lambda c: frame.duplicated([*times, c]).sum())
        where = option("where", {name: frame[name][frame[name] != ""].iloc[0]})
        advice.insert(0, f"choose the rows of one series by {where}")
    advice += [f"count rows by {option('time', _ROWS)}", f"use all rows by {option('time', times)}"]
    text = f"{count.iloc[0]} rows have the time {count.index[0]}"
    raise ValueError(f"{text}: {', or '.join(advice)}.")
