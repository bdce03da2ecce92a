"""Times in text files: dates, periods, times of day (needs pandas)."""

from __future__ import annotations

import re
from datetime import timezone
from functools import lru_cache

import numpy as np
import pandas as pd

from gpytorch_nkn.datasets.csv_cells import MISSING, drop_advice, number_parts, once, read_numbers

__all__ = ["INTERVAL_END", "MONTHS", "is_compact", "kind", "main_kind", "read_times"]

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = f"(?:{'|'.join(MONTHS)})"
_CLOCK = (  # 5:30, 18.00.00, 12.00.00 am, 6 pm, 0530, with a zone or without
    r"(?P<hour>\d\d?)(?:[:.]?(?P<minute>\d\d)(?:[:.]?(?P<second>\d\d(?:[.,]\d+)?))?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?"
    r"(?: ?(?P<zone>z|[+-]\d\d(?::?\d\d)?|\(?[a-z]{3,4}(?:/[a-z]{3,4})?\)?))?$"
)
_DATE_AND_CLOCK = (
    r"^(?P<date>.{4,}?)(?:(?:(?<=\d)t(?=\d\d)|[ ,]+(?=\d\d?[:.]\d\d|\d\d? ?[ap]\.?m)"
    rf"|(?<=\d{{8}})[ :_](?=\d{{4}})|(?<=[a-z]\d{{4}}):(?=\d\d:)){_CLOCK}|$)"
)
_CLOCK_ALONE = r"\d\d?(?::|\.[0-5][05]\.00| ?[ap]|\.\d\d.*[ap])"
INTERVAL_END = (
    r"(?: +(?:-|\u2013|to) +|/(?=\d{4}-\d\d-)|(?:(?<=^\d\d:\d\d)|(?<=^\d:\d\d))[-\u2013])"
    r"(?=\d+[-./:]\d).*"
)
_CENTURY = 1930  # the first year that two digits stand for
_TOKENS = {  # replacements that turn dates into numbers and names of months with hyphens
    r"\(?\b(?:mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?(?:day)?\b\)?[.,]?": " ",
    r"^ *(\d{4}):": r"\1-",
    rf"({_MONTH})[a-z]*": r"-\1-",
    r"\bfy(?=[ '\d])": "",
    r"(?<![a-z])(?:quarter|qtr)": "q",
    r"\bweek\b": "w",
    r"(?<=\d)(?:st|nd|rd|th)\b|(?<=\d)(?=[a-z])|(?<=[a-z])(?=\d)": "-",
    r"[\s./,'\u2019_-]+": "-",
    "^-|-$": "",
    r"^(?:(\d+)-)?(?:[qt]-0?([1-4])|([1-4])-q)(?:-(\d+))?$": r"\1\4-q-q\2\3",
    **{f"q{i + 1}$": f"{3 * i + 1}" for i in range(4)},  # 2001-q-7
    r"^(\d{4})-m-(\d+)$": r"\1-\2",
    r"^w-(\d+)-(\d{4})$": r"\2-w-\1",
    r"^(\d{4}-w-\d+)$": r"\1-1",
    r"^(\d\d?)-(\d{4})$": r"\2-\1",
    r"^(\d{4})-\d\d(\d\d)$": r"\1-\2",  # 2001-2002
}
_FORMATS = (
    "%Y-%m-%d %d-%m-%Y %m-%d-%Y %d-%m-%y %m-%d-%y %y-%m-%d %d-%b-%Y %d-%b-%y %b-%d-%Y %Y-%b-%d "
    "%Y-%m %b-%Y %b-%y %Y-%b %Y-q-%m %y-q-%m %Y%m %Y%m%d %Y%m%d%H %Y%m%d%H%M %Y%m%d%H%M%S "
    "%Y %Y-%j %G-w-%V-%u %Y-w-%U-%w"
).split()
_ORDERED, (_ISO_WEEKS, _WEEKS) = _FORMATS[1:6], _FORMATS[-2:]  # day, month or year may come first
_WIDTHS = {"Y": r"\d{4}", "G": r"\d{4}", "y": r"\d\d", "j": r"\d{3}", "b": _MONTH}
_SHAPES = {  # patterns of the formats
    form: re.sub("%(.)", lambda m: _WIDTHS.get(m[1], r"\d\d" + "?" * ("-" in m.string)), form)
    for form in _FORMATS
}
_DATE = "|".join([r"\d{8}", *(shape for shape in _SHAPES.values() if "-" in shape)])
_EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}  # about now, since 1970


