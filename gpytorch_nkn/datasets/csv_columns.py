"""Columns of a table of strings: which hold the time, which is the target (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations, product

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import counted, once, quoted
from gpytorch_nkn.datasets.csv_times import (
    INTERVAL_END,
    MONTHS,
    is_compact,
    kinds,
    main_kind,
    read_times,
)

__all__ = [
    "TIME_NAMES",
    "check_one_series",
    "find_target",
    "find_times",
    "joined",
    "melted",
    "unused",
    "with_months",
    "with_rows",
]

_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_HHMM = (2300, 2330, 2345, 2350, 2355, 2359, 2400)  # the last times of a day as numbers
_PARTS = {  # of times: names of columns, and largest numbers that identify unnamed columns
    "year": ("year|yr|yyyy", range(1500, 2200)),
    "month": ("month|mon|mm", [12]),
    "quarter": ("quarter|qtr", [4]),
    "week": ("(?:epi|iso|mmwr)?week|wk", [52, 53]),
    "day": ("day|dd", [28, 29, 30, 31]),
    "doy": ("doy|yday|day", [365, 366]),
    "hour": ("hours?|hr|hh(?:mm)?|he|periods?", [23, 24, 25, 46, 48, 50, 92, 96, 100, *_HHMM]),
    "minute": ("minutes?|min|mm", [30, 45, 50, 55, 59]),
}
_MARKED = {"month": "M", "quarter": "Q", "week": "W"}  # marks before numbers, such as M01
_CHAINS = [  # parts that make up a time, the preferred first
    (*days, *hours)
    for days in (("date",), ("year", "month", "day"), ("year", "doy"))
    for hours in ((), ("clock",), ("hour",), ("hour", "minute"))
] + [("date", "day"), ("year", "month"), ("year", "quarter"), ("year", "week"), ("year",)]
_MONTH_NAME = rf"(?i:(?:{'|'.join(MONTHS)})[a-z]*\.?)"
_WORD = r"[^\W\d_]"
_MELTED = {  # names of columns that become rows, and how many there must be
    "month": (_MONTH_NAME, 2),
    "year": (r"(?:1[5-9]|2[01])\d\d", 2),
    "quarter": ("(?i:q ?[1-4]|[1-4]q)", 2),
    "day": (r"(?i:day|d)?[ _]?(?:[12]?\d|3[01])", 28),
    "hour": (r"(?i:hour|he|h)?[ _]?\d\d?|\d\d?:\d\d(?::00)?(?:-\d\d:\d\d)?", 12),
    "date": ("", 2),
}
_TOTAL = r"(?i:(?:grand )?(?:total|sum|mean|average|all)s?)"
TIME_NAMES = (
    "(?i:t|x|times?|timestamp|when|ds|date|datetime|step|period|index|seconds?|year|month|day|hour)"
)


def _all(names: Iterable[str]) -> str:
    """List names in full, so that they can be copied."""
    return ", ".join(map(repr, names))


def melted(
    frame: pd.DataFrame, named: Collection[str]
) -> tuple[pd.DataFrame, str | None, list[str]]:
    """Turn columns of months, years, hours, ... into rows, except columns that an option names.

    Returns the table, the part of the time that the columns had (None for no such columns), and
    notices.
    """
    names = frame.columns.drop(list(named), errors="ignore").to_series().astype(object)
    is_number = np.array([main_kind(frame[name]) == "number" for name in names], bool)
    plain = names.str.replace(r"(?<=\d)[^\x00-\x7f]$", "", regex=True)  # a month in Japanese
    words = [*plain.str.lower()]
    for i in range(len(words) - 11):
        if months := _months(words[i : i + 12], range(1)):
            plain.iloc[i : i + 12] = [*months.values()]
    for part, (pattern, least) in _MELTED.items():
        fits = plain.str.fullmatch(pattern) if pattern else kinds(names) == "date"
        found = [*names[is_number & fits]]
        if len(found) < least:
            continue
        if part == "hour" and [*plain[found]] == [str(i) for i in range(1, 13)]:
            part = "month"
        others = [name for name in frame if name not in found]
        is_total = frame[others].apply(lambda column: column.str.fullmatch(_TOTAL)).any(axis=1)
        frame = frame[~is_total | is_total.all()]
        long = frame.melt(others, found, part, f"value by {part}", ignore_index=False)
        long[part] = long[part].map(plain)
        return long.sort_index(kind="stable"), part, [f"Columns of {part}s are turned into rows."]
    return frame, None, []


def with_months(frame: pd.DataFrame, where: str = "") -> tuple[pd.DataFrame, list[str]]:
    """Translate names of months in cells with a pattern into English; also return notices."""
    notices = []
    for name in frame:
        if not frame[name].head(1000).str.contains(rf"{_WORD}{{3}}").any():
            continue
        cells = frame[name][frame[name].str.contains(where)].astype(object)
        words = once(lambda c: c.str.lower().str.extract(rf"({_WORD}{{3,}})")[0], cells)
        if months := _months([*words.dropna().unique()]):
            frame = frame.copy()
            frame.loc[cells.index, name] = once(partial(_translated, months=months), cells)
            notices.append(f"Words are read as months, {next(iter(months))!r} first.")
    return frame, notices


def _translated(cells: pd.Series, months: Mapping[str, str]) -> pd.Series:
    pattern = rf"{_WORD}+\.?"
    return cells.str.replace(
        pattern, lambda m: months.get(m[0].lower().strip("."), " "), regex=True
    )


def _months(words: list[str], starts: Iterable[int] = range(12)) -> dict[str, str]:
    """Map twelve words to months, by their order and those that begin as in English.

    Without at least three such words, or if their order differs, the result is empty.
    """
    alike = [word for word in words if word[:3] in MONTHS]
    if len(words) == 12 and 3 <= len(alike) < 12:
        for first, step in product(starts, (1, -1)):
            months = dict(zip((words[first:] + words[:first])[::step], MONTHS, strict=True))
            if all(months[word] == word[:3] for word in alike):
                return months
    return {}


def with_rows(frame: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str]:
    """Add a column of row numbers, from the last row if dates decrease; also return a notice."""
    numbers, order = np.arange(len(frame)), "first to the last row"
    for column in [column for column in frame if main_kind(frame[column]) == "date"]:
        with suppress(ValueError):
            cells = frame[column][frame[column] != ""]
            times = read_times(cells, dayfirst=None, date_format=None, decimal=None)[0]
            if len(times) > 1 and (np.diff(times) <= np.timedelta64(0)).all():
                numbers, order = numbers[::-1], f"last to the first row, as {column!r} falls"
    return frame.assign(**{name: numbers.astype(str)}), f"Rows are counted from the {order}."


def _part(cells: pd.Series) -> tuple[str, bool]:
    """Return the part of a time in a column ("" for none), and whether its name says so."""
    found, cells = main_kind(cells[cells != ""]), cells[cells != ""].drop_duplicates()
    cells, words = cells.head(1000), re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    if found in ("date", "clock") or cells.empty:
        return found.replace("text", ""), True
    if cells.str.fullmatch(_MONTH_NAME).all():
        return "month", True
    parts = cells.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0| ?- ?\d\d?)?$")
    if parts[1].isna().any():
        if "time" in words and cells.str.fullmatch(r"\d{6}").all():
            return "clock", True
        rises = found == "number" and pd.to_numeric(cells, errors="coerce").is_monotonic_increasing
        is_time = rises or re.search("dat|time|day|week|month|period", words)
        is_time = is_time or cells.iloc[0][2:3] == "."  # 09.2001
        return ("date" if is_time and is_compact(cells) else ""), True
    n, mark = parts[1].astype(int), parts[0].iloc[0].upper()
    is_year = n.min() >= 1500 and n.is_monotonic_increasing
    by_size = ""
    for part, (names, largest) in _PARTS.items():
        is_named = re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words) or mark == _MARKED.get(part)
        if is_named and (part != "year" or n.min() >= 1500) and n.max() <= max(largest):
            return part, True
        if (is_year if part == "year" else n.min() < 2) and n.max() in largest:
            by_size = by_size or part
    return by_size, False


def find_times(frame: pd.DataFrame, times: Sequence[str], target: str | None) -> dict[str, str]:
    """Find the columns of the time; keys are their parts of the time."""
    found = {name: _part(frame[name]) for name in times or frame if name != target}
    if times:
        keys = [part or str(i) for i, (part, _) in enumerate(found.values())]
        if not 1 < len(times) == len(set(keys)):
            keys = [str(i) for i in range(len(times))]
        order = ["date", *_PARTS, "clock", *keys]
        pairs = zip(keys, times, strict=True)
        return dict(sorted(pairs, key=lambda pair: order.index(pair[0])))
    columns: dict[str, str] = {}
    for name in sorted(found, key=lambda name: not found[name][1]):  # first those with names
        columns.setdefault(found[name][0], name)
    dates = [name for name, (part, _) in found.items() if part == "date"]
    columns |= {"date": min(dates, key=lambda name: frame.duplicated(name).sum())} if dates else {}
    ranks = {}  # by rows at repeated times, and whether names say what columns hold
    for chain in _CHAINS:
        if all(part in columns for part in chain):
            excess = frame.duplicated([columns[p] for p in chain]).sum() - _REPEATED * len(frame)
            is_named = all(found[columns[part]][1] for part in chain)
            if excess <= 0 or is_named:
                ranks[chain] = max(excess, 0), not is_named
    best = min(ranks, key=lambda chain: ranks[chain], default=())
    if best and best != ("year",):
        return {part: columns[part] for part in best}
    return {"0": _rising(frame.drop(columns=target or []), is_targeted=target is not None)}


def _rising(frame: pd.DataFrame, is_targeted: bool) -> str:
    """Find the column of the time by its name, else by equal steps, else by increasing values."""
    ranks = {}
    for name in (name for name in frame if main_kind(frame[name]) == "number"):
        steps = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce").dropna().diff()
        rises = len(steps) * 2 > len(frame) and ((steps[1:] > 0).all() or (steps[1:] < 0).all())
        ranks[name] = _has_time_name(frame[name]), rises and 1 + (steps.nunique() <= 1)
    if len(ranks) + is_targeted < 2:  # a column of text, which no format fits
        return max(
            frame, key=lambda name: (re.fullmatch(TIME_NAMES, name) is not None, name not in ranks)
        )
    best = max(ranks, key=ranks.__getitem__)  # the first of these
    if not any(ranks[best]):
        raise ValueError(
            f"Which column holds the time? None holds dates, and none of {_all(ranks)} rises "
            "from row to row: name it by time (--time), or set time='rows' (--time rows) to count "
            "the rows."
        )
    return best


def find_target(frame: pd.DataFrame, known: Sequence[str]) -> str:
    """Find the only other column of numbers that does not look like a time."""
    others = [name for name in frame if name not in known]
    if len(others) != 1:
        others = [name for name in others if name and main_kind(frame[name]) == "number"]
        others = [name for name in others if frame[name].nunique() > 1] or others
        others = [name for name in others if not _has_time_name(frame[name])] or others
    if len(others) != 1:
        raise ValueError(
            f"Which column is the target? The columns are {_all(frame)}; name it by target "
            "(--target)."
        )
    return others[0]


def _has_time_name(cells: pd.Series) -> bool:
    part, is_named = _part(cells)
    return (part != "" and is_named) or bool(re.fullmatch(TIME_NAMES, str(cells.name)))


def joined(frame: pd.DataFrame, columns: Mapping[str, str]) -> tuple[pd.Series, list[str]]:
    """Join columns of years, months, hours, ... into one column of times; also return notices."""
    if len(columns) == 1:
        return frame[next(iter(columns.values()))], []
    notices, text = [], pd.Series("", frame.index, dtype=object)
    for part, name in columns.items():
        cells = once(lambda c: c.str.replace(r"\.0$|" + INTERVAL_END, "", regex=True), frame[name])
        digits = once(lambda c: c.str.extract(r"(\d+)")[0], cells)
        if part in ("date", "year"):
            text = cells
        elif part == "day" and "date" in columns:  # of a month of a year
            text = (text + "-" + digits).mask(text.str.match(r".*\D\d{4}$"), digits + "-" + text)
        elif part in _MARKED and "day" not in columns:
            text += "-" + (_MARKED[part] + digits).fillna(cells)
        elif part in ("month", "day", "doy"):
            text += "-" + (
                cells if part == "month" else digits.str.zfill(3 if part == "doy" else 1)
            )
        elif part == "minute":
            text = text.str.replace(r":\d\d$", ":", regex=True) + digits.str.zfill(2)
        elif part != "hour" or digits.isna().any() or cells.str.contains("[.:]").any():
            text += " " + cells
        else:
            minutes, changes = _minutes(digits.astype(int), text)
            notices += [f"{name!r} {what}" for what in changes]
            text += minutes.map({m: f" {m // 60}:{m % 60:02}" for m in minutes.unique()})
    return text.str.strip().rename(" ".join(columns.values())), notices


def _minutes(n: pd.Series, days: pd.Series) -> tuple[pd.Series, list[str]]:
    """Convert hours, periods of a day (1 to 48) or 1330 to minutes from midnight, with notices.

    Hours 1 to 24 and periods are dated to their starts. In days of 23 or 25 hours, the clocks
    change at 2:00.
    """
    if n.max() > 100:
        return n // 100 * 60 + n % 100, []
    per_day = next(p for p in (24, 48, 96) if n.max() <= p + p // 24)
    first = int(n.min() > 0 and (n.max() >= 24 or per_day > 24))
    minutes = (n - first) * (1440 // per_day)
    notices = [f"counts from 1, {1440 // per_day} minutes each; times are starts."] * first
    count = n.groupby(days).transform("max") - first + 1
    is_whole = (n.groupby(days).transform("size") == count) & ~days.isin(days.iloc[[0, -1]])
    for hours, limit, what in ((1, 180, "there twice"), (-1, 120, "missing")):
        changed = is_whole & (24 * count == (24 + hours) * per_day)
        minutes -= 60 * hours * (changed & (minutes >= limit))
        if changed.any():
            notices.append(
                f"has {counted(days[changed].nunique(), 'day')} of {24 + hours} hours as clocks "
                f"change: the hour from 2:00 is {what}."
            )
    return minutes, notices


def check_one_series(
    frame: pd.DataFrame, x: np.ndarray, times: Sequence[str], target: str, *, named: bool
) -> None:
    """Raise an error for a file of several series that one or two columns identify."""
    count = pd.Series(x).value_counts()
    repeated = len(x) - len(count)
    ids = [c for c in frame if c not in (*times, target) and 1 < frame[c].nunique() <= len(x) / 3]
    ids *= repeated >= _REPEATED * len(x)
    for group in [*combinations(ids, 1), *combinations(ids, 2)]:
        keys = frame[[*group]]
        if keys.assign(**{"the time": x}).duplicated().sum() <= 0.2 * repeated:
            where = keys.iloc[0].to_dict()
            options = " ".join(f"--where {shlex.quote('='.join(pair))}" for pair in where.items())
            raise ValueError(
                f"The file seems to hold {len(keys.drop_duplicates())} series, identified by "
                f"{quoted(group)}: choose one by where={where} ({options})."
            )
    is_date = x.dtype.kind == "M" or 1500 <= x.min() <= x.max() < 2200
    if is_date and not named and 2 * len(count) <= x.size:
        again = " ".join(f"--time {shlex.quote(name)}" for name in times)
        raise ValueError(
            f"{count.iloc[0]} rows have the time {count.index[0]}: name all columns of the "
            f"time (such as {again} --time COL), choose the rows of one series by where (--where "
            f"COL=VALUE), or name {quoted(times)} by time ({again}) to use all rows."
        )


def unused(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
    """Return a notice on columns that may be covariates, if there are any."""
    full = [
        name
        for name in frame.columns.difference(taken, sort=False)
        if main_kind(frame[name]) == "number" and frame[name].nunique() > 1
        if not ((frame[name] == "").any() or _has_time_name(frame[name]))
    ]
    options = " ".join(map(shlex.quote, full))
    notice = (
        f"Columns of numbers that are not used: {quoted(full)}; if they are known for the future, "
        f"name them by covariates (--covariates {options})."
    )
    return [notice] if full else []
