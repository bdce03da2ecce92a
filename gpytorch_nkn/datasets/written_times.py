"""Times as people write them: one table of formats, and which of them a column is written in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

import numpy as np

from gpytorch_nkn.datasets.time_series import shift_to_month
from gpytorch_nkn.datasets.written_numbers import Cells, is_plain_number, read_numbers, shown

__all__ = ["looks_like_date", "read_times"]

_MONTHS = (
    "january february march april may june july august september october november december"
).split()
_PIVOT = 30  # years of two digits: 30 to 99 are 1930 to 1999, the others 2000 to 2029
_SERIAL = (10_000, 80_000)  # Excel's days of 1927 to 2119
_EXCEL = "1899-12-30"

_Y = r"(?P<y>\d{4})"
_YY = r"'?(?P<y>\d{4}|\d\d)"
_CENTURY = r"(?P<y>1[6-9]\d\d|2[01]\d\d)"  # digits alone are dates of these
_M = r"(?P<m>1[0-2]|0?[1-9])"
_MM = r"(?P<m>1[0-2]|0[1-9])"
_D = r"(?P<d>3[01]|[12]\d|0?[1-9])"
_DD = r"(?P<d>3[01]|[12]\d|0[1-9])"
_Q = r"(?P<q>[1-4])"
_W = r"W(?P<w>\d\d?)"
_B = "(?P<b>" + "|".join(rf"{m[:3]}(?:{m[3:]})?" for m in _MONTHS) + r"|sept)\.?"
_S = r"(?P<s>[-/.]| )"
_CLOCK = (
    r"(?:(?:T(?P<hour>\d\d)|(?:T|,? +)(?P<H>\d\d?):(?P<min>[0-5]\d)"
    r"(?::(?P<sec>[0-5]\d)(?:[.,](?P<frac>\d{1,9}))?)?)(?: ?(?P<half>[AP])\.?M\.?)?"
    r" ?(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?"
)
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? +)?"


@dataclass(frozen=True)
class _Format:
    """How dates are written.

    Args:
        example: One of them.
        pattern: What they match, with groups for year, month or quarter or week, and day.
        order: "day", "month" or "year" if that comes first where others could, too.
        notice: What is told of a column that is read in this way.
        months: Different months that must occur, so that numbers are not taken for dates.
    """

    example: str
    pattern: str
    order: str | None = None
    notice: str | None = None
    months: int = 0

    @property
    def regex(self) -> re.Pattern[str]:
        days = "(?P<d>" in self.pattern
        pattern = _WEEKDAY + self.pattern + _CLOCK if days else self.pattern
        return re.compile(pattern, re.IGNORECASE | re.ASCII)  # which re keeps


_AS_QUARTERS = "Times are read as quarters, and dated to their first month."
_AS_MONTHS = "Times are read as year and month."
_FORMATS = (
    _Format("2001-09-30", rf"{_Y}{_S}{_M}(?P=s){_D}"),
    _Format("20010930", rf"{_CENTURY}{_MM}{_DD}", months=1),
    _Format("2001-09", rf"{_Y}[-/:]{_M}"),
    _Format("200109", rf"{_CENTURY}{_MM}", months=1),
    _Format("2001M09", rf"{_Y}[-/: ]?M{_M}"),
    _Format("2001.09", rf"{_CENTURY}\.(?:{_MM}|(?P<tenth>1))", notice=_AS_MONTHS, months=12),
    _Format("09/2001", rf"{_M}[-/ ]{_Y}"),
    _Format("09.2001", rf"{_MM}\.{_CENTURY}", notice=_AS_MONTHS, months=12),
    _Format("2001Q3", rf"{_Y}[-/:. ]?Q{_Q}", notice=_AS_QUARTERS),
    _Format("Q3 2001", rf"Q{_Q}[-/:. ]*{_YY}", notice=_AS_QUARTERS),
    _Format("3Q 2001", rf"{_Q}Q[-/:. ]*{_YY}", notice=_AS_QUARTERS),
    _Format("2001-3", rf"{_Y}[-/:]{_Q}", notice=_AS_QUARTERS),
    _Format("2001.3", rf"{_CENTURY}\.{_Q}", notice=_AS_QUARTERS, months=4),
    _Format("2001-W36", rf"{_Y}[- ]?{_W}(?:-?(?P<wd>[1-7]))?", notice="Weeks begin on Mondays."),
    _Format("W36 2001", rf"{_W}[-/ ]*{_Y}", notice="Weeks begin on Mondays."),
    _Format("30/09/2001", rf"{_D}{_S}{_M}(?P=s){_YY}", order="day"),
    _Format("09/30/2001", rf"{_M}(?P<s>[-/ ]){_D}(?P=s){_YY}", order="month"),
    _Format("01-09-30", rf"(?P<y>\d\d)-{_MM}-{_DD}", order="year"),
    _Format("30 Sep 2001", rf"{_D}[-/. ]*{_B}[-/., ]*{_YY}"),
    _Format("Sep 30, 2001", rf"{_B}[-/. ]*{_D}[-/, ]+{_Y}"),
    _Format("2001 Sep 30", rf"{_Y}[-/. ]*{_B}[-/. ]*{_D}"),
    _Format("Sep 2001", rf"{_B}[-/., ]*{_YY}"),
    _Format("2001 Sep", rf"{_Y}[-/. ]*{_B}"),
)
_EXAMPLES = "2001-09-30, 2001-09, 2001Q3, 2001-W36, Sep 2001 or 30/09/2001"


def looks_like_date(cell: str) -> bool:
    """Whether a cell is written as a date that is no number."""
    return any(row.regex.fullmatch(cell) for row in _FORMATS if not row.months)


def read_times(
    cells: Cells,
    name: str,
    *,
    dayfirst: bool | None = None,
    date_format: str | None = None,
    decimal: str | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Times ``N`` of a column, numbers or ``datetime64``, and what there is to tell about them.

    All cells are of one format of the table. Where several formats fit and mean different dates,
    that one is taken which alone has no more gaps than dates. Days come first in 01.02.2001.
    Years of two digits are 1930 to 2029, as in Excel. Months and quarters are ``datetime64[M]``.
    Times with an offset are converted to UTC, unless all have the same offset or are of one time of
    the day by their own clocks.

    Args:
        cells: The column.
        name: Name of the column.
        dayfirst: Whether 01/02/2001 is in February; None finds out.
        date_format: Directives of :func:`pandas.to_datetime`, or "excel" or "unix" for numbers
            of days and seconds.
        decimal: Decimal mark of numbers; None finds it.

    Raises:
        ValueError: A cell is no time, or is of another format than the others, or it is in doubt
            what the column means.
    """
    if date_format is not None:
        return _by_format(cells, name, date_format, decimal), []
    texts = [cell for _, cell in cells]
    orders = {None: (None, "day", "month", "year"), True: (None, "day"), False: (None, "month")}
    formats = [row for row in _FORMATS if row.order in orders[dayfirst]]
    readings: list[tuple[_Format, np.ndarray]] = []
    for row in formats:
        values = _dates(row, texts)
        if values is not None and not any(np.array_equal(values, v) for _, v in readings):
            readings.append((row, values))
    if len(readings) > 1:
        likely = [(row, values) for row, values in readings if _has_few_gaps(values)]
        if len(likely) != 1:
            raise ValueError(_doubt(cells, name, readings))
        readings = likely
    if readings:
        row, values = readings[0]
        if row.example == "Sep 2001" and _may_lack_years(texts) and not _has_few_gaps(values):
            raise ValueError(
                f"{_at(cells[0], name)} may be a day without its year; if it is a month of a year, "
                "say date_format='%b %y' (--date-format '%b %y')."
            )
        return values, _notices(row, texts)
    try:
        numbers, notices = read_numbers(cells, name, decimal=decimal, grouped=False)
    except ValueError:
        raise ValueError(_no_format(cells, name, formats)) from None
    if numbers.size > 2 and ((numbers >= _SERIAL[0]) & (numbers <= _SERIAL[1])).all():
        notices.append(
            f"Times such as {texts[0]} are read as numbers; if they are Excel's serial dates, say "
            "date_format='excel' (--date-format excel)."
        )
    if (np.abs(numbers) > 1e8).all():
        notices.append(
            f"Times such as {texts[0]} are read as numbers; if they are seconds since 1970, say "
            "date_format='unix' (--date-format unix)."
        )
    return numbers, notices


