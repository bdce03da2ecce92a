"""Cells of text files: numbers, times and missing values (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from datetime import timezone
from functools import lru_cache

import numpy as np
import pandas as pd

__all__ = [
    "INTERVAL_END",
    "MISSING",
    "MONTH",
    "is_compact",
    "kind",
    "main_kind",
    "notice_sentinels",
    "quoted",
    "read_covariates",
    "read_numbers",
    "read_times",
]

MISSING = (
    r"(?i:[-\u2013\u2014\u2026.:?*]*|n[/.]?a\.?|n/e|nan|none|\(?null\)?|nil|nat|#n/a.*|<na>"
    r"|#[a-z]+(?:/0)?[!?]|: ?[a-z]{1,3}"  # errors of Excel, flags of Eurostat
    "|m13)"  # the mean of a year of the Bureau of Labor Statistics
)
_NUMBER = (  # sign, mark, bracket, digits, closing sign, unit, mark: $ (1,234.5), 3-, 1.2K, 15(b)
    r"^(?P<sign>[(+-]?) ?"
    r"(?P<before>[A-Za-z]{0,3}[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}|Rs\.?|[<>~*]|) ?"
    r"(?P<bracket>\(?)(?P<digits>[+-]?(?:\d[\d., ']*|[.,]\d+)(?:[eE][+-]?\d+)?)(?P<end>[-)]?) ?"
    r"(?P<unit>(?:[kKMB]$)?)"
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|[A-Za-z]{1,4}|[(\[]\w{1,3}[)\]]|)$"
)
_STYLES = {  # by the decimal mark; the other may separate thousands; 0123,4 are two numbers
    mark: rf"[+-]?(?:[1-9]\d?\d?(?:{sep}\d\d\d?)*{sep}\d{{3}}|(?!0\d+,)\d*)(?:{own}\d*)?([eE].+)?"
    for mark, own, sep in ((".", r"\.", ","), (",", ",", r"\."))
}
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_PLAIN = r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
INTERVAL_END = (
    r"(?: +(?:-|\u2013|to) +|[/,](?=\d{4}-\d\d-)|(?:(?<=^\d\d:\d\d)|(?<=^\d:\d\d))[-\u2013])"
    r"(?=\d+[-./:]\d).*"
)
_UNREAD = (
    INTERVAL_END + r"|\(?\b(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\)?[.,]? |\bfy ?'?(?=\d)"
    r"|^w/?e |(?:utc|gmt)(?=[+-]\d)|(?:(?<=[+-]\d{4})|(?<=[+-]\d\d:\d\d)) \(?[a-z ]+\)?$"
)
_CLOCK = (  # 5:30, 18.00.00, 12.00.00 am, 6 pm, 0530, with a zone or without
    r"(?P<H>\d\d?)(?:[:.]?(?P<M>[0-5]\d)(?:[:.]?(?P<S>[0-5]\d(?:[.,]\d+)?))?)?"
    r"(?: ?(?P<p>[ap])(?:\.?m\.?|(?<=:\d\d[ap])))?"
    r"(?: ?(?P<z>z|[+-]\d\d(?::?\d\d)?|\(?[a-z]{3,4}(?:/[a-z]{3,4})?\)?))?"
)
_CLOCK_ALONE = rf"(?=\d\d?(?::|\.[0-5][05]\.00| ?[ap]|\.\d\d.*[ap])){_CLOCK}"
_FORMS = (  # of dates; "-" separates parts, "~" may separate them
    "Y-m-d d-m-Y m-d-Y d-m-y m-d-y y-m-d d~b~Y d~b~y b~d-Y Y~b~d YND yND Y-j Y-f Y-q Y-m m-Y YN "
    "Y~S S-Y b~Y b~y Y~b Y~x~m Y~w~Wu y~w~W w~W-Y Y-W W-Y YW Y~w~Uu w~U-Y Y-U U-Y YU Y~Q Q~Y Q-y "
    "y~Q R~Y R~y Y"
).split()
_ORDERED = _FORMS[1:6]  # day, month or year may come first
_PARTS = {
    "-": r"[\s./,:'\u2019_-]+", "~": r"[\s./,:'\u2019_-]*", "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)", "m": r"(?P<m>\d\d?)", "N": r"(?P<m>\d\d)", "x": "mm?",
    "b": rf"(?P<b>{MONTH})[a-z]*", "d": r"(?P<d>\d\d?)(?:st|nd|rd|th)?", "D": r"(?P<d>\d\d)",
    "j": r"(?P<j>\d{3})", "f": r"(?:\d\d)?(?P<f>\d\d)", "q": "(?P<q>[1-4])",
    "Q": "(?:kw|q|t|qtr|quarter) ?0?(?P<q>[1-4])",
    "R": "(?P<q>[1-4])(?:st|nd|rd|th)?[ -]?(?:q|quarter)", "S": "[hs](?P<s>[12])",
    "w": "(?:week|[ck]?w)",
    "W": r"(?P<W>\d\d?)", "U": r"(?P<U>\d\d?)", "u": "(?:-(?P<u>[1-7]))?",
}  # fmt: skip
_PATTERNS = {
    form: "".join(map(_PARTS.__getitem__, form))
    + rf"(?:(?:t|[ ,:_]+|(?<=^\d{{8}})){_CLOCK})?" * bool({*form} & {*"dDj"})
    for form in _FORMS
}
_DATE = re.sub(r"\?P<\w>", "?:", "|".join(_PATTERNS.values()))
_CENTURY = 1930  # the first year that two digits stand for
_SHORT_YEARS = f"Years of two digits are read as {_CENTURY} to {_CENTURY + 99}."
_EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}  # the present time since 1970


def quoted(texts: Iterable[object]) -> str:
    """Quote up to twenty strings in full, so that they can be copied."""
    full = list(map(str, texts))
    return ", ".join(map(repr, full[:20])) + (", ..." if len(full) > 20 else "")


def _drop_advice(bad: pd.Series) -> str:
    """Return advice on cells that cannot be read."""
    cells = list(bad.unique())
    if len(cells) > 10:
        return f"correct the {len(cells)} different cells like this in the file"
    options = " ".join(f"--na-values={shlex.quote(cell)}" for cell in cells)
    return f"drop such rows by na_values={cells} ({options})"


def _number(cell: str) -> tuple[str, str, float, bool, bool]:
    """Return digits, marks and factor of a number, and whether it fits a decimal point, a comma."""
    found = re.match(_NUMBER, cell)
    if found is None:
        return "", "", 1.0, False, False
    digits = re.sub(r"(?<=\d)[ '](?=\d{3})", "", found["digits"]).strip()
    point, comma = (re.fullmatch(style, digits) is not None for style in _STYLES.values())
    sign = -1.0 if found["sign"] + found["bracket"] + found["end"] in ("()", "-") else 1.0
    marks, factor = found["before"] + found["after"], _UNITS[found["unit"].lower()]
    return digits, marks, sign * factor, point, comma


@lru_cache(100_000)
def kind(cell: str) -> str:
    """Return the kind of a cell: missing, number, date, clock or text."""
    _, marks, _, *fit = _number(cell)
    if re.fullmatch(MISSING, cell):
        return "missing"
    if any(fit) and not marks:
        return "number"
    if re.fullmatch(_CLOCK_ALONE, re.sub(INTERVAL_END, "", cell.lower())):
        return "clock"
    if re.search(r"\d", cell) and re.fullmatch(_DATE, re.sub(_UNREAD, "", cell.lower())):
        return "date"
    return "number" if any(fit) else "text"


def main_kind(cells: pd.Series) -> str:
    """Return the kind of most of the first cells, without leading strings; else ``"text"``."""
    found = [kind(cell) for cell in cells.head(1000)]
    begin = next((i for i, own in enumerate(found) if own in ("number", "date", "clock")), None)
    above, found = begin or 0, [own for own in found[begin:] if own != "missing"]
    found = found[found[:2] == ["date", "number"] :]  # a date may name a column of numbers
    most = max(set(found), key=found.count, default="text")
    return most if found.count(most) > max(len(found) / 2, above / 20) else "text"


def read_numbers(cells: pd.Series, notices: list[str], decimal: str | None, sep: str) -> np.ndarray:
    """Convert a column of strings to numbers ``N``.

    A comma before three digits separates thousands if other cells have no comma. If all cells have
    this form, it separates thousands in files with commas, and is ambiguous in others. In files
    with semicolons, a point before three digits is ambiguous.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}.")
    name, unique = cells.name, pd.Series(cells.unique(), dtype=object)
    parts = pd.DataFrame(map(_number, unique), columns=["digits", "mark", "factor", ".", ","])
    usual, other = (",", ".") if sep == ";" else (".", ",")
    digits, is_unusual = parts["digits"].astype(object), parts["digits"].str.count(f"[{other}]") > 0
    is_ambiguous = decimal is None and is_unusual.all() and parts["."].equals(parts[","])
    if is_ambiguous and sep != ",":
        raise ValueError(
            f"Numbers such as {unique[0]!r} in the column {name!r} may have a decimal mark or a "
            "thousands separator: set decimal='.' or decimal=',' (--decimal . or --decimal ,)."
        )
    decimal = decimal or (usual if parts[usual].sum() >= parts[other].sum() else other)
    plain = digits.str.replace("." if decimal == "," else ",", "", regex=False)
    values = plain.str.replace(decimal, ".", regex=False).where(parts[decimal]).astype(float)
    bad = cells[cells.isin(unique[~np.isfinite(values)])]
    if len(bad):
        raise ValueError(
            f"Line {bad.index[0]}: the column {name!r} must hold numbers, got "
            f"{quoted(bad.unique())}; {_drop_advice(bad)}, or name another column (--target)."
        )
    if is_ambiguous:
        notices.append(f"Commas in numbers of {name!r} separate thousands.")
    if decimal == "," and digits.str.contains(",").any():
        notices.append(f"Numbers of {name!r} have decimal commas.")
    marked = cells[cells.isin(unique[parts["mark"] != ""])]
    if len(marked):
        text = f"marks such as in {marked.iloc[0]!r} are dropped"
        notices.append(f"Values of {name!r} with a mark: {len(marked)}; {text}, values are kept.")
    return cells.map(dict(zip(unique, values * parts["factor"], strict=True))).to_numpy(float)


