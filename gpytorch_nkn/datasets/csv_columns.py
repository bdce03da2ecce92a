"""Columns of a table of strings: which hold the time, which is the target (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import counted, once, quoted
from gpytorch_nkn.datasets.csv_times import (
    INTERVAL_END,
    MONTHS,
    is_compact,
    kind,
    main_kind,
    read_times,
)

__all__ = ["TIME_NAMES", "Columns", "check_one_series", "falling_dates", "joined", "melted"]

_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_MONTH_NAME = rf"(?i:(?:{'|'.join(MONTHS)})[a-z]*\.?)"
_PARTS = {  # of times: names of columns, and the largest number
    "year": ("year|yr|yy(?:yy)?", 2199),
    "month": ("month|mon|mm", 12),
    "quarter": ("quarter|qtr", 4),
    "week": ("(?:epi|iso|mmwr)?week|wk", 53),
    "day": ("day|dd", 31),
    "doy": ("doy|yday", 366),
    "hour": ("hours?|hr|hh(?:mm)?|he|periods?", 2400),
    "minute": ("minutes?|min|mm", 59),
}
_MARKED = {"month": "M", "quarter": "Q", "week": "W"}  # marks before numbers, such as M01
_CHAINS = [  # parts that make up a time, the preferred first
    (*days, *hours)
    for days in (("date",), ("year", "month", "day"), ("year", "doy"))
    for hours in ((), ("clock",), ("hour",), ("hour", "minute"))
] + [("year", "month"), ("year", "quarter"), ("year", "week"), ("year",)]
_WIDE = {  # names of columns that become rows, and how many there must be
    "month": (_MONTH_NAME, range(12, 13)),
    "year": (r"(?:1[5-9]|2[01])\d\d", range(2, 700)),
    "quarter": ("(?i:q ?[1-4]|[1-4]q)", range(4, 5)),
    "hour": (r"(?i:hour|he|h)?[ _]?\d\d?|\d\d?:\d\d(?::00)?(?:-\d\d:\d\d)?", range(23, 26)),
    "date": ("", range(2, 10**6)),
}
_TOTAL = "(?i:(?:grand )?(?:total|sum|mean|average|all)s?)"
TIME_NAMES = (
    "(?i:t|x|times?|timestamp|when|ds|date|datetime|step|period|index|seconds?|year|month|day|hour"
    "|yyyy)"
)


def melted(
    frame: pd.DataFrame, named: Collection[str], notices: list[str]
) -> tuple[pd.DataFrame, str | None]:
    """Turn columns of months, years, hours, ... into rows, except columns that an option names.

    Also returns the part of the time that the columns had, None for no such columns.
    """
    names = frame.columns.drop(list(named), errors="ignore").to_series().astype(object)
    is_number = np.array([main_kind(frame[name]) == "number" for name in names], bool)
    for part, (pattern, counts) in _WIDE.items():
        fits = names.str.fullmatch(pattern) if pattern else names.map(kind) == "date"
        found = [*names[is_number & fits]]
        if len(found) in counts:
            others = frame.columns.drop(found)
            is_total = frame[others].apply(lambda cells: cells.str.fullmatch(_TOTAL)).any(axis=1)
            long = frame[~is_total | is_total.all()].melt(
                others, found, part, f"value by {part}", ignore_index=False
            )
            notices.append(f"Columns of {part}s are turned into rows.")
            return long.sort_index(kind="stable"), part
    return frame, None


def _part(cells: pd.Series) -> str:
    """Return the part of a time in a column, "" for none."""
    cells = cells[cells != ""]
    main, cells = main_kind(cells), cells.drop_duplicates().head(1000)
    words = re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    if main in ("date", "clock") or cells.empty:
        return main.replace("text", "")
    if cells.str.fullmatch(_MONTH_NAME).all():
        return "month"
    parts = cells.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0| ?- ?\d\d?)?$")
    if parts[1].isna().any():
        rises = main == "number" and pd.to_numeric(cells, errors="coerce").is_monotonic_increasing
        is_time = rises or re.search("dat|time|day|week|month|period", words)
        is_time = is_time or cells.iloc[0][2:3] == "."  # 09.2001
        return "date" if is_time and is_compact(cells) else ""
    n, mark = parts[1].astype(int), parts[0].iloc[0].upper()
    for part, (names, largest) in _PARTS.items():
        is_named = re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words) or mark == _MARKED.get(part)
        if is_named and n.max() <= largest and (part != "year" or n.min() >= 1500):
            return part
    return ""


class Columns:
    """The part of the time that each column of a table seems to hold."""

    def __init__(self, frame: pd.DataFrame):
        self._frame = frame
        self._parts = {name: _part(frame[name]) for name in frame}
        self._numbers = [name for name in frame if main_kind(frame[name]) == "number"]

    def times(self, times: Sequence[str], target: str | None) -> dict[str, str]:
        """Find the columns of the time; keys are their parts of the time."""
        if times:
            keys = [self._parts[name] or str(i) for i, name in enumerate(times)]
            if not 1 < len(times) == len(set(keys)):
                keys = [str(i) for i in range(len(times))]
            order = ["date", *_PARTS, "clock", *keys]
            pairs = zip(keys, times, strict=True)
            return dict(sorted(pairs, key=lambda pair: order.index(pair[0])))
        repeated = {name: self._frame.duplicated(name).sum() for name in self._frame}
        columns: dict[str, str] = {}
        for name, part in self._parts.items():
            if name != target:
                is_better = part == "date" and repeated[name] < repeated[columns.get(part, name)]
                columns[part] = name if is_better else columns.get(part, name)
        excess = {
            chain: max(self._frame.duplicated([columns[p] for p in chain]).mean(), _REPEATED)
            for chain in _CHAINS
            if {*chain} <= {*columns}
        }
        best = min(excess, key=excess.__getitem__, default=("year",))
        if best == ("year",):
            return {"0": self._rising(target)}
        return {part: columns[part] for part in best}

    def _rising(self, target: str | None) -> str:
        """Find the column of the time by its name, else by equal steps, else by rising values."""
        ranks, names = {}, [name for name in self._frame if name != target]
        for name in (name for name in self._numbers if name != target):
            cells = self._frame[name].str.replace(",", ".")
            steps = pd.to_numeric(cells, errors="coerce").dropna().diff()
            rises = len(steps) * 2 > len(cells) and ((steps[1:] > 0).all() or (steps[1:] < 0).all())
            ranks[name] = self._has_time_name(name), rises and 1 + (steps.nunique() <= 1)
        if len(ranks) + (target is not None) < 2:  # a column of text, which no format fits
            return max(names, key=lambda n: (bool(re.fullmatch(TIME_NAMES, n)), n not in ranks))
        best = max(ranks, key=ranks.__getitem__)  # the first of these
        if not any(ranks[best]):
            raise ValueError(
                f"Which column holds the time? None holds dates, and none of {quoted(ranks)} rises "
                "from row to row: name it by time (--time), or set time='rows' (--time rows) to "
                "count the rows."
            )
        return best

    def target(self, known: Sequence[str]) -> str:
        """Find the only other column of numbers that does not look like a time."""
        others = [name for name in self._frame if name not in known]
        if len(others) != 1:
            others = [name for name in others if name in self._numbers]
            others = [name for name in others if self._frame[name].nunique() > 1] or others
            others = [name for name in others if not self._has_time_name(name)] or others
        if len(others) != 1:
            raise ValueError(
                f"Which column is the target? The columns are {quoted(self._frame)}; name it by "
                "target (--target)."
            )
        return others[0]

    def _has_time_name(self, name: str) -> bool:
        return bool(self._parts[name] or re.fullmatch(TIME_NAMES, name))

    def unused(self, rows: pd.DataFrame, taken: Sequence[str], notices: list[str]) -> None:
        """Add a notice on columns that may be covariates, if there are any."""
        full = [
            name
            for name in self._numbers
            if not (name in taken or self._has_time_name(name) or (rows[name] == "").any())
            if rows[name].nunique() > 1
        ]
        if full:
            options = " ".join(map(shlex.quote, full))
            notices.append(
                f"Columns of numbers that are not used: {quoted(full)}; if they are known for the "
                f"future, name them by covariates (--covariates {options})."
            )


def falling_dates(frame: pd.DataFrame, reading: Mapping[str, Any]) -> str | None:
    """Return the name of a column of dates that fall from row to row, if there is one."""
    for name in (name for name in frame if main_kind(frame[name]) == "date"):
        with suppress(ValueError):
            times = read_times(frame[name][frame[name] != ""], [], **reading)[0]
            if (np.diff(times).astype(int) <= 0).all():
                return str(name)
    return None


def joined(frame: pd.DataFrame, columns: Mapping[str, str], notices: list[str]) -> pd.Series:
    """Join columns of years, months, hours, ... into one column of times."""
    if len(columns) == 1:
        return frame[next(iter(columns.values()))]
    text = pd.Series("", frame.index, dtype=object)
    for part, name in columns.items():
        cells = once(lambda c: c.str.replace(r"\.0$|" + INTERVAL_END, "", regex=True), frame[name])
        digits = once(lambda c: c.str.extract(r"(\d+)")[0], cells)
        if part in _MARKED and "day" not in columns:
            text += "-" + (_MARKED[part] + digits).fillna(cells)
        elif part in ("month", "day", "doy"):
            text += "-" + (cells if part == "month" else digits.str.zfill(1 + 2 * (part == "doy")))
        elif part == "minute":
            text = text.str.replace(r":\d\d$", ":", regex=True) + digits.str.zfill(2)
        elif part != "hour" or digits.isna().any() or cells.str.contains("[.:]").any():
            text += " " + cells
        else:
            minutes = _minutes(digits.astype(int), text, f"{name!r} ", notices)
            text += minutes.map({m: f" {m // 60}:{m % 60:02}" for m in minutes.unique()})
    return text.str.strip().rename(" ".join(columns.values()))


def _minutes(n: pd.Series, days: pd.Series, name: str, notices: list[str]) -> pd.Series:
    """Convert hours, periods of a day (1 to 48) or 1330 to minutes from midnight.

    Hours 1 to 24 and periods are dated to their starts. In days of 23 or 25 hours, the clocks
    change at 2:00.
    """
    if n.max() > 100:
        return n // 100 * 60 + n % 100
    per_day = next(p for p in (24, 48, 96) if n.max() <= p + p // 24)
    first = int(n.min() > 0 and (n.max() >= 24 or per_day > 24))
    minutes = (n - first) * (1440 // per_day)
    if first:
        notices.append(f"{name}counts from 1, {1440 // per_day} minutes each; times are starts.")
    count = n.groupby(days).transform("max") - first + 1
    is_whole = (n.groupby(days).transform("size") == count) & ~days.isin(days.iloc[[0, -1]])
    for hours, limit, what in ((1, 180, "there twice"), (-1, 120, "missing")):
        changed = is_whole & (24 * count == (24 + hours) * per_day)
        minutes -= 60 * hours * (changed & (minutes >= limit))
        if changed.any():
            notices.append(
                f"{name}has {counted(days[changed].nunique(), 'day')} of {24 + hours} hours as "
                f"clocks change: the hour from 2:00 is {what}."
            )
    return minutes


def check_one_series(frame: pd.DataFrame, x: np.ndarray, times: Sequence[str], target: str) -> None:
    """Raise an error if many rows are at the time of another row, as in files of several series."""
    count = pd.Series(x).value_counts()
    ids = [c for c in frame if c not in (*times, target) and 1 < frame[c].nunique() <= len(x) / 3]
    if len(x) - len(count) < (_REPEATED if ids else 0.5) * len(x):
        return
    pair = [[name, frame[name].iloc[0]] for name in ids[:1]] or [["COL", "VALUE"]]
    again = " ".join(f"--time {shlex.quote(name)}" for name in times)
    raise ValueError(
        f"{count.iloc[0]} rows have the time {count.index[0]}: choose the rows of one series by "
        f"where={dict(pair)} (--where {shlex.quote('='.join(pair[0]))}), name all columns of the "
        f"time (such as {again} --time COL), or only {quoted(times)} ({again}) to use all rows."
    )
