"""Cells of text files as people write them: kinds, numbers, times (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from functools import lru_cache, partial
from itertools import product

import numpy as np
import pandas as pd

__all__ = [
    "counted",
    "english",
    "find_sentinels",
    "is_missing",
    "kind",
    "listed",
    "read_numbers",
    "read_times",
]

_MISSING = re.compile(
    r"[-\u2013\u2014\u2026.:?*]*|n/?a|nan|none|null|nil|nat|#n/a.*|<na>|: ?[a-z]{1,3}", re.I
)
_NUMBER = re.compile(
    r"(?P<sign>[(+-]?) ?(?P<before>[A-Za-z]{0,3}[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}|[<>~*]|) ?"
    r"(?P<number>[+-]?(?:[0-9][0-9., ']*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<end>[-)]?) ?"
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|[A-Za-z]{1,4}|[(\[]\w{1,3}[)\]]|)"
)
_STYLES = {  # by the decimal mark; the other mark may separate thousands
    mark: re.compile(rf"[+-]?(?:[1-9]\d?\d?(?:{o}\d\d\d?)*{o}\d{{3}}|\d*)(?:{m}\d*)?(?:[eE].+)?")
    for mark, m, o in ((".", r"\.", ","), (",", ",", r"\."))
}
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9}  # where a column has several, or numbers without
_CODE = re.compile(r"-?(?:9{2,}(?:\.9+)?|8{3,}|[1-9]0{2,}|32768|1)")  # of missing values
MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_MONTHS_ABROAD = {  # German, French, Spanish, Italian, where they do not begin as in English
    "jan": "ene|enero|gen|gennaio|j\u00e4n|j\u00e4nner",
    "feb": "f[e\u00e9]v|f[e\u00e9]vr|f[e\u00e9]vrier",
    "mar": "mrz|m\u00e4r|m\u00e4rz|maerz",
    "apr": "abr|abril|avr|avril",
    "may": "mai|mag|maggio",
    "jun": "juin|giu|giugno",
    "jul": "juil|juillet|lug|luglio",
    "aug": "ago|agosto|ao[u\u00fb]t",
    "sep": r"set(?!\W?\d$)|sett|settembre",
    "oct": "okt|oktober|ott|ottobre",
    "dec": "dez|dezember|dic|diciembre|dicembre|d[e\u00e9]c|d[e\u00e9]cembre",
}
_ABROAD = re.compile(
    "|".join(rf"(?P<{m}>(?<![^\W\d_])(?:{w})(?![^\W\d_]))" for m, w in _MONTHS_ABROAD.items())
)
_WEEKDAY = re.compile(r"\(?\b(?:mon|tue|wed|thu|fri|sat|sun)(?:s|nes|rs|ur)?(?:day)?\b\)?[.,]?")
_CLOCK = (  # 5:30, 18.00.00, 12.00.00 am, 6 pm, 0530, with a zone or without
    r"(?P<hour>\d\d?)(?:[:.]?(?P<minute>\d\d)(?:[:.]?(?P<second>\d\d(?:[.,]\d+)?))?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?"
    r"(?: ?(?P<zone>z|[+-]\d\d(?::?\d\d)?|\(?[a-z]{3,4}(?:/[a-z]{3,4})?\)?))?"
)
_TIME = re.compile(
    r"(?P<date>.{4,}?)(?:(?:(?<=\d)t(?=\d\d)|[ ,]+(?=\d\d?[:.]\d\d|\d\d? ?[ap]\.?m)"
    rf"|(?<=\d{{8}})[ :_](?=\d{{4}})){_CLOCK})?"
)
END = re.compile(  # of an interval, behind its start
    r"(?: +(?:-|\u2013|to) +|/(?=\d{4}-\d\d-)|(?:(?<=^\d\d:\d\d)|(?<=^\d:\d\d))[-\u2013])"
    r"(?=\d+[-./:]\d).*"
)
_DATE = re.compile(  # of tokens
    rf"\d{{1,4}}-\d\d?-\d{{1,4}}|\d{{4}}-\d{{1,3}}|\d\d?-\d{{4}}|\d{{2,4}}-{MONTH}|\d{{4}}-w-\d+-\d"
    rf"|(?:\d{{1,4}}-)?{MONTH}(?:-\d{{1,4}}){{1,2}}"
)
_PERIOD = re.compile(
    r"(?:(?P<y>\d\d|\d{4})-)?(?:(?P<k>[mqtwsh])-(?P<n>\d\d?)|(?P<n2>\d)-(?P<k2>[qh]))(?:-(?P<z>\d+))?"
)
_MONTHS = {"m": 1, "q": 3, "t": 3, "s": 6, "h": 6}
_FORMATS = (
    "%Y-%m-%d %d-%m-%Y %m-%d-%Y %d-%m-%y %m-%d-%y %y-%m-%d %d-%b-%Y %d-%b-%y %b-%d-%Y %Y-%b-%d "
    "%Y-%m %m-%Y %b-%Y %b-%y %Y-%b %Y%m %Y%m%d %Y%m%d%H %Y%m%d%H%M %Y%m%d%H%M%S %Y-%j"
).split()
_ORDERED = _FORMATS[1:6]  # where day, month or year may come first
_FIRST = {"d": "day", "m": "month", "y": "year"}
_CENTURY = 1930  # the first year that two digits stand for
_EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}  # about now, since 1970


def listed(texts: Iterable[object]) -> str:
    """Strings in quotes, shortened, the first ten if there are more."""
    full = list(map(str, texts))
    short = [repr(text if len(text) <= 40 else f"{text[:37]}...") for text in full[:10]]
    return ", ".join(short) + (", ..." if len(full) > 10 else "")


def english(text: str) -> str:
    """A text in lower case with the names of months as in English."""
    return _ABROAD.sub(lambda found: found.lastgroup or "", text)


def counted(count: int, what: str = "row") -> str:
    """Number and noun."""
    return f"{count} {what}" + "s" * (count != 1)


def is_missing(cells: pd.Series, na_values: Collection[str] = ()) -> pd.Series:
    """Mask of the cells without a value: empty, NA, NaN, null, -, ., ?, or as given."""
    marks = pd.to_numeric(pd.Series(list(na_values), dtype=str), errors="coerce").dropna()
    missing = cells.isin([cell for cell in cells.unique() if _MISSING.fullmatch(cell)])
    missing |= cells.isin(list(na_values))
    return missing | pd.to_numeric(cells, errors="coerce").isin(marks) if len(marks) else missing


@lru_cache(2**16)
def kind(cell: str) -> str:
    """Kind of a cell: missing, number, date, clock or text."""
    if _MISSING.fullmatch(cell):
        return "missing"
    found = _NUMBER.fullmatch(cell)
    is_number = found and any(style.fullmatch(_plain(found)) for style in _STYLES.values())
    if found and is_number and not found["before"] + found["after"]:
        return "number"
    if re.fullmatch(r"\d\d?\.(00|15|30|45|[0-5]0)\.00", cell):
        return "clock"
    if _DATE.fullmatch(_split(cell)[0]):
        return "date"
    lower = END.sub("", cell.lower())
    if re.match(r"\d\d?([:.]\d\d|:\d\d| ?[ap])", lower) and re.fullmatch(_CLOCK, lower):
        return "clock"
    return "number" if is_number else "text"


def _plain(found: re.Match[str]) -> str:
    """A number without spaces and apostrophes between thousands."""
    return re.sub(r"(?<=\d)[ '](?=\d{3})", "", found["number"]).strip()


def read_numbers(
    cells: pd.Series, *, decimal: str | None = None, sep: str = ","
) -> tuple[np.ndarray, list[str]]:
    """Numbers ``N`` of a column of strings, and notices.

    A comma before three digits separates thousands if other cells have no comma, and is ambiguous
    if all cells are of this form; so are points in files with semicolons.

    Raises:
        ValueError: A cell is not a finite number, or the decimal mark is ambiguous.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}.")
    name, unique = cells.name, list(cells.unique())
    found = {cell: match for cell in unique if (match := _NUMBER.fullmatch(cell))}
    plain = {cell: _plain(match) for cell, match in found.items()}
    fits = {m: [c for c, t in plain.items() if _STYLES[m].fullmatch(t)] for m in _STYLES}
    if decimal is None:
        decimal = max(fits, key=lambda m: len(fits[m]))
        seen = next((m for m in ",." if any(m in text for text in plain.values())), "")
        if len(fits["."]) == len(fits[","]) and (seen == "," or (seen and sep == ";")):
            is_everywhere = all(seen in text for text in plain.values())
            decimal = "," if is_everywhere == (seen == ",") else "."
            if is_everywhere and (seen == ".") == (sep == ";"):
                raise ValueError(
                    f"Numbers such as {unique[0]!r} in the column {name!r} have a decimal mark or "
                    "a thousands separator: say decimal='.' or decimal=',' (--decimal . or "
                    "--decimal ,)."
                )
    other = "." if decimal == "," else ","
    values = {c: float(plain[c].replace(other, "").replace(decimal, ".")) for c in fits[decimal]}
    bad = cells[~cells.map(values).pipe(np.isfinite)]
    if len(bad):
        raise ValueError(
            f"Line {bad.index[0]}: the column {name!r} must hold numbers, got "
            f"{listed(bad.unique())}; {_left_out(bad)}, or name another column (--target)."
        )
    marks = {cell: match["before"] + match["after"] for cell, match in found.items()}
    values = {
        c: -value if found[c]["sign"] + found[c]["end"] in ("()", "-") else value
        for c, value in values.items()
    }
    notices = []
    if limits := [cell for cell, mark in marks.items() if mark[:1] in ("<", ">")]:
        notices.append(
            f"{counted(int(cells.isin(limits).sum()), 'value')} of {name!r} such as {limits[0]!r}: "
            f"{limits[0][0]!r} is dropped, and the limit is read as the value."
        )
        marks |= {cell: marks[cell][1:] for cell in limits}
    kinds = set(marks.values())
    if "," in "".join(plain.values()) and decimal == ",":
        notices.append(f"Numbers of {name!r} have decimal commas.")
    ends = {cell: mark.lstrip("$\u20ac\u00a3\u00a5\u20b9") for cell, mark in marks.items()}
    scales = set(ends.values())
    scaled = {cell: value * _SCALES.get(ends[cell], 1) for cell, value in values.items()}
    is_scaled = len(scales & _SCALES.keys()) > 1 or {"", "K"} <= scales or {"", "k"} <= scales
    if is_scaled or ("" in scales and _spread(scaled.values()) < _spread(values.values())):
        values = scaled
        notices.append(f"K, M and B in {name!r} are thousands, millions and billions.")
    elif len(kinds) == 1 and kinds != {""}:
        notices.append(f"Values of {name!r} are in {kinds.pop()}.")
    elif len(kinds) > 1:
        marked = cells[cells.map(marks) != ""]
        notices.append(
            f"{counted(len(marked), 'value')} of {name!r} with a mark, such as "
            f"{marked.iloc[0]!r}: marks are dropped, values are kept."
        )
    return cells.map(values).to_numpy(float), notices