def read_covariates(frame: pd.DataFrame, decimal: str | None, sep: str) -> pd.DataFrame:
    """Convert columns of strings, without missing values, to numbers."""
    for name, cells in frame.items():
        words = cells[~cells.str.contains(r"\d")]
        if len(words):
            raise ValueError(
                f"Line {words.index[0]}: the covariate {name!r} must hold numbers, such as 0 and "
                f"1, in all rows, got {quoted(words.unique())}; fill in numbers, or leave the "
                "column out of covariates (--covariates)."
            )
    numbers = {name: read_numbers(cells, [], decimal, sep) for name, cells in frame.items()}
    return pd.DataFrame(numbers, index=range(len(frame)))


def notice_sentinels(values: np.ndarray, name: str, notices: list[str]) -> None:
    """Add a notice on sentinel values for missing ones, if there are any.

    A sentinel is a minimum or maximum that is repeated or begins with 99. Its distance from all
    other values exceeds their range, or it is the only negative value and whole.
    """
    counts, found = pd.Series(values).value_counts().sort_index(), []
    while len(counts) > 2:
        v = counts.index.to_numpy()
        end, low, high = (
            (v[0], v[1], v[-1]) if v[1] - v[0] > v[-1] - v[-2] else (v[-1], v[0], v[-2])
        )
        is_far = max(low - end, end - high) > high - low or (end < 0 <= low and end == round(end))
        if not is_far or (counts[end] == 1 and not f"{abs(end)}".startswith("99")):
            break
        found.append(f"{end:.12g}")
        counts = counts.drop(end)
    if found and 2 * counts.sum() > values.size:
        options = " ".join(f"--na-values={code}" for code in found)
        notices.append(
            f"Values of {name!r} that are far from all others: {values.size - counts.sum()}; if "
            f"they stand for missing values, set na_values={found} ({options})."
        )