def _dates(row: _Format, texts: list[str]) -> np.ndarray | None:
    """Dates of a column that is written in this format; None for any other."""
    regex, matches = row.regex, []
    for text in texts:
        match = regex.fullmatch(text)
        if match is None:
            return None
        matches.append(match.groupdict())
    try:
        days = np.array([_day(parts) for parts in matches], dtype="datetime64[D]")
    except ValueError:  # no such day or week
        return None
    months = days.astype("datetime64[M]")
    if row.months and (len(texts) < 2 or len(np.unique(months.astype(int) % 12)) < row.months):
        return None
    if "d" not in matches[0]:
        return days if "w" in matches[0] else months
    return _with_clock(days, matches)


def _day(parts: dict[str, str | None]) -> str:
    year = int(parts["y"] or 0)
    if len(parts["y"] or "") == 2:
        year += 1900 if year >= _PIVOT else 2000
    if parts.get("w"):
        week, weekday = int(parts["w"] or 0), int(parts.get("wd") or 1)
        return date.fromisocalendar(year, week, weekday).isoformat()
    month = int(parts.get("m") or 3 * int(parts.get("q") or 1) - 2)
    if parts.get("tenth"):  # 2001.10 that lost its zero
        month = 10
    if parts.get("b"):
        month = 1 + [name[:3] for name in _MONTHS].index((parts["b"] or "")[:3].lower())
    return f"{year:04}-{month:02}-{int(parts.get('d') or 1):02}"


