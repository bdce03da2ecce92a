"""Columns of a table of strings: which hold the time, which is the target (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_table import main_kind
from gpytorch_nkn.datasets.written_cells import (
    END,
    MONTH,
    counted,
    english,
    is_compact,
    is_missing,
    kind,
    listed,
    read_times,
)

__all__ = [
    "check_column",
    "check_one_series",
    "find_target",
    "find_times",
    "joined",
    "selected",
    "turned",
    "unused",
    "with_rows",
]

_REPEATED = 0.1  # fraction of rows that may be at repeated times in one series
_UNTOLD = 0.2  # fraction of these that names of series may leave
_PARTS = {  # of times: names, and the largest numbers that tell them without a name
    "year": ("year|yr|yyyy", range(1500, 2200)),
    "month": ("month|mon|mm", [12]),
    "quarter": ("quarter|qtr", [4]),
    "week": ("(?:epi|iso|mmwr)?week|wk", [52, 53]),
    "day": ("day|dd", [28, 29, 30, 31]),
    "doy": ("doy|yday|day", [365, 366]),
    "hour": ("hours?|hr|hh|he|periods?", [23, 24, 25, 46, 48, 50, 92, 96, 100, 2300, 2345, 2400]),
    "minute": ("minutes?|min", [30, 45, 50, 55, 59]),
}
_MARKS = {"M": "month", "Q": "quarter", "W": "week"}  # before numbers, such as M01
_CHAINS = [  # columns that tell the time together, the preferred first
    (*days, *hours)
    for days in (("date",), ("year", "month", "day"), ("year", "doy"))
    for hours in ((), ("clock",), ("hour",), ("hour", "minute"))
] + [("date", "day"), ("year", "month"), ("year", "quarter"), ("year", "week"), ("year",)]
_COLUMNS_OF_TIMES = {  # names of columns that are turned into rows
    "month": rf"{MONTH}[a-z]*\.?",
    "year": r"(?:1[5-9]|2[01])\d\d",
    "quarter": "q ?[1-4]|[1-4]q",
    "day": r"(?:day|d)?[ _]?\d\d?",
    "hour": r"(?:hour|he|h)?[ _]?\d\d?|\d\d?:\d\d(?::00)?(?:-\d\d:\d\d)?",
}
_TOTAL = re.compile(r"(?:grand )?(?:total|sum|mean|average|avg\.?|all)s?", re.I)
_TIME_NAMES = re.compile(
    "t|x|times?|timestamp|when|ds|date|datetime|step|period|index|seconds?|year|month|day|hour"
)


def check_column(frame: pd.DataFrame, name: str, option: str) -> None:
    if name not in frame:
        raise ValueError(f"There is no {option} column {name!r}; the columns are {_all(frame)}.")


def _all(names: Iterable[str]) -> str:
    """Names in full, as they are to be copied."""
    return ", ".join(map(repr, names))


def selected(frame: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    """The rows in which columns have the given values."""
    for name, value in where.items():
        check_column(frame, name, "where")
        if not (frame[name] == value).any():
            known = listed(frame[name].unique())
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
        frame = frame[frame[name] == value]
    return frame


def turned(frame: pd.DataFrame) -> tuple[pd.DataFrame, str | None, list[str]]:
    """The table with columns of months, years, hours, ... as rows, which these are, and notices.

    Rows and columns of totals and means are left out.
    """
    for part in (*_COLUMNS_OF_TIMES, "date"):
        pattern = _COLUMNS_OF_TIMES.get(part, "")
        names = [n for n in frame if re.fullmatch(pattern, english(n.lower())) or kind(n) == part]
        if part == "hour" and len(names) == 12 and all(name.isdigit() for name in names):
            part = "month"
        elif part == "day":
            days = [int(re.sub(r"\D", "", name)) for name in names]
            names = names if days == [*range(1, len(days) + 1)] and 28 <= len(days) <= 31 else []
        elif part == "month" and 3 < len(names) < 12:  # others are in another language
            first = frame.columns.get_loc(names[0])
            months = dict(zip(frame.columns[first : first + 12], range(1, 13), strict=False))
            names = list(months) if len(months) == 12 else names
        names = [name for name in names if main_kind(frame[name]) == "number"]
        if len(names) > (11 if part == "hour" else 1):
            notices = [f"Columns of {part}s are turned into rows."]
            others = [name for name in frame if name not in names and not _TOTAL.fullmatch(name)]
            is_total = frame[others].apply(lambda c: c.str.fullmatch(_TOTAL)).any(axis=1)
            is_total &= not is_total.all()
            for what, count in (
                ("column", frame.shape[1] - len(names) - len(others)),
                ("row", int(is_total.sum())),
            ):
                notices += [f"{counted(count, what)} of totals or means left out."] * bool(count)
            frame = frame[~is_total]
            long = frame.melt(others, names, part, f"value by {part}", ignore_index=False)
            month = re.compile(_COLUMNS_OF_TIMES["month"] + r"|\d\d?")
            is_told = all(month.fullmatch(english(name.lower())) for name in names)
            if part in ("month", "day") and not is_told:
                long[part] = long[part].map({name: str(i + 1) for i, name in enumerate(names)})
            return long.sort_index(kind="stable"), part, notices
    return frame, None, []


def with_rows(frame: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str]:
    """The table with a column that counts rows, from below if dates fall, and a notice."""
    numbers, order = np.arange(len(frame)), "first to the last row"
    for column in [column for column in frame if main_kind(frame[column]) == "date"]:
        cells = frame[column][~is_missing(frame[column])]
        with suppress(ValueError):
            times = read_times(cells, dayfirst=None, date_format=None, decimal=None)[0]
            if len(times) > 1 and (np.diff(times) <= np.timedelta64(0)).all():
                numbers, order = numbers[::-1], f"last to the first row, as {column!r} falls"
    return frame.assign(**{name: numbers.astype(str)}), f"Rows are counted from the {order}."


def _part(cells: pd.Series) -> tuple[str, bool]:
    """Which part of a time a column holds, and whether its name says so; "" for none."""
    cells = cells[~is_missing(cells)]
    words = re.sub("([a-z])([A-Z])", r"\1 \2", str(cells.name)).lower()
    if (found := main_kind(cells)) in ("date", "clock"):
        return found, True
    parts = cells.str.extract(r"^([A-Za-z]{0,4})[ _-]?(\d{1,4})(?:\.0| ?- ?\d\d?)?$")
    if cells.empty or parts[1].isna().any():
        if len(cells) and (
            cells.str.lower().map(english).str.fullmatch(_COLUMNS_OF_TIMES["month"]).all()
        ):
            return "month", True
        rises = found == "number" and pd.to_numeric(cells, errors="coerce").is_monotonic_increasing
        if "time" in words and cells.str.fullmatch(r"\d{6}").all():
            return "clock", True
        has_name = re.search("dat|time|day|week|month|period", words)
        is_date = is_compact(cells) or cells.str.fullmatch(r"[2-7]\d{4}").all()  # serial
        return ("date" if (rises or has_name) and is_date else "", True)
    n = parts[1].astype(int)
    for part, (names, largest) in _PARTS.items():
        is_named = bool(re.search(rf"(?<![a-z])(?:{names})(?![a-z])", words))
        is_named = is_named or _MARKS.get(parts[0].iloc[0].upper()) == part
        if is_named and (part != "year" or n.min() >= 1500) and n.max() <= max(largest):
            return part, True
    for part, (_, largest) in _PARTS.items():
        is_part = (n.min() >= 1500 and n.is_monotonic_increasing) if part == "year" else n.min() < 2
        if is_part and n.max() in largest:
            return part, False
    return "", False


def find_times(frame: pd.DataFrame, times: Sequence[str], target: str | None) -> dict[str, str]:
    """Columns that tell the time, by the part of it that they hold."""
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
            count = frame.duplicated([columns[part] for part in chain]).sum()
            is_named = all(found[columns[part]][1] for part in chain)
            if count <= _REPEATED * len(frame) or is_named:
                ranks[chain] = max(count - _REPEATED * len(frame), 0), not is_named
    best = min(ranks, key=lambda chain: ranks[chain], default=())
    if best and best != ("year",):
        return {part: columns[part] for part in best}
    return {"0": _rising(frame, target)}


def _rising(frame: pd.DataFrame, target: str | None) -> str:
    """Return the column of numbers that holds the time: by its name, or by its order."""
    names = [name for name in frame if name != target]
    numbers = [name for name in names if main_kind(frame[name]) == "number"]
    if len(numbers) + (target is not None) < 2:
        named = [name for name in names if _TIME_NAMES.fullmatch(name.lower())]
        return (named or [name for name in names if name not in numbers] or names)[0]

    def rank(name: str) -> tuple[bool, ...]:
        gaps = pd.to_numeric(frame[name].str.replace(",", "."), errors="coerce").dropna().diff()
        gaps = gaps.iloc[1:]
        rises, is_named = (gaps > 0).all() or (gaps < 0).all(), _has_time_name(frame[name])
        is_equal = rises and np.allclose(gaps, gaps.iloc[:1].sum(), atol=0)
        return is_named or rises, is_named and rises, is_named, is_equal

    best = max(numbers, key=rank)  # the first of these
    if not rank(best)[0]:
        raise ValueError(
            f"Which column holds the time? None holds dates, and none of {_all(numbers)} rises "
            "from row to row: name it by time (--time), or say time='rows' (--time rows) to count "
            "the rows."
        )
    return best


def find_target(frame: pd.DataFrame, times: Sequence[str]) -> str:
    """The only column of numbers beside the times, but for those that are like times."""
    others = [name for name in frame if name not in times]
    if len(others) != 1:
        others = [name for name in others if name and main_kind(frame[name]) == "number"]
        for is_like in (_has_time_name, _is_constant, _counts_rows):
            plain = [name for name in others if not is_like(frame[name])]
            others = plain or others
    if len(others) != 1:
        raise ValueError(
            f"Which column is the target? The columns are {_all(frame)}; name it by target "
            "(--target)."
        )
    return others[0]


def _has_time_name(cells: pd.Series) -> bool:
    part, is_named = _part(cells)
    return (part != "" and is_named) or bool(_TIME_NAMES.fullmatch(str(cells.name).lower()))


def _is_constant(cells: pd.Series) -> bool:
    return cells.nunique() == 1


def _counts_rows(cells: pd.Series) -> bool:
    steps = pd.to_numeric(cells, errors="coerce").diff().iloc[1:]
    return len(steps) > 1 and bool((steps == 1).all())


def joined(
    frame: pd.DataFrame, columns: Mapping[str, str], dayfirst: bool | None = None
) -> tuple[pd.Series, list[str]]:
    """One column of times from those of years, months, hours, ..., and notices.

    Hours 1 to 24 and periods such as 1 to 48 are dated to their starts. Days with an hour more or
    less have its clock times twice or not at all.
    """
    if len(columns) == 1:
        return frame[next(iter(columns.values()))], []
    notices, text = [], pd.Series("", frame.index)
    for part, name in columns.items():
        cells = frame[name].str.replace(r"\.0$", "", regex=True)
        digits = cells.str.extract(r"(\d+)")[0]
        if part == "date" and cells.str.fullmatch(r"[2-7]\d{4}").all():
            days = pd.to_datetime(cells.astype(int), unit="D", origin="1899-12-30")  # Excel's
            text = days.dt.strftime("%Y-%m-%d")
        elif part in ("date", "year"):
            text = cells
        elif part == "doy":
            text += "-" + digits.str.zfill(3)
        elif part == "day" and "date" in columns:  # of a month of a year
            text = (text + "-" + cells).mask(text.str.match(r".*\D\d{4}$"), cells + "-" + text)
        elif part == "day" or (part == "month" and "day" in columns):
            text += "-" + cells
        elif part in ("month", "quarter", "week"):
            mark = cells.str[0].where(cells.str.match("[MQWmqw]"), part[0])
            text += "-" + (mark + digits).fillna(cells)
        elif part == "minute":
            text = text.str.replace(r":\d\d$", ":", regex=True) + digits.str.zfill(2)
        elif part != "hour" or digits.isna().any() or cells.str.contains("[.:]").any():
            text += " " + cells.str.replace(END, "", regex=True)
        else:
            n = digits.astype(int)
            minutes = n // 100 * 60 + n % 100  # of 1330
            if n.max() <= 100:
                per_day = next(p for p in (24, 48, 96) if n.max() <= p + p // 24)
                first = int(n.min() > 0 and (n.max() >= 24 or per_day > 24))
                minutes = (n - first) * (1440 // per_day)
                told = f"{name!r} counts from 1, {1440 // per_day} minutes each; times are starts."
                notices += [told] * first
                extra, last = per_day // 24, n.groupby(text).transform("max") - first + 1
                is_long = (last > per_day) & (first > 0 or per_day > 24)
                is_short = (last == per_day - extra) & (first > 0) & _can_change(text, dayfirst)
                change = 60 if per_day == 48 else 120  # in Britain, and elsewhere
                minutes -= 60 * (is_long & (minutes >= change + 60))
                minutes += 60 * (is_short & (minutes >= change))
                for days, is_so, what in (
                    (is_long, per_day + extra, "is there twice"),
                    (is_short, per_day - extra, "is missing"),
                ):
                    if days.any():
                        notices.append(
                            f"{counted(text[days].nunique(), 'day')} with {is_so} values in "
                            f"{name!r} as clocks change: the hour from {change // 60}:00 {what}."
                        )
            text += minutes.map(lambda m: f" {m // 60}:{m % 60:02}")
    return text.str.strip().rename(" ".join(columns.values())), notices


def _can_change(dates: pd.Series, dayfirst: bool | None) -> pd.Series:
    """Whether days are Sundays of months in which clocks are set forward."""
    with suppress(ValueError):
        days = read_times(dates, dayfirst=dayfirst, date_format=None, decimal=None)[0]
        if days.dtype.kind == "M":
            stamps = pd.DatetimeIndex(days.astype("datetime64[s]"))
            return pd.Series((stamps.weekday == 6) & stamps.month.isin([3, 9, 10]), dates.index)
    return pd.Series(False, dates.index)


def check_one_series(
    frame: pd.DataFrame, x: np.ndarray, times: Sequence[str], target: str, *, named: bool
) -> None:
    """Raise an error for a file of several series, which one or two columns name."""
    repeated, limit = int(pd.Series(x).duplicated().sum()), _REPEATED * len(x)
    others = [
        c for c in frame if c not in (*times, target) and 1 < frame[c].nunique() <= len(x) / 3
    ]
    for group in [*combinations(others, 1), *combinations(others, 2)] if repeated >= limit else []:
        keys = frame[list(group)]
        if keys.assign(**{"the time": x}).duplicated().sum() <= _UNTOLD * repeated:
            where = keys.iloc[0].to_dict()
            options = " ".join(f"--where {shlex.quote('='.join(pair))}" for pair in where.items())
            raise ValueError(
                f"The file seems to hold {len(keys.drop_duplicates())} series, named by "
                f"{listed(group)}: choose one by where={where} ({options})."
            )
    count = pd.Series(x).value_counts()
    is_date = x.dtype.kind == "M" or 1500 <= x.min() <= x.max() < 2200
    if is_date and not named and 2 * len(count) <= x.size:
        again = " ".join(f"--time {shlex.quote(name)}" for name in times)
        raise ValueError(
            f"{count.iloc[0]} rows have the time {count.index[0]}: name all columns that tell the "
            f"time (such as {again} --time COL), choose the rows of one series by where (--where "
            f"COL=VALUE), or name {listed(times)} by time ({again}) to use all rows."
        )


def unused(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
    """Notices on columns that may be covariates, or name series that follow each other."""
    notices = []
    others = [name for name in frame if name not in taken and frame[name].nunique() > 1]
    found = {name: main_kind(frame[name]) for name in others}
    full = [c for c in others if found[c] == "number" and not is_missing(frame[c]).any()]
    full = [c for c in full if not (_has_time_name(frame[c]) or _counts_rows(frame[c]))]
    if full:
        options = " ".join(map(shlex.quote, full))
        notices.append(
            f"Columns of numbers that are not used: {listed(full)}; if they are known for the "
            f"future, name them by covariates (--covariates {options})."
        )
    for name in [name for name in others if found[name] == "text"]:
        count = frame[name].nunique()
        if (frame[name] != frame[name].shift()).sum() == count <= len(frame) / 3:
            option = shlex.quote(f"{name}={frame[name].iloc[0]}")
            notices.append(
                f"All rows are one series, though {name!r} has {count} values; --where {option} "
                "reads those of one."
            )
    return notices