def is_compact(cells: pd.Series) -> bool:
    """Whether all numbers are dates: 20010930, 010930, 200109, 09.2001, 2001.1 to 2001.4."""
    some = pd.Series(cells.unique(), dtype=object)
    if some.str.fullmatch(r"\d{4}\.\d\d?").all():
        return set(some.str[5:]) in (set("1234"), {f"{i:02}" for i in range(1, 13)})
    week = r"|\d{6}" if "week" in str(cells.name).lower() else ""
    day = r"(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-4])(?:[0-5]\d){0,2})?"
    month = "(?:0[1-9]|1[0-2])"
    pattern = rf"(?:1[6-9]|2[01])\d\d{month}(?:{day})?{week}|[01]\d\.(?:1[6-9]|2[01])\d\d"
    short = rf"\d\d{month}(?:0[1-9]|[12]\d|3[01])"
    is_date = some.str.fullmatch(pattern).all() or some.str.fullmatch(short).all()
    return bool(is_date and len(some) > 1 == some.str.len().nunique())


def read_times(
    cells: pd.Series,
    notices: list[str],
    decimal: str | None,
    dayfirst: bool | None,
    date_format: str | None,
) -> tuple[np.ndarray, str]:
    """Convert a column of strings to numbers or ``datetime64`` ``N``, with their zone.

    All cells have one form. If several fit, the only one that gives times with few gaps is used.
    Months and quarters are ``datetime64[M]``. The zone of dates with equal offsets is the offset,
    such as ``"UTC+02:00"``. Offsets that differ by at most an hour are changes of the clock: dates
    become local times without a zone. With other offsets, dates are converted to ``"UTC"``.
    """
    codes, found = pd.factorize(cells)
    name, unique = str(cells.name), pd.Series(found, dtype=object)
    is_float = all(unique.str.fullmatch(_PLAIN).all() for unique in (unique.head(9), unique))
    if date_format is None and is_float and not is_compact(cells):
        values = read_numbers(cells, notices, decimal, sep=".")
        if re.fullmatch("(?i)ye?a?r|yy", name) and unique.str.fullmatch(r"\d\d").all():
            notices.append(_SHORT_YEARS)
            return values + 1900 + 100 * (values < _CENTURY - 1900), ""
        unit = next((unit for unit, now in _EPOCHS.items() if abs(values).max() < 10 * now), "ns")
        if abs(values).min() < 0.3 * _EPOCHS[unit]:
            return values, ""
        notices.append(f"Times are read as {unit} since 1970.")
        return _coarsest(pd.Series(pd.to_datetime(values, unit=unit).round("ms")), "d"), ""
    readings = _readings(unique, name, dayfirst, date_format)
    good = max((r["time"].notna() for r in readings.values()), key=sum, default=unique.isna())
    if not good.all():
        raise ValueError(_not_a_time(cells, good))
    readings = {form: parts for form, parts in readings.items() if parts["time"].notna().all()}
    likely = [form for form in readings if _has_few_gaps(readings[form]["time"])]
    form = likely[0] if len(likely) == 1 else next(iter(readings))
    times, offset, zone = readings[form]["time"], readings[form]["offset"], ""
    for other in (parts["time"] for f, parts in readings.items() if f in _ORDERED):
        i = int((times != other).to_numpy().argmax())
        if times[i] != other[i] and len(likely) != 1 and dayfirst is None:
            raise ValueError(
                f"{unique[i]!r} in the column {name!r} may be {times[i]:%Y-%m-%d} or "
                f"{other[i]:%Y-%m-%d}: set dayfirst=True or dayfirst=False (--dayfirst or "
                "--no-dayfirst)."
            )
    if offset.nunique() == 1:
        zone = str(timezone(offset[0].to_pytimedelta()))
    elif offset.max() - offset.min() > pd.Timedelta(hours=1):
        times, zone = times - offset, "UTC"
    first = {"d": "day", "m": "month", "y": "year"}.get(form[0], "")
    inferred = {
        f"Dates are read {first} first.": form in _ORDERED,
        _SHORT_YEARS: "y" in form,
        f"Weeks begin on {'Mondays' if 'W' in form else 'Sundays'}.": {*form} & {*"WU"},
        "Times are read as quarters, and dated to their first month.": {*form} & {*"qQR"},
        "Times are read as half-years, and dated to their first month.": "S" in form,
        "Times are converted to UTC.": zone == "UTC" and offset.nunique() > 1,
        "Times are local: the clock changes, and offsets from UTC are dropped.": (
            not zone and offset.notna().any()
        ),
        "Intervals are dated to their starts.": unique.head().str.contains(INTERVAL_END).any(),
    }
    notices += [notice for notice, is_so in inferred.items() if is_so]
    return _coarsest(times, form)[codes], zone