def _with_clock(days: np.ndarray, matches: list[dict[str, str | None]]) -> np.ndarray | None:
    """Days with their times of day, as coarse as loses nothing."""
    clocks = np.array([_microseconds(parts) for parts in matches], dtype="timedelta64[us]")
    zoned = [parts["zone"] is not None for parts in matches]
    if any(zoned) != all(zoned) or (clocks > np.timedelta64(24, "h")).any():
        return None
    if any(zoned) and not _by_own_clock(matches):
        clocks = clocks - np.array([_offset(parts) for parts in matches], dtype="timedelta64[m]")
    return _coarsest(days + clocks)


def _microseconds(parts: dict[str, str | None]) -> int:
    hour, minute, second = (int(parts[key] or 0) for key in ("H", "min", "sec"))
    hour = int(parts["hour"]) if parts["hour"] else hour
    if parts["half"]:
        hour = hour % 12 + 12 * (parts["half"] in "pP")
    fraction = int(((parts["frac"] or "") + "000000")[:6])
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def _offset(parts: dict[str, str | None]) -> int:
    """Minutes from UTC."""
    zone = parts["zone"] or ""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return int(zone[0] + "1") * (60 * int(digits[:2]) + int(digits[2:]))


def _by_own_clock(matches: list[dict[str, str | None]]) -> bool:
    """Whether offsets can be left out: they are equal, or all times are of one time of the day."""
    return any(len(set(map(part, matches))) == 1 for part in (_offset, _microseconds))


def _has_few_gaps(dates: np.ndarray) -> bool:
    """Whether at least half of the equal steps from the first to the last date are there."""
    different = np.unique(dates)
    shift = shift_to_month(different)
    if shift is not None:
        different = (different + shift).astype("datetime64[M]")
    ticks = different.astype("int64")
    if ticks.size < 2:
        return True
    return bool(2 * ticks.size >= np.ptp(ticks) / np.diff(ticks).min() + 1)


def _may_lack_years(texts: list[str]) -> bool:
    return all(1 <= int(re.sub(r"\D", "", text)) <= 31 for text in texts)


def _notices(row: _Format, texts: list[str]) -> list[str]:
    matches = [m.groupdict() for m in map(row.regex.fullmatch, texts) if m]
    notices = [row.notice] if row.notice else []
    if row.order:
        notices.append(f"Dates are read {row.order} first.")
    if any(len(parts["y"] or "") == 2 for parts in matches):
        notices.append(f"Years of two digits are read as {1900 + _PIVOT} to {1999 + _PIVOT}.")
    if matches[0].get("zone"):
        own = "Times are those of their own clocks: offsets from UTC are left out."
        notices.append(own if _by_own_clock(matches) else "Times are converted to UTC.")
    return notices


