"""Choice of the time, target and covariate columns of a table of strings (needs pandas)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import Reading, option, quoted
from gpytorch_nkn.datasets.csv_times import MONTH, is_compact, joined, kind, main_kind, read_times

__all__ = [
    "ANY_YEAR",
    "ROWS",
    "TIME_NAME",
    "YEAR",
    "check_columns",
    "check_one_series",
    "choose",
    "count_rows",
    "melted",
    "month_names",
    "rows_with_time",
    "selected",
]

ROWS = "rows"  # the time column of row numbers
_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_STEPS = {12, 23, 24, 25, 48, 96, 288}  # numbers of steps in a day
YEAR = r"(?:1[5-9]|2[01])\d\d"
_WORD = r"([^\W\d_]{3,})"  # a month, or another word
ANY_YEAR = rf"{YEAR}|(?<!\d)\d\d$"  # also two digits at the end
_MONTH_NAME = rf"(?i:(?:{MONTH})[a-z]*\.?)"
_WORDS = {  # cells that show which part of the time a column has: 01-Jan, 1. Quartal
    "month": r"(?:\d\d?[ .-]+)?" + _MONTH_NAME,
    "quarter": r"[1-4](?i:[a-z.]{0,3} ?[qkt][a-z]*)",
    "half": r"(?i:[ap]\.? ?m\.?)",
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
    for hours in map(str.split, ("", "clock", "hour", "hour minute", "clock half", "hour half"))
] + [("year", "month"), ("year", "quarter"), ("year", "week"), ("date", "day")]
_WIDE = (  # parts of times, names of columns that become rows, numbers of such columns
    ("month", _MONTH_NAME, {12}),
    ("year", rf"[xX]?{YEAR}(?:\.0| \[YR\d{{4}}\]| ?[a-zA-Z*]| ?\(\w+\))?", range(2, 700)),
    ("quarter", "(?i:q(?:tr)? ?[1-4]|[1-4]q)", {4}),
    ("hour", r"(?i)(he?|hour|[st]?p)?[ _]?\d\d?([ab]|-\d\d?| ?[ap]m)?|\d+:\d\d[\d:-]*", _STEPS),
    ("week", r"(?i:week|wk|[ck]?w)[ _]?\d\d?", {52, 53}),
    ("day", r"\d\d?", {31}),
    ("date", r"\d{4}\.\d\d|\D+ \d{4}[MQKT]\d\d?", range(2, 10**6)),
    ("step", r"[A-Za-z]_?\d+", range(30, 10**6)),
)
_AROUND = r"(?i) \[.*|^[a-z]_?(?=\d+$)|^\D+ (?=\d{4}[mqkt]\d)|(?<=\d)[ab]$|\.0?$"  # of times,
_AROUND += r"|(?<=^\d{4}) ?([a-z*]|\(\w+\))$"  # and marks of provisional years
# names of columns that identify series, not months or hours
_IDS = "(?i)(?<![a-z])(age|area|class|code|group|id|item|region|site|station|store|type|unit|zone)"
_NO_TIME = r"(?i:.*\b(?:total|mean|average|annual)\b.*)?"  # times of annual sums or means
TIME_NAME = "(?i:[tx]|(date)?times?(tamp)?|when|ds|date|step|period|index|year|month|day|hour|unix)"


def check_columns(frame: pd.DataFrame, **named: Iterable[str]) -> None:
    """Raise an error if a column that an option names does not exist."""
    for name, names in named.items():
        for missing in {*names} - {"", *frame}:
            columns = quoted(frame)
            raise ValueError(f"There is no {name} column {missing!r}; the columns are {columns}.")


def selected(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return the rows of one series, by the columns of ``where`` that exist."""
    for name in [name for name in reading.where if name in frame]:
        known, value = quoted(frame[name].unique()), reading.where[name]
        frame = frame[frame[name] == value]
        if frame.empty:
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
    return frame