@lru_cache(100_000)
def kind(cell: str) -> str:
    """Return the kind of a cell: missing, number, date, clock or text."""
    if re.fullmatch(r"[+-]?\d+\.?\d*", cell):  # most numbers
        return "number"
    lower, (_, mark, _, *fits) = cell.lower(), number_parts(cell)
    if re.fullmatch(MISSING, cell):
        return "missing"
    if any(fits) and not mark:
        return "number"
    if re.match(_CLOCK_ALONE, lower) and re.fullmatch(_CLOCK, re.sub(INTERVAL_END, "", lower)):
        return "clock"
    if re.search(r"\d", cell) and re.fullmatch(_DATE, _split(cell)[0]):
        return "date"
    return "number" if any(fits) else "text"


def main_kind(cells: pd.Series) -> str:
    """Return the kind of more than half of the first values, from the first number or date on."""
    found = [kind(cell) for cell in cells.head(1000)]
    begin = next((i for i, own in enumerate(found) if own in ("number", "date", "clock")), None)
    found = [own for own in found[begin:] if own != "missing"]
    found = found[found[:2] == ["date", "number"] :]  # a date may name a column of numbers
    most = max(set(found), key=found.count, default="text")
    return most if 2 * found.count(most) > len(found) else "text"


def is_compact(cells: pd.Series) -> bool:
    """Whether all numbers are dates, such as 20010930, 200109, 09.2001.

    So are 2001.1 to 2001.4 and 2001.01 to 2001.12, if all quarters or months occur.
    """
    some = pd.Series(cells.unique(), dtype=object)
    if some.str.fullmatch(r"\d{4}\.\d\d?").all():
        return set(some.str[5:]) in (set("1234"), {f"{i:02}" for i in range(1, 13)})
    week = r"|\d{6}" if "week" in str(cells.name).lower() else ""
    day = r"(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-4])(?:[0-5]\d){0,2})?"
    pattern = rf"(?:1[6-9]|2[01])\d\d(?:0[1-9]|1[0-2])(?:{day})?{week}|[01]\d\.(?:1[6-9]|2[01])\d\d"
    return bool(some.str.fullmatch(pattern).all() and len(some) > 1 == some.str.len().nunique())


def _split(cell: str) -> tuple[str, float, str]:
    """Split a time into tokens of the date, seconds of the day and the time zone."""
    lower = re.sub(INTERVAL_END, "", cell.lower())
    found = re.match(_DATE_AND_CLOCK, lower)
    if found is None:
        return _tokens(lower), 0.0, ""
    date, hour, minute, second, half, zone = found.groups()
    clock = 3600 * float(hour or 0) + 60 * float(minute or 0)
    clock += float(second.replace(",", ".")) if second else 0.0
    return _tokens(date), clock % 43200 + 43200 * (half == "p") if half else clock, zone or ""


@lru_cache(100_000)
def _tokens(date: str) -> str:
    """Replace the patterns of _TOKENS, in their order."""
    for pattern, text in _TOKENS.items():
        date = re.sub(pattern, text, date)
    return date


def _offsets(zones: pd.Series) -> pd.Series:
    """Offsets from UTC of zones such as ``z`` and ``+0200``; NaT without an offset."""
    texts = "2000-01-01T00" + zones.str.replace("utc|gmt", "z", regex=True).replace("", "none")
    times = pd.to_datetime(texts.str.upper(), format="ISO8601", utc=True, errors="coerce")
    return pd.Timestamp("2000") - times.dt.tz_localize(None)