def _spread(values: Iterable[float]) -> float:
    """Standard deviation of the logarithms of sizes."""
    sizes = np.abs(list(values))
    return float(np.std(np.log(sizes[sizes > 0]))) if sizes.any() else 0.0


def _left_out(bad: pd.Series) -> str:
    """The option that leaves out cells."""
    texts = list(bad.unique())
    if len(texts) > 50:
        return f"correct the {len(texts)} different texts like this in the file"
    options = " ".join(f"--na-values={shlex.quote(text)}" for text in texts)
    return f"leave such rows out by na_values={texts} ({options})"


def find_sentinels(values: np.ndarray, name: str) -> list[str]:
    """A notice on values that may stand for missing ones, if there are any.

    Such a value recurs exactly at an end of the range (-99 and the like need not recur), and is
    farther from the others than these are from each other, or the only negative one.
    """
    unique, counts = np.unique(values, return_counts=True)
    for low, high in sorted(product(range(4), repeat=2), key=sum, reverse=True):
        others, size = unique[low : len(unique) - high], len(unique)
        ends = [*range(low), *range(max(size - high, 0), size)]
        if len(others) < 2 or not ends:
            continue
        texts = {i: f"{unique[i]:.12g}" for i in ends}
        is_code = {i: bool(_CODE.fullmatch(text)) for i, text in texts.items()}
        if all(
            unique[i] != 0
            and (counts[i] > 1 or texts[i].lstrip("-")[:2] == "99" and is_code[i])
            and (is_code[i] or (low if i < low else high) == 1)
            and (
                (
                    abs(others - unique[i]).min() > np.ptp(others)
                    and 2 * counts[ends].sum() < values.size
                )
                or (unique[i] < 0 <= others[0] and unique[i] == round(unique[i]))
            )
            for i in ends
        ):
            found = ", ".join(f"{counted(int(counts[i]))} with {texts[i]}" for i in ends)
            options = " ".join(f"--na-values={texts[i]}" for i in ends)
            return [
                f"{name!r} has {found}, far from the others; if missing values are written so, say "
                f"na_values={list(texts.values())} ({options})."
            ]
    return []