def _readings(
    cells: pd.Series, name: str, dayfirst: bool | None, date_format: str | None
) -> dict[str, pd.DataFrame]:
    """Return times and offsets from UTC by form, for forms that some cells have; else NaT."""
    if date_format is not None:
        utc = "%z" in date_format
        try:
            times = pd.to_datetime(cells, format=date_format, errors="coerce", utc=utc)
        except ValueError as error:
            raise ValueError(f"date_format={date_format!r} (--date-format): {error}") from None
        form = "m" if re.search("%[mbB]|^%Y$", date_format) and "%d" not in date_format else "d"
        return {form: pd.DataFrame({"time": times.dt.tz_localize(None), "offset": pd.NaT})}
    if dayfirst is None and cells.head(1000).str.fullmatch(r"\d\d?\.\d\d?\..*").all():
        dayfirst = True
    texts, found = cells.str.lower(), {}
    if texts.head(1000).str.contains(_UNREAD).any():
        texts = texts.str.replace(_UNREAD, "", regex=True).str.strip()
    is_week, is_epi = "week" in name.lower(), re.search("(?i)epi|mmwr|cdc", name) is not None
    for form in sorted(_FORMS, key=lambda form: is_week and not {*form} & {*"WU"}):
        is_excluded = form in _ORDERED and dayfirst not in (None, form[0] == "d")
        is_excluded |= (is_epi and "W" in form) or (form == "Y-q" and texts.str[-1].nunique() < 4)
        if not is_excluded and texts.head(1000).str.fullmatch(_PATTERNS[form]).any():
            parts = _assembled(texts.str.extract(f"^(?:{_PATTERNS[form]})$"))
            if is_week or "w" in form or not {*form} & {*"WU"} or (parts["W"] > 12).mean() > 0.5:
                found[form] = parts
    return found