def melted(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Turn columns of months, years, hours, ... into rows, except columns that an option names."""
    kinds, time = frame.apply(main_kind), reading.time
    named = {*time, *reading.covariates}
    years = [c for c in frame if frame[c].str.fullmatch(YEAR).all()][:1]  # others hold values
    names = pd.Series([c for c in frame if c not in named and kinds[c] == "number"], dtype=object)
    words = names[names.str.fullmatch(_WORD + r"\.?[ ./'-]*(?:\d\d){0,2}") & ~names.isin(years)]
    dated = words[words.str.contains(ANY_YEAR)]
    header = (dated if len(dated) else words.head(12) + " 2001").to_frame("header")
    new = names.to_frame("header").replace(month_names(header, reading), regex=True)["header"]
    frame, names = frame.rename(columns=dict(zip(names, new, strict=True))), new
    is_date = names.map(kind) == "date"
    is_date |= names.index.isin(dated.index) & (2 * is_date.sum() > len(dated))
    for part, pattern, counts in _WIDE:
        wide = [*names[names.str.fullmatch(pattern) | (is_date & (part == "date"))]]
        is_few = len(wide) not in counts or 2 * len(wide) < len(words)
        if is_few or (part in ("year", "step") and "date" in [*kinds]):
            continue
        others, reading.target = frame.columns.drop(wide), f"value by {part}"
        reading.note(f"Columns of {part}s are turned into rows.")
        reading.time = [*time, part] if {*time} - {ROWS, part} else time
        frame = frame.melt(others, wide, part, reading.target, ignore_index=False)
        frame[part] = frame[part].str.replace(_AROUND, "", regex=True).str.replace(".", "-")
        return selected(frame.sort_index(kind="stable"), reading)
    return frame


def month_names(frame: pd.DataFrame, reading: Reading) -> dict[str, dict[str, str]]:
    """Return English months for patterns of words in other languages, by column.

    All words, or twelve in one year, are consecutive. Years or three words give the first month.
    """
    names: dict[str, dict[str, str]] = {}
    months, years = MONTH.split("|"), [c for c in frame if frame[c].str.fullmatch(YEAR).all()]
    for name in frame:
        cells, sample = frame[name], frame[name].head(1000)
        has_year = sample.str.contains(ANY_YEAR).all()
        if not (has_year or years) or not 0 < sample.str.extract(_WORD)[0].nunique() <= 12:
            continue
        cells = pd.Series((cells if has_year else cells + " " + frame[years[0]]).unique())
        pairs = cells.str.extract(_WORD).assign(year=cells.str.extract(f"({ANY_YEAR})")[0])
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
                orders += [(sum(w[:3].lower() == months[k] for w, k in order.items()), order)]
        english, order = max(orders, key=lambda item: item[0])
        is_time = (has_year or name in reading.time) and len(order) == 12 < len(word)
        is_in_order = ((12 * year + word.map(order)).diff().iloc[1:] > 0).all()
        if is_in_order and (is_time or english >= 3) and english < len(order):
            names[name] = {rf"\b{w}\b\.?": months[k] for w, k in order.items()}
            (low, first), *_, (high, last) = sorted((k + 1, w) for w, k in order.items())
            reading.note(f"{first!r} to {last!r} in {name!r} are months {low} to {high}.")
    return names


def _part(cells: pd.Series) -> str:
    """Return the part of a time in a column, "" for none."""
    cells = cells[~cells.str.fullmatch(_NO_TIME)]
    main, sample = main_kind(cells), cells.drop_duplicates().head(1000)
    if main in ("date", "clock") or sample.empty:
        return main.replace("text", "")
    for part, pattern in _WORDS.items():
        if sample.str.fullmatch(pattern).all():
            return part
    words = re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    parts = sample.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0| ?- ?\d\d?)?$")
    n, mark = parts[1].astype(float), str(parts.iloc[0, 0]).lower()
    for part, (names, low, high) in _PARTS.items():
        is_named = mark == part[0] or re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words)
        if is_named and n.between(low, high).all():
            return part
    whole = pd.to_numeric(sample.str.replace("[.,].*", "", regex=True), errors="coerce")
    is_time = re.search("dat|time|day|week|month|period", words) or sample.iloc[0][2:3] == "."
    is_time = is_time or whole.is_monotonic_increasing or whole.is_monotonic_decreasing
    return "date" if is_time and is_compact(sample) else ""


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


def choose(frame: pd.DataFrame, reading: Reading) -> tuple[dict[str, str], str, list[str]]:
    """Choose the columns of the time and the target; also return the other columns of numbers.

    The time is the first of _CHAINS with few repeated times, else a column of rising numbers.
    """
    target, times, covariates = reading.target, reading.time, reading.covariates
    part_of = {name: _part(frame[name]) for name in frame}
    numbers = [name for name in frame if name != target and main_kind(frame[name]) == "number"]
    first = {n: "year" for n in numbers if frame[n].str.fullmatch(YEAR).all()}
    runs = {n: (frame[n] != frame[n].shift()).sum() for n in first}
    years = [n for n in first if runs[n] == frame[n].nunique() < len(frame)]  # in order, repeated
    first |= {n: "date" for n in frame if part_of[n] == "date"}
    counted = [c for i in first.items() if (c := _counted(frame, *i)) and target not in c.values()]
    timely = {n for n in frame if part_of[n] or re.fullmatch(TIME_NAME + "|(?i:yr)", n)}
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
        order = ("date", *_PARTS, "clock", "half")
        known += [{p: parts[p] for p in order if p in parts}] * is_known
        parts = [*known, {str(i): name for i, name in enumerate(times)}][0]
    elif chains:
        repeated = [frame.duplicated([*chain.values()]).mean() for chain in chains]
        parts = chains[int(np.argmin(np.maximum(repeated, _REPEATED)))]
    else:
        parts = {"0": _rising(frame, numbers, timely, target, years)}
    timely |= {*years}
    others = [name for name in frame if name not in {*parts.values(), *covariates, target}]
    if target is None and len(others) > 1:
        others = [name for name in others if name in numbers]
        others = [name for name in others if frame[name].nunique() > 1] or others
        others = [name for name in others if name not in timely] or others
    if target is None and len(others) != 1:
        names = quoted(others or frame)
        raise ValueError(f"The target may be any of {names}: choose one with {option('target')}.")
    reading.target = target = target or others[0]
    used = {*parts.values(), target, *covariates, *timely}
    return parts, target, [name for name in numbers if name not in used]


def _rising(
    frame: pd.DataFrame, numbers: list[str], timely: set[str], target: str | None, years: list[str]
) -> str:
    """Choose the time in a table without dates: a usual name, or, without years, rising numbers."""
    if len(numbers) + (target is not None) < 2:
        names = [name for name in frame if name != target]
        return max(names, key=lambda n: (bool(re.fullmatch(TIME_NAME, n)), n not in numbers))
    ranks = {}
    for name in numbers:
        values = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce").dropna()
        steps, is_full = values.diff().iloc[1:], 2 * len(values) > len(frame)
        rises = is_full and not years and bool((steps > 0).all() or (steps < 0).all())
        ranks[name] = (name in timely, rises, rises and steps.nunique() <= 1)
    best = max(ranks, key=ranks.__getitem__)  # the first of these
    if not any(ranks[best]):
        raise ValueError(
            f"Which column holds the time? There are no dates, and {quoted(ranks)} may be values: "
            f"name it with {option('time')}, or set {option('time', 'rows')}."
        )
    return best


def count_rows(frame: pd.DataFrame, reading: Reading) -> None:
    """Add a column of row numbers; count from the last row if the newest is first."""
    dates, falls, reading.time = frame.apply(main_kind) == "date", False, [ROWS]
    with suppress(ValueError, IndexError):  # without readable dates
        x, _ = read_times(frame, {"date": frame.columns[dates][0]}, reading.changed(notices=[]))
        falls = bool((np.diff(x).astype(int) <= 0).all())
    frame[ROWS] = np.arange(len(frame))[:: -1 if falls else 1].astype(str).astype(object)
    reading.note(f"Rows are counted from the {'last' if falls else 'first'} row.")


def rows_with_time(frame: pd.DataFrame, times: list[str], reading: Reading) -> pd.DataFrame:
    """Return the rows that have a time, and a target or all covariates."""
    if len(times) > 1 and (frame[times[0]] == "").any():  # merged cells
        frame = frame.assign(**{times[0]: frame[times[0]].replace("", None).ffill().fillna("")})
        reading.note(f"Empty cells of {times[0]!r} take the value above.")
    frame = frame[~joined(frame[times]).isin(reading.na_values)]  # such as 2001-02-30
    timed = ~frame[[*times]].apply(lambda cells: cells.str.fullmatch(_NO_TIME)).any(axis=1)
    for coarse in (YEAR, YEAR + " ?Q[1-4]") if main_kind(frame[times[0]]) == "date" else ():
        is_coarse = frame[times[0]].str.fullmatch(coarse)  # sums or means beside months
        timed &= ~is_coarse | (is_coarse.mean() > 0.4) | (len(times) > 1)
    if reading.date_format is None:  # notes below the data
        is_time = frame[times[0]].iloc[-100:].map(kind) != "text"
        timed.iloc[len(frame) - int(is_time[::-1].argmax()) :] = False
    known, covariates = frame[reading.target] != "", [*reading.covariates]
    if len(lost := frame[~timed & known]):
        text = quoted([", ".join(filter(None, lost.iloc[0]))])
        reading.note(f"Dropped rows without a time: {len(lost)} (such as {text}).")
    is_future = bool(covariates) and (frame[covariates] != "").all(axis=1)
    return frame[timed & (known | is_future)]


def check_one_series(frame: pd.DataFrame, x: np.ndarray, times: list[str], target: str) -> None:
    """Raise an error if many rows share a time, as in files of several series."""
    count, advice = pd.Series(x).value_counts(), ["name all columns of the time"]
    ids = [c for c in frame if c not in (*times, target) and 1 < frame[c].nunique() <= len(x) / 3]
    if len(x) - len(count) < (_REPEATED if ids else 0.5) * len(x):
        return
    if ids:
        name = min(ids, key=lambda c: frame.duplicated([*times, c]).sum())
        where = option("where", {name: frame[name].iloc[0]})
        advice.insert(0, f"choose the rows of one series by {where}")
    text = ", or ".join([*advice, f"use all rows by {option('time', times)}"])
    raise ValueError(f"{count.iloc[0]} rows have the time {count.index[0]}: {text}.")