@lru_cache(2**16)
def _tokens(date: str) -> tuple[str, str]:
    """A date as numbers and months of three letters with hyphens, and the part of a year in it."""
    date = re.sub(rf"({MONTH})[a-z]*", r"-\1-", english(re.sub(r"^(\d{4}):", r"\1-", date)))
    date = re.sub(r"(?<=\d)(?:st|nd|rd|th|er)\b|(?<=\d)(?=[a-z])|(?<=[a-z])(?=\d)", "-", date)
    date = re.sub(r"[\s./,'\u2019_-]+", "-", date).strip("-")
    found = _PERIOD.fullmatch(date)
    if not found:
        return date, ""
    year, last, part = found["y"] or found["z"] or "", found["z"] or "1", found["k"] or found["k2"]
    year = year if len(year) != 2 else ("20" if int(year) < _CENTURY % 100 else "19") + year
    n = int(found["n"] or found["n2"])
    if part == "w":
        return f"{year}-w-{n}-{last if found['y'] else 1}", part
    return f"{year}-{(n - 1) * _MONTHS[part] + 1:02}", part


def _split(cell: str) -> tuple[str, str, str | None, int | None]:
    """Tokens of the date of a cell, part of a year, time of day and minutes from UTC."""
    cell = _WEEKDAY.sub(" ", END.sub("", cell.lower())).strip()
    found = _TIME.fullmatch(cell)
    if not found or found["hour"] is None:
        return *_tokens(cell), None, None
    hour, zone = int(found["hour"]), (found["zone"] or "").strip("()")
    hour = hour % 12 + 12 * (found["half"] == "p") if found["half"] else hour
    clock = f"{hour}:{found['minute'] or 0}:{found['second'] or 0}".replace(",", ".")
    offset = 0 if zone in ("z", "utc", "gmt") else None
    if zone[:1] in ("+", "-") and (digits := zone[1:].replace(":", "").ljust(4, "0")):
        offset = int(zone[0] + "1") * (60 * int(digits[:2]) + int(digits[2:]))
    return *_tokens(found["date"]), clock, offset


