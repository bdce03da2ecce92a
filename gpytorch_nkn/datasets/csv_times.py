"""Times in text files: dates, periods, times of day (needs pandas)."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import drop_advice, is_missing, number_masks, read_numbers

__all__ = ["INTERVAL_END", "MONTH", "is_compact", "kinds", "main_kind", "read_times"]

MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_WEEKDAY = r"\(?\b(?:mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?(?:day)?\b\)?[.,]?"
_CLOCK = (  # 5:30, 18.00.00, 12.00.00 am, 6 pm, 0530, with a zone or without
    r"(?P<hour>\d\d?)(?:[:.]?(?P<minute>\d\d)(?:[:.]?(?P<second>\d\d(?:[.,]\d+)?))?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?"
    r"(?: ?(?P<zone>z|[+-]\d\d(?::?\d\d)?|\(?[a-z]{3,4}(?:/[a-z]{3,4})?\)?))?$"
)
_FULL_HOUR = r"\d\d?\.[0-5][05]\.00"  # no date
_DATE_AND_CLOCK = (
    r"^(?P<date>.{4,}?)(?:(?:(?<=\d)t(?=\d\d)|[ ,]+(?=\d\d?[:.]\d\d|\d\d? ?[ap]\.?m)"
    rf"|(?<=\d{{8}})[ :_](?=\d{{4}})){_CLOCK}|$)"
)
INTERVAL_END = (
    r"(?: +(?:-|\u2013|to) +|/(?=\d{4}-\d\d-)|(?:(?<=^\d\d:\d\d)|(?<=^\d:\d\d))[-\u2013])"
    r"(?=\d+[-./:]\d).*"
)
_TOKENS = {  # what makes a date numbers and names of months with hyphens
    r"^(\d{4}):": r"\1-",
    rf"({MONTH})[a-z]*": r"-\1-",
    r"(?<=\d)(?:st|nd|rd|th)\b|(?<=\d)(?=[a-z])|(?<=[a-z])(?=\d)": "-",
    r"[\s./,'\u2019_-]+": "-",
    "^-|-$": "",
}
_DATE = (  # of tokens
    rf"\d{{1,4}}-\d\d?-\d{{1,4}}|\d{{4}}-\d{{1,3}}|\d\d?-\d{{4}}|\d{{2,4}}-{MONTH}|\d{{4}}-w-\d+-\d"
    rf"|(?:\d{{1,4}}-)?{MONTH}(?:-\d{{1,4}}){{1,2}}"
)
_PERIOD = (  # of tokens: 2001-q-3, q-3-2001, 3-q-2001, 2020-w-5, 2020-w-5-7
    r"^(?:(?P<year>\d\d|\d{4})-)?(?:(?P<unit>[mqtwsh])-(?P<n>\d\d?)|(?P<n2>\d)-(?P<unit2>[qh]))"
    r"(?:-(?P<last>\d+))?$"
)
_MONTHS = {"m": 1, "q": 3, "t": 3, "s": 6, "h": 6}
_FORMATS = (
    "%Y-%m-%d %d-%m-%Y %m-%d-%Y %d-%m-%y %m-%d-%y %y-%m-%d %d-%b-%Y %d-%b-%y %b-%d-%Y %Y-%b-%d "
    "%Y-%m %m-%Y %b-%Y %b-%y %Y-%b %Y%m %Y%m%d %Y%m%d%H %Y%m%d%H%M %Y%m%d%H%M%S %Y-%j"
).split()
_ORDERED = _FORMATS[1:6]  # where day, month or year may come first
_SAMPLE = 1000  # cells that tell what a column holds
_CENTURY = 1930  # the first year that two digits stand for
_EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}  # about now, since 1970


def kinds(cells: pd.Series) -> pd.Series:
    """Kind of each cell: missing, number, date, clock or text."""
    unique = pd.Series(cells.unique(), dtype=object)
    is_number, is_plain = number_masks(unique)
    found = pd.Series(np.select([is_missing(unique), is_plain], ["missing", "number"], "text"))
    rest = unique[(found == "text") & unique.str.contains(r"\d")]
    if len(rest):
        lower = rest.str.lower().str.replace(INTERVAL_END, "", regex=True)
        is_clock = lower.str.fullmatch(_CLOCK) & lower.str.match(r"\d\d?(?:[:.]\d\d| ?[ap])")
        is_date = _split(rest)["date"].str.fullmatch(_DATE) & ~rest.str.fullmatch(_FULL_HOUR)
        masks = [is_date, is_clock, is_number[rest.index]]
        found[rest.index] = np.select(masks, ["date", "clock", "number"], "text")
    return cells.map(dict(zip(unique, found, strict=True)))


def main_kind(cells: pd.Series) -> str:
    """Kind of more than half of the cells that are not missing, from the first value on."""
    return _main_kind(tuple(cells.head(_SAMPLE)))


@lru_cache(1000)
def _main_kind(cells: tuple[str, ...]) -> str:
    found = kinds(pd.Series(cells, dtype=object))
    found = found[found.isin(["number", "date", "clock"]).cummax() & (found != "missing")]
    counts = found.value_counts()
    return str(counts.index[0]) if len(counts) and 2 * counts.iloc[0] > counts.sum() else "text"


def is_compact(cells: pd.Series) -> bool:
    """Whether all numbers are dates: 20010930, 200109, 2001.1 to 2001.4, 2001.01 to 2001.12."""
    unique = pd.Series(cells.unique(), dtype=object)
    month = r"(?:1[6-9]|2[01])\d\d(?:0[1-9]|1[0-2])"
    week = r"|\d{6}" if "week" in str(cells.name).lower() else ""
    pattern = rf"{month}(?:(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-4])(?:[0-5]\d){{0,2}})?)?{week}"
    if unique.str.fullmatch(pattern).all():
        return len(unique) > 1 and unique.str.len().nunique() == 1
    parts = set(unique.str.extract(r"^\d{4}\.(\d\d?)$|^(\d\d)\.\d{4}$").fillna("").sum(axis=1))
    return parts in (set("1234"), {f"{i:02}" for i in range(1, 13)})


def _split(cells: pd.Series) -> pd.DataFrame:
    """Tokens of dates, units of periods, times of day, minutes from UTC."""
    lower = cells.str.lower().str.replace(INTERVAL_END, "", regex=True)
    lower = lower.str.replace(_WEEKDAY, " ", regex=True).str.strip()
    found = lower.str.extract(_DATE_AND_CLOCK)
    date = found["date"].where(found["date"].notna(), lower)
    for pattern, token in _TOKENS.items():
        date = date.str.replace(pattern, token, regex=True)
    period = date.str.extract(_PERIOD).fillna("")
    unit, n = period["unit"] + period["unit2"], period["n"] + period["n2"]  # one is empty
    is_first = period["year"] != ""
    year = period["year"].where(is_first, period["last"])
    late = pd.to_numeric(year, errors="coerce") >= _CENTURY % 100
    year = year.mask(year.str.len() == 2, late.map({True: "19", False: "20"}) + year)
    day = period["last"].where(is_first & (period["last"] != ""), "1")
    date = date.mask(unit == "w", year + "-w-" + n + "-" + day)
    month = (pd.to_numeric(n) - 1) * unit.map(_MONTHS) + 1
    date = date.mask(month.notna(), year + "-" + month.map("{:02.0f}".format))
    hour = pd.to_numeric(found["hour"]).fillna(0)
    hour = hour.mask(found["half"].notna(), hour % 12 + 12 * (found["half"] == "p"))
    minute, second = (found[c].str.replace(",", ".").astype(float) for c in ("minute", "second"))
    clock = pd.to_timedelta(3600 * hour + 60 * minute.fillna(0) + second.fillna(0), unit="s")
    zone = found["zone"].str.replace("[():]", "", regex=True)
    zone = zone.str.replace("^(?:z|utc|gmt)$", "+00", regex=True)
    digits = zone.str.extract(r"^([+-])(\d\d)(\d\d)?$")
    offset = 60 * pd.to_numeric(digits[1]) + pd.to_numeric(digits[2]).fillna(0)
    offset *= (digits[0] + "1").astype(float)
    return pd.DataFrame({"date": date, "unit": unit, "clock": clock, "offset": offset})


def read_times(
    cells: pd.Series, *, dayfirst: bool | None, date_format: str | None, decimal: str | None
) -> tuple[np.ndarray, str, list[str]]:
    """Times ``N`` of a column of strings as numbers or ``datetime64``, their zone, and notices.

    All cells have one format. Where several formats fit, the one is used that alone gives times
    with few gaps. Days come first in 01.02.2001. Months and quarters are ``datetime64[M]``.
    Dates with equal offsets keep them: the zone is then ``"UTC+02:00"``, say. Dates at one time of
    day keep their local time without a zone. Others are converted to ``"UTC"``.

    Raises:
        ValueError: A cell is not a time, or its format differs, or the format is ambiguous.
    """
    unique = pd.Series(cells.unique(), dtype=object)
    if date_format is not None:
        return _by_format(cells, date_format), "", []
    is_number = unique.str.fullmatch(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?").all()
    if is_number and not is_compact(cells):
        values, notices = read_numbers(cells, decimal=decimal, sep=".")
        unit = next((unit for unit, now in _EPOCHS.items() if abs(values).max() < 10 * now), "ns")
        if abs(values).min() < 0.3 * _EPOCHS[unit]:
            return values, "", notices
        dates = pd.to_datetime(values, unit=unit).round("ms").to_numpy()
        return _coarsest(dates), "", [f"Times are read as {unit} since 1970."]
    split = _split(unique)
    clock, offset = split["clock"], split["offset"]
    good = (clock <= pd.Timedelta(hours=25)) & (offset.notna() == (offset.notna().mean() > 0.5))
    if not good.all():
        raise ValueError(_not_a_time(cells, good))
    dates, form, notices = _dates(cells, split, dayfirst)
    zone = ""
    if offset.nunique() == 1:
        hours, minutes = divmod(int(abs(offset[0])), 60)
        zone = f"UTC{'-' if offset[0] < 0 else '+'}{hours:02}:{minutes:02}"
    elif offset.notna().any() and clock.nunique() == 1:
        notices.append("Times are local: offsets from UTC are dropped.")
    elif offset.notna().any():
        zone = "UTC"
        dates -= pd.to_timedelta(offset, unit="min")
        notices.append("Times are converted to UTC.")
    if unique.str.contains(INTERVAL_END).any():
        notices.append("Intervals are dated to their starts.")
    found = cells.map(dict(zip(unique, dates, strict=True))).to_numpy("datetime64[us]")
    return _coarsest(found, months=not re.search("%[dj]|days", form)), zone, notices


def _dates(
    cells: pd.Series, split: pd.DataFrame, dayfirst: bool | None
) -> tuple[pd.Series, str, list[str]]:
    """Times of the unique cells, the format of their dates, and notices."""
    name, unique = str(cells.name), pd.Series(split["date"].unique())
    positions = pd.Index(unique).get_indexer(split["date"])
    is_quarter = split["unit"].isin(["q", "t"]).any()
    pairs = unique.str.extract(r"^(\d{4})-?(\d\d?)$")
    if pairs.notna().all(axis=None):
        year, n = pairs[0], pairs[1].astype(int)
        if len(n) > 2 and (n == (year.astype(int) + 1) % 100).all():  # 2001/02, 2002/03, ...
            unique = year + "-01"
        elif "week" in name.lower() or (n > 12).mean() > 0.5:
            unique = year + "-w-" + pairs[1] + "-1"
        elif set(n) == {1, 2, 3, 4}:
            unique, is_quarter = year + "-" + (3 * n - 2).astype(str), True
    if dayfirst is None and cells.str.match(r"\d\d?\.\d\d?\.").all():
        dayfirst = True
    forms = [f for f in _FORMATS if f not in _ORDERED or dayfirst in (None, f[1] == "d")]
    if unique.str.contains("-w-").any():
        is_epi = re.search("epi|mmwr|cdc", name.lower())
        forms = ["Sundays"] if is_epi else ["Mondays", "Sundays"]
    readings: dict[str, pd.Series] = {}
    good = unique.str.fullmatch(r"\d+")
    for form in forms:
        if "%" not in form:
            values = _days_of_weeks(unique, form)
        else:
            shape = ".*-.*" if "-" in form else rf"\d{{{2 * form.count('%') + 2}}}"
            shape = r"\d{4}-\d{3}" if form == "%Y-%j" else shape
            values = _to_datetime(unique.where(unique.str.fullmatch(shape), ""), form)
        good = max(good, values.notna(), key=sum)
        if values.notna().all() and not any(map(values.equals, readings.values())):
            readings[form] = values
    if not readings:
        raise ValueError(_not_a_time(cells, good[positions]))
    dates = {
        form: v[positions].reset_index(drop=True) + split["clock"] for form, v in readings.items()
    }
    likely = [form for form, values in dates.items() if _has_few_gaps(values)]
    form, *others = dates
    if len(likely) == 1:
        form = likely[0]
    elif others and dayfirst is None and "%" in form:
        values, other = dates[form], dates[others[0]]
        i = int((values != other).to_numpy().argmax())
        raise ValueError(
            f"{cells.unique()[i]!r} in the column {name!r} may be {values[i]:%Y-%m-%d} or "
            f"{other[i]:%Y-%m-%d}: say dayfirst=True or dayfirst=False (--dayfirst or "
            "--no-dayfirst)."
        )
    first = {"d": "day", "m": "month", "y": "year"}.get(form[1], "")
    told = {
        f"Dates are read {first} first.": form in _ORDERED,
        f"Years of two digits are read as {_CENTURY} to {_CENTURY + 99}.": "%y" in form,
        f"Weeks begin on {form}.": "%" not in form,
        "Times are read as quarters, and dated to their first month.": is_quarter,
    }
    return dates[form], form, [notice for notice, is_true in told.items() if is_true]


def _to_datetime(cells: pd.Series, form: str) -> pd.Series:
    """Dates of a format without zones, NaT where it does not fit."""
    dates = pd.to_datetime(cells, format=form, errors="coerce", utc="%z" in form)
    dates = dates.dt.tz_localize(None)
    if "%y" not in form or dates.isna().all():
        return dates
    return dates.mask(dates >= str(_CENTURY + 100), dates - pd.DateOffset(years=100))


def _days_of_weeks(tokens: pd.Series, start: str) -> pd.Series:
    """Days of weeks such as 2019-w-5-1, by ISO 8601 or, from Sunday, as in epidemiology.

    The first week of a year holds 4 January, and the fourth day of a week is in its year.
    """
    year, week, day = tokens.str.extract(r"^(\d{4})-w-(\d\d?)-(\d)$").astype(float).T.to_numpy()
    fourth = pd.to_datetime(pd.DataFrame({"year": year, "month": 1, "day": 4}), errors="coerce")
    back = (fourth.dt.weekday + (start == "Sundays")) % 7
    first = fourth + pd.to_timedelta(7 * (week - 1) - back, unit="D")
    is_valid = (first + pd.Timedelta(days=3)).dt.year == year
    return (first + pd.to_timedelta(day - 1, unit="D")).where(is_valid)


def _has_few_gaps(times: pd.Series) -> bool:
    """Whether at least half of the equal steps from the first to the last time are there."""
    ticks = np.unique(times.to_numpy("datetime64[s]"))
    for unit in ("D", "M"):
        coarse = ticks.astype(f"datetime64[{unit}]")
        ticks = coarse if len(np.unique(ticks - coarse)) == 1 else ticks
    steps = np.diff(ticks).astype(int)
    return ticks.size < 2 or bool(2 * ticks.size >= steps.sum() / steps.min() + 1)


def _not_a_time(cells: pd.Series, good: pd.Series) -> str:
    """The message on cells whose unique values are not all good."""
    is_good = cells.isin(cells.unique()[good])
    bad = cells[~is_good]
    text = f"Line {bad.index[0]}: {bad.iloc[0]!r} in the column {cells.name!r} is"
    if is_good.mean() < 0.5:
        return (
            f"{text} neither a number nor a date such as 2001-09-30, 30/09/2001, 2001-09, 2001Q3, "
            "2001-W36 or Sep 2001; name its format, such as date_format='%d.%m.%Y %Hh' "
            "(--date-format), or another column by time (--time), or say time='rows' (--time rows)."
        )
    return (
        f"{text} not a time such as {cells[is_good].iloc[0]!r}; {drop_advice(bad)}, or say "
        "time='rows' (--time rows)."
    )


def _by_format(cells: pd.Series, date_format: str) -> np.ndarray:
    option = f"date_format={date_format!r} (--date-format)"
    try:
        dates = _to_datetime(cells, date_format)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if dates.isna().any():
        bad = cells[dates.isna()]
        raise ValueError(
            f"Line {bad.index[0]}: {bad.iloc[0]!r} is not of {option}; {drop_advice(bad)}."
        )
    days = re.search("%[djeuwUWVDcxFHIMS]", date_format)
    return _coarsest(dates.to_numpy(), months=not days and "%Y" != date_format)


def _coarsest(dates: np.ndarray, *, months: bool = False) -> np.ndarray:
    """Dates in months, days, s or ms where these hold them."""
    for unit in ("M",) * months + ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