def read_times(
    cells: pd.Series,
    notices: list[str],
    *,
    dayfirst: bool | None,
    date_format: str | None,
    decimal: str | None,
) -> tuple[np.ndarray, str]:
    """Convert a column of strings to numbers or ``datetime64`` ``N``, with their zone.

    All cells have one format. If several formats fit, the only one that gives times with few gaps
    is used. Days come first in 01.02.2001. Months and quarters are ``datetime64[M]``. The zone of
    dates with equal offsets is the offset, such as ``"UTC+02:00"``. Daily dates with different
    offsets become local times without a zone. Other dates are converted to ``"UTC"``.

    Raises:
        ValueError: A cell is not a time, or its format differs, or the format is ambiguous.
    """
    codes, found = pd.factorize(cells)
    name, unique = str(cells.name), pd.Series(found, dtype=object)
    if date_format is not None:
        dates = _to_datetime(unique, date_format)
        if dates.isna().any():
            raise ValueError(_not_a_time(cells, dates.notna()))
        return _coarsest(dates.to_numpy("datetime64[us]")[codes], date_format), ""
    is_float = unique.str.fullmatch(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?").all()
    if is_float and not is_compact(cells):
        values = read_numbers(cells, notices, decimal=decimal, sep=".")
        unit = next((unit for unit, now in _EPOCHS.items() if abs(values).max() < 10 * now), "ns")
        if abs(values).min() < 0.3 * _EPOCHS[unit]:
            return values, ""
        notices.append(f"Times are read as {unit} since 1970.")
        return _coarsest(pd.to_datetime(values, unit=unit).round("ms").to_numpy(), "%d"), ""
    if dayfirst is None and unique.str.fullmatch(r"\d\d?\.\d\d?\..*").all():
        dayfirst = True
    forms = [f for f in _FORMATS if f not in _ORDERED or dayfirst in (None, f[1] == "d")]
    if re.search("epi|mmwr|cdc", name.lower()):
        forms.remove(_ISO_WEEKS)
    split = pd.DataFrame(list(map(_split, unique)), columns=["date", "clock", "zone"])
    clock, offset = pd.to_timedelta(split["clock"], "s"), once(_offsets, split["zone"])
    positions, tokens = pd.factorize(split["date"])
    tokens = _marked(pd.Series(tokens, dtype=object), name)
    good = (clock <= pd.Timedelta(hours=25)) & (offset.notna() == (offset.notna().mean() > 0.5))
    readings: dict[str, pd.Series] = {}
    best = tokens.isna()
    for form in (form for form in forms if tokens.str.fullmatch(_SHAPES[form]).any()):
        days = _to_datetime(tokens, form)
        best = max(best, days.notna(), key=sum)
        if days.notna().all() and not any(map(days.equals, readings.values())):
            readings[form] = days
    good &= best[positions].to_numpy()
    if not good.all():
        raise ValueError(_not_a_time(cells, good))
    readings = {f: days[positions].reset_index(drop=True) + clock for f, days in readings.items()}
    form = _choice(readings, unique, name, is_chosen=dayfirst is not None)
    dates, zone = readings[form], ""
    if offset.nunique() == 1:
        zone = str(timezone(offset[0].to_pytimedelta()))
    elif offset.notna().any() and clock.nunique() > 1:
        dates, zone = dates - offset, "UTC"
    first = {"d": "day", "m": "month", "y": "year"}.get(form[1], "")
    inferred = {
        f"Dates are read {first} first.": form in _ORDERED,
        f"Years of two digits are read as {_CENTURY} to {_CENTURY + 99}.": "%y" in form,
        f"Weeks begin on {'Mondays' if form == _ISO_WEEKS else 'Sundays'}.": "-w-" in form,
        "Times are read as quarters, and dated to their first month.": "q" in form,
        "Times are converted to UTC.": zone == "UTC" and offset.nunique() > 1,
        "Times are local: offsets from UTC are dropped.": not zone and offset.notna().any(),
        "Intervals are dated to their starts.": unique.head().str.contains(INTERVAL_END).any(),
    }
    notices += [notice for notice, is_so in inferred.items() if is_so]
    return _coarsest(dates.to_numpy("datetime64[us]")[codes], form), zone


def _marked(tokens: pd.Series, name: str) -> pd.Series:
    """Mark fiscal years, weeks and quarters among tokens of a year and a number."""
    pairs = tokens.str.extract(r"^(\d{4})-?(\d\d?)$")
    if pairs.isna().any(axis=None):
        return tokens
    year, n = pairs[0], pairs[1].astype(int)
    if len(n) > 2 and (n == (year.astype(int) + 1) % 100).all():  # 2001/02, 2002/03, ...
        return year + "-01"
    if "week" in name.lower() or (n > 12).mean() > 0.5:
        return year + "-w-" + pairs[1] + "-1"
    return year + "-q-" + (3 * n - 2).astype(str) if set(n) == {1, 2, 3, 4} else tokens


def _to_datetime(cells: pd.Series, form: str) -> pd.Series:
    """Parse dates of one format, without zones; NaT for other formats."""
    if form in _SHAPES:
        cells = cells.where(cells.str.fullmatch(_SHAPES[form], case=False), "")
    if form in (_ISO_WEEKS, _WEEKS):  # the fourth day of a week is in its year
        found = cells.str.extract(r"(\d+)-w-(\d+)-(\d)").fillna("0")  # no NaN: pandas overflows
        year, week, day = found.astype(int).T.to_numpy()
        fourth = pd.to_datetime(pd.DataFrame({"year": year, "month": 1, "day": 4}), errors="coerce")
        back = (fourth.dt.weekday.fillna(0).astype(int) + (form == _WEEKS)) % 7
        first = fourth + pd.to_timedelta(7 * (week - 1) - back, unit="D")
        is_valid = (first + pd.Timedelta(days=3)).dt.year == year
        return (first + pd.to_timedelta(day - 1, unit="D")).where(is_valid)
    try:
        dates = pd.to_datetime(cells, format=form, errors="coerce", utc="%z" in form)
    except ValueError as error:
        raise ValueError(f"date_format={form!r} (--date-format): {error}") from None
    late = ("%y" in form) & (dates.dt.year >= _CENTURY + 100)
    return dates.mask(late, dates - pd.DateOffset(years=100)).dt.tz_localize(None)


def _choice(readings: dict[str, pd.Series], cells: pd.Series, name: str, *, is_chosen: bool) -> str:
    """Choose the only format that gives few gaps, or else the first unless days are ambiguous."""
    form, *others = readings
    likely = [form for form in readings if others and _has_few_gaps(readings[form])]
    if len(likely) == 1:
        return likely[0]
    if others and form != _ISO_WEEKS and not is_chosen:
        dates, other = readings[form], readings[others[0]]
        i = int((dates != other).to_numpy().argmax())
        raise ValueError(
            f"{cells[i]!r} in the column {name!r} may be {dates[i]:%Y-%m-%d} or "
            f"{other[i]:%Y-%m-%d}: set dayfirst=True or dayfirst=False (--dayfirst or "
            "--no-dayfirst)."
        )
    return form


def _has_few_gaps(times: pd.Series) -> bool:
    """Whether at least half of the equally spaced times from the first to the last occur."""
    ticks = np.unique(times.to_numpy("datetime64[s]"))
    for unit in ("D", "M"):
        coarse = ticks.astype(f"datetime64[{unit}]")
        ticks = coarse if len(np.unique(ticks - coarse)) == 1 else ticks
    steps = np.diff(ticks).astype(int)
    return ticks.size < 2 or bool(2 * ticks.size >= steps.sum() / steps.min() + 1)


def _not_a_time(cells: pd.Series, good: pd.Series) -> str:
    """Return the error message on cells, given which unique values are times."""
    is_good = cells.isin(cells.unique()[good])
    bad, example = cells[~is_good], "2001-09-30, 30/09/2001 18:00, 2001Q3 or Sep 2001"
    advice = (
        "name its format, such as date_format='%d.%m.%Y %Hh' (--date-format), or another "
        "column by time (--time)"
    )
    if is_good.mean() >= 0.5:
        example, advice = repr(cells[is_good].iloc[0]), drop_advice(bad)
        if bad.index[-1] < cells.index[is_good][0]:
            advice = f"skip these lines by skiprows={bad.index[-1]} (--skiprows {bad.index[-1]})"
    return (
        f"Line {bad.index[0]}: {bad.iloc[0]!r} in the column {cells.name!r} is not a time such as "
        f"{example}; {advice}, or set time='rows' (--time rows)."
    )


def _coarsest(dates: np.ndarray, form: str) -> np.ndarray:
    """Convert dates to the coarsest of months, days, s and ms that represents them."""
    has_months = "%d" not in form and re.search("%[mbB]|^%Y$", form) is not None
    for unit in ("M",) * has_months + ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