def read_times(
    cells: pd.Series, *, dayfirst: bool | None, date_format: str | None, decimal: str | None
) -> tuple[np.ndarray, str, list[str]]:
    """Times ``N`` of a column of strings, numbers or ``datetime64``, their zone, and notices.

    All cells have one format. Where several formats fit, the one is taken that alone gives times
    with few gaps. Days come first in 01.02.2001. Months and quarters are ``datetime64[M]``.
    The zone of dates with offsets is ``"UTC+02:00"`` where all are equal, ``""`` where all times of
    day are, and else ``"UTC"``.

    Raises:
        ValueError: A cell is not a time, or its format differs, or the format is ambiguous.
    """
    unique = pd.Series(cells.unique(), dtype=str)
    is_number = unique.str.fullmatch(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?").all()
    if date_format not in (None, "excel", "unix"):
        return _by_format(cells, date_format), "", []
    if date_format or (is_number and not is_compact(cells)):
        values, notices = _since(cells, date_format, decimal)
        return values, "", notices
    if is_number and unique.str.len().max() == 7:
        unique = unique.str.replace(r"^(\d{4}\.1)$", r"\g<1>0", regex=True)  # a zero was lost
    split = pd.DataFrame(map(_split, unique), columns=["date", "part", "clock", "offset"])
    clock = pd.to_timedelta(split["clock"]).fillna(pd.Timedelta(0))
    offset = pd.to_numeric(split["offset"])
    good = (clock <= pd.Timedelta(hours=25)) & (offset.notna() == (offset.notna().mean() > 0.5))
    if not good.all():
        raise ValueError(_no_times(cells, cells.isin(cells.unique()[good])))
    dates, form, notices = _dates(cells, split["date"], clock, dayfirst)
    if split["part"].isin(["q", "t"]).any() or form == "quarters":
        notices.append("Times are read as quarters, and dated to their first month.")
    zone = ""
    if offset.nunique() == 1:
        hours, minutes = divmod(int(abs(offset[0])), 60)
        zone = f"UTC{'-' if offset[0] < 0 else '+'}{hours:02}:{minutes:02}"
    elif offset.notna().any() and clock.nunique() == 1:
        notices.append("Times are those of their own clocks: offsets from UTC are left out.")
    elif offset.notna().any():
        zone = "UTC"
        dates -= pd.to_timedelta(offset, unit="min")
        notices.append("Times are converted to UTC.")
    if unique.str.contains(END).any():
        notices.append("Intervals are dated to their starts.")
    found = cells.map(dict(zip(cells.unique(), dates, strict=True))).to_numpy("datetime64[us]")
    return _coarsest(found, months=not re.search("%[dj]|days", form)), zone, notices


def is_compact(cells: pd.Series) -> bool:
    """Whether all numbers are dates: 20010930, 200109, 2001.1 to 2001.4, 2001.01 to 2001.12."""
    unique = pd.Series(cells.unique(), dtype=str)
    month = r"(?:1[6-9]|2[01])\d\d(?:0[1-9]|1[0-2])"
    week = r"|\d{6}" if "week" in str(cells.name).lower() else ""
    pattern = rf"{month}(?:(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-4])(?:[0-5]\d){{0,2}})?)?{week}"
    if unique.str.fullmatch(pattern).all():
        return len(unique) > 1 and unique.str.len().nunique() == 1
    parts = set(unique.str.extract(r"^\d{4}\.(\d\d?)$|^(\d\d)\.\d{4}$").fillna("").sum(axis=1))
    tenth = {"10" if part == "1" else part for part in parts}
    return parts == set("1234") or tenth == {f"{i:02}" for i in range(1, 13)}


def _dates(
    cells: pd.Series, texts: pd.Series, clock: pd.Series, dayfirst: bool | None
) -> tuple[pd.Series, str, list[str]]:
    """Times of unique cells, the format of their dates, and notices."""
    name, unique = str(cells.name), pd.Series(texts.unique())
    places = texts.map(dict(zip(unique, range(len(unique)), strict=True)))
    readings: dict[str, pd.Series] = {}
    pairs = unique.str.extract(r"^(\d{4})-?(\d\d?)$")
    if pairs.notna().all(axis=None):
        year, n = pairs[0], pairs[1].astype(int)
        if len(n) > 2 and (n == (year.astype(int) + 1) % 100).all():  # 2001/02, 2002/03, ...
            unique = year + "-01"
        elif "week" in name.lower() or (n > 12).mean() > 0.5:
            unique = year + "-w-" + pairs[1] + "-1"
        elif n.max() <= 4 and unique.str.len().max() == 6:
            readings["quarters"] = pd.to_datetime(year + "-" + (3 * n - 2).astype(str))
    if dayfirst is None and cells.str.match(r"\d\d?\.\d\d?\.").all():
        dayfirst = True
    for form in _FORMATS:
        shape = rf"\d{{{2 * form.count('%') + 2}}}" if "-" not in form else ".*-.*"
        shape = r"\d{4}-\d{3}" if form == "%Y-%j" else shape
        is_excluded = form in _ORDERED and dayfirst not in (None, form[1] == "d")
        if not is_excluded and unique.str.fullmatch(shape).mean() > 0.5:
            values = pd.to_datetime(unique, format=form, errors="coerce")
            values = _in_century(values) if "%y" in form and values.notna().any() else values
            if not any(values.equals(other) for other in readings.values()):
                readings[form] = values
    if unique.str.contains("-w-").any():
        starts = ["Sundays"] if re.search("epi|mmwr|cdc", name.lower()) else ["Mondays", "Sundays"]
        weeks = {start: unique.map(partial(_day_of_week, start=start)) for start in starts}
        start = max(starts, key=lambda start: weeks[start].notna().sum())
        readings = {start: pd.to_datetime(weeks[start])}
    found = {form: values[places] for form, values in readings.items() if values.notna().all()}
    found = {form: values.reset_index(drop=True) + clock for form, values in found.items()}
    likely = [form for form, values in found.items() if _has_few_gaps(values)]
    if not found:
        good = max((values.notna() for values in readings.values()), key=sum, default=unique == "")
        good = max(good, unique.str.fullmatch(r"\d+"), key=sum)
        raise ValueError(_no_times(cells, cells.isin(cells.unique()[good[places]])))
    form = likely[0] if len(likely) == 1 else next(iter(found))
    values = found[form]
    if len(found) > 1 and len(likely) != 1 and dayfirst is None:
        other = list(found.values())[1]
        i = int((values != other).to_numpy().argmax())
        option = "dayfirst=True or dayfirst=False (--dayfirst or --no-dayfirst)"
        if "quarters" in found:
            option = "date_format='%Y-%m' (--date-format %Y-%m), or write quarters as 2001Q3"
        raise ValueError(
            f"{cells.unique()[i]!r} in the column {name!r} may be {values[i]:%Y-%m-%d} or "
            f"{other[i]:%Y-%m-%d}: say {option}."
        )
    if form == "%b-%y" and not likely and unique.str[-2:].astype(int).between(1, 31).all():
        raise ValueError(
            f"{cells.iloc[0]!r} in the column {name!r} may be a day without its year; if it is a "
            "month of a year, say date_format='%b %y' (--date-format '%b %y')."
        )
    told = {
        f"Dates are read {_FIRST.get(form[1])} first.": form in _ORDERED,
        f"Years of two digits are read as {_CENTURY} to {_CENTURY + 99}.": "%y" in form,
        f"Weeks begin on {form}.": form.endswith("days"),
    }
    return values, form, [notice for notice, is_true in told.items() if is_true]


def _day_of_week(text: str, start: str) -> pd.Timestamp | None:
    """The day of a week such as 2019-w-5-1, by ISO 8601 or, from Sunday, as in epidemiology.

    The first week of a year holds 4 January, and its middle day is in the year.
    """
    if not (found := re.fullmatch(r"(\d{4})-w-(\d\d?)-(\d)", text)):
        return None
    fourth = pd.Timestamp(int(found[1]), 1, 4)
    back = (fourth.weekday() + (start == "Sundays")) % 7
    first = fourth + pd.Timedelta(days=7 * (int(found[2]) - 1) - back)
    is_valid = (first + pd.Timedelta(days=3)).year == fourth.year
    return first + pd.Timedelta(days=int(found[3]) - 1) if is_valid else None


def _in_century(dates: pd.Series) -> pd.Series:
    late = dates >= str(_CENTURY + 100)
    return dates.mask(late, dates - pd.DateOffset(years=100))


def _has_few_gaps(times: pd.Series) -> bool:
    """Whether at least half of the equal steps from the first to the last time are there."""
    ticks = np.unique(times.to_numpy("datetime64[s]"))
    for unit in ("D", "M"):
        coarse = ticks.astype(f"datetime64[{unit}]")
        ticks = coarse if len(np.unique(ticks - coarse)) == 1 else ticks
    steps = np.diff(ticks).astype(int)
    return ticks.size < 2 or bool(2 * ticks.size >= steps.sum() / steps.min() + 1)


def _no_times(cells: pd.Series, is_good: pd.Series) -> str:
    bad = cells[~is_good]
    text = f"Line {bad.index[0]}: {bad.iloc[0]!r} in the column {cells.name!r} is"
    if is_good.mean() < 0.5:
        return (
            f"{text} neither a number nor a date such as 2001-09-30, 30/09/2001, 2001-09, 2001Q3, "
            "2001-W36 or Sep 2001; name its format, such as date_format='%d.%m.%Y %Hh' "
            "(--date-format), or another column by time (--time), or say time='rows' (--time rows)."
        )
    hint = " Names of months are read in English, German, French, Spanish and Italian."
    hint *= bool(re.search(MONTH, " ".join(cells[is_good].unique()).lower()))
    return f"{text} not a time such as {cells[is_good].iloc[0]!r}; {_left_out(bad)}.{hint}"


def _since(
    cells: pd.Series, date_format: str | None, decimal: str | None
) -> tuple[np.ndarray, list[str]]:
    """Numbers, or dates where these are seconds since 1970 or Excel's serial days."""
    values, notices = read_numbers(cells, decimal=decimal, sep=".")
    unit = next((unit for unit, now in _EPOCHS.items() if abs(values).max() < 10 * now), "ns")
    is_serial = len(values) > 2 and 20_000 <= values.min() <= values.max() <= 80_000
    if date_format is None and abs(values).min() > 0.3 * _EPOCHS[unit]:
        date_format = "unix"
        notices.append(f"Times are read as {unit} since 1970.")
    elif date_format is None and is_serial and "dat" in str(cells.name).lower():
        date_format = "excel"
        notices.append("Times are read as Excel's serial dates.")
    elif date_format is None:
        option = "if they are Excel's serial dates, say date_format='excel' (--date-format excel)"
        notices += [f"Times such as {cells.iloc[0]} are read as numbers; {option}."] * int(
            is_serial
        )
        return values, notices
    unit, origin = ("D", "1899-12-30") if date_format == "excel" else (unit, "unix")
    try:
        dates = pd.to_datetime(values, unit=unit, origin=origin)
        dates = dates.round("s" if date_format == "excel" else "ms")
    except (OverflowError, ValueError) as error:
        raise ValueError(f"date_format={date_format!r} (--date-format): {error}") from None
    return _coarsest(dates.to_numpy()), notices


def _by_format(cells: pd.Series, date_format: str) -> np.ndarray:
    option = f"date_format={date_format!r} (--date-format)"
    try:
        dates = pd.to_datetime(cells, format=date_format, errors="coerce", utc="%z" in date_format)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if dates.isna().any():
        bad = cells[dates.isna()]
        raise ValueError(
            f"Line {bad.index[0]}: {bad.iloc[0]!r} is not of {option}; {_left_out(bad)}."
        )
    dates = dates.dt.tz_localize(None)
    dates = _in_century(dates) if "%y" in date_format else dates
    days = re.search("%[djeuwUWVDcxFHIMS]", date_format)
    return _coarsest(dates.to_numpy(), months=not days and "%Y" != date_format)


def _coarsest(dates: np.ndarray, *, months: bool = False) -> np.ndarray:
    for unit in ("M",) * months + ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