def _doubt(cells: Cells, name: str, readings: list[tuple[_Format, np.ndarray]]) -> str:
    (_, first), (_, second) = readings[:2]
    i = int(np.argmax(first != second))
    orders = {row.order for row, _ in readings}
    if orders <= {"day", "month"}:
        remedy = "say dayfirst=True or dayfirst=False (--day-first or --month-first)"
    elif None in orders:  # months or quarters
        remedy = "say date_format='%Y-%m' (--date-format %Y-%m) or write quarters as 2001Q3"
    else:
        remedy = "name the format, such as date_format='%y-%m-%d' (--date-format %y-%m-%d)"
    return f"{_at(cells[i], name)} may be {first[i]} or {second[i]}: {remedy}."


def _at(cell: tuple[int, str], name: str) -> str:
    return f"Line {cell[0]}: {shown(cell[1])} in the column {shown(name)}"


def _no_format(cells: Cells, name: str, formats: list[_Format]) -> str:
    numbers = [is_plain_number(cell) for _, cell in cells]
    matches = [[bool(row.regex.fullmatch(cell)) for _, cell in cells] for row in formats]
    matching = max([*matches, numbers], key=lambda found: sum(found))
    if all(matching):
        for cell in cells:
            if all(_dates(row, [cell[1]]) is None for row in formats):
                return f"{_at(cell, name)} does not exist."
        return (
            f"Some times of the column {shown(name)} have an offset from UTC, and some have none."
        )
    bad = cells[matching.index(False)]
    if 2 * sum(matching) >= len(cells):
        line, usual = cells[matching.index(True)]
        return (
            f"{_at(bad, name)} is written otherwise than {shown(usual)} in line {line}; times must "
            "be of one format. Lines that are no data need a # or skiprows (--skip-rows)."
        )
    return (
        f"{_at(bad, name)} is neither a number nor a date such as {_EXAMPLES}; name other formats "
        "by date_format='%d.%m.%Y %Hh' or so (--date-format), another column by time (--time)."
    )


def _by_format(cells: Cells, name: str, date_format: str, decimal: str | None) -> np.ndarray:
    """Dates of a format that was given."""
    import pandas as pd

    if date_format in ("excel", "unix"):
        numbers, _ = read_numbers(cells, name, decimal=decimal, grouped=False)
        unit = "D" if date_format == "excel" else "ms" if abs(numbers).min() > 1e11 else "s"
        try:
            origin = _EXCEL if date_format == "excel" else "unix"
            dates = pd.to_datetime(numbers, unit=unit, origin=origin).round("ms")
        except (OverflowError, ValueError):
            worst = cells[int(np.argmax(abs(numbers)))]
            raise ValueError(f"{_at(worst, name)} is no date of {date_format!r}.") from None
        return _coarsest(dates.to_numpy())
    texts = pd.Series([cell for _, cell in cells])
    try:
        parsed = pd.to_datetime(
            texts, format=date_format, errors="coerce", utc="%z" in date_format or None
        )
    except ValueError as error:
        raise ValueError(f"date_format={date_format!r} (--date-format): {error}") from None
    if parsed.isna().any():
        bad = cells[int(parsed.isna().argmax())]
        raise ValueError(
            f"{_at(bad, name)} is not written as {date_format!r} (date_format, --date-format)."
        )
    dates = parsed.dt.tz_localize(None).to_numpy()
    if "%y" in date_format:
        months = dates.astype("datetime64[M]")
        late = months >= np.datetime64(str(2000 + _PIVOT))
        dates = np.where(
            late, (months - np.timedelta64(1200, "M")).astype(dates.dtype) + (dates - months), dates
        )
    if not re.search("%[djeuwUWVDcxF]", date_format):
        if re.search("%[mbB]", date_format) and not re.search("%[HIMS]", date_format):
            return dates.astype("datetime64[M]")
    return _coarsest(dates)


def _coarsest(dates: np.ndarray) -> np.ndarray:
    for unit in ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