def _assembled(parts: pd.DataFrame) -> pd.DataFrame:
    """Return times and offsets from UTC, given the parts of each time; NaT for impossible times."""
    n = parts.reindex(columns=[*"YymfqsbdjWUuHMSpz"])
    n["b"] = n["b"].map({name: i + 1 for i, name in enumerate(MONTH.split("|"))})
    half, zones = n.pop("p"), n.pop("z").astype(str).str.replace("utc|gmt", "z", regex=True)
    n["S"] = n["S"].astype(str).str.replace(",", ".")
    n = n.astype(float)
    year = n["Y"].fillna(n["y"] + 1900 + 100 * (n["y"] < _CENTURY - 1900))
    month = n["m"].fillna(n["b"]).fillna(3 * n["q"] - 2).fillna(6 * n["s"] - 5).fillna(1)
    week, day = n["W"].fillna(n["U"]), n["d"].fillna(1)
    day = day.where(week.isna(), 4)  # the fourth of January is in the first week
    date = pd.to_datetime({"year": year, "month": month, "day": day}, errors="coerce")
    back = (date.dt.weekday + n["U"].notna()) % 7
    date += pd.to_timedelta((7 * (week - 1) - back).fillna(0) + n["j"].fillna(1) - 1, unit="D")
    good = (date + pd.Timedelta(days=3) * week.notna()).dt.year == year
    good &= n["f"].isna() | ((n["f"] == (year + 1) % 100) & (len(n) > 2))
    hour = n["H"].where(half.isna(), n["H"] % 12 + 12 * (half == "p"))
    seconds = 3600 * hour.fillna(0) + 60 * n["M"].fillna(0) + n["S"].fillna(0)
    starts = ("2000-01-01T00" + zones).str.upper()
    starts = pd.to_datetime(starts, format="ISO8601", utc=True, errors="coerce")
    offset = pd.Timestamp("2000") - starts.dt.tz_localize(None)  # NaT without an offset
    good &= (seconds <= 90_000) & (offset.notna() == (offset.notna().mean() > 0.5))
    date += pd.to_timedelta(n["u"].fillna(1) - 1, unit="D") + pd.to_timedelta(seconds, unit="s")
    return pd.DataFrame({"time": date.where(good), "offset": offset, "W": week})


def _has_few_gaps(times: pd.Series) -> bool:
    """Return whether at least half of the equally spaced times in the range occur."""
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
    advice = "name its format, such as date_format='%d.%m.%Y %Hh' (--date-format)"
    if is_good.mean() >= 0.5:
        example, advice = repr(cells[is_good].iloc[0]), _drop_advice(bad)
        if bad.index[-1] < cells.index[is_good][0]:
            advice = f"skip these lines by skiprows={bad.index[-1]} (--skiprows {bad.index[-1]})"
    return (
        f"Line {bad.index[0]}: {bad.iloc[0]!r} in the column {cells.name!r} is not a time such as "
        f"{example}; {advice}, or set time='rows' (--time rows)."
    )


def _coarsest(times: pd.Series, form: str) -> np.ndarray:
    """Convert dates to the coarsest of months, days, s and ms that represents them."""
    dates = times.to_numpy("datetime64[us]")
    for unit in ("M",) * (not {*form} & {*"dDjWU"}) + ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
