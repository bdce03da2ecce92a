"""Numbers and times in the cells of text files, and the options of the reader (needs pandas)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import timedelta, timezone
from functools import lru_cache, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "MISSING",
    "MONTH",
    "Reading",
    "is_compact",
    "joined",
    "kind",
    "main_kind",
    "notice_sentinels",
    "option",
    "quoted",
    "read_numbers",
    "read_times",
]

_NUMBER = (  # sign, mark, bracket, digits, closing sign, unit, mark: $ (1,234.5), 3-, 1.2K, 15(b)
    r"^(?P<sign>[(+-]?) ?"
    r"(?P<before>[A-Za-z]{0,3}(?P<coin>[$\u20ac\u00a3\u00a5\u20b9])|[A-Z]{3}|Rs\.?|[<>~*]|) ?"
    r"(?P<bracket>\(?)(?P<digits>[+-]?(?:\d[\d., ']*|[.,]\d+)(?:[eE][+-]?\d+)?)(?P<end>[-)]?) ?"
    r"(?P<unit>(?:(?(coin)[kKMBT]|[kKMB])$)?)"
    r"(?P<after>[^\w\s.,+()\[\]':/-][^\d\s]{0,4}|[A-Za-z\u00c0-\u017f]{1,4}|[(\[]\w{1,3}[)\]]|)$"
)
_STYLES = {  # by the decimal mark; the other may separate thousands; 0123,4 are two numbers
    mark: rf"[+-]?(?:[1-9]\d?\d?(?:{sep}\d\d\d?)*{sep}\d{{3}}|(?!0\d+,)\d*)([{mark}]\d*)?([eE].+)?"
    for mark, sep in ((".", ","), (",", "[.]"))
}
_FLAGS = {"no": 0.0, "off": 0.0, "yes": 1.0, "on": 1.0}
MISSING = (
    r"(?i:[-\u2013\u2014\u2026.:?*]*|n[/.]?a\.?|n/e|nan|none|\(?null\)?|nil|nat|#n/a.*|<na>|\\n"
    r"|#[a-z]+(?:/0)?[!?]|: ?[a-z]{1,3}"  # errors of Excel, flags of Eurostat
    "|m13)"  # the mean of a year of the Bureau of Labor Statistics
)
MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_INTERVAL_END = (
    r"(?: +(?:-|\u2013|to) +|[/,](?=\d{4}-\d\d-)"
    r"|(?:(?<=^\d\d:\d\d)|(?<=^\d:\d\d)|(?<=\.\d{4}))[-\u2013])(?=\d+[-./:]\d).*"
)
_IGNORED = (  # ignored parts of dates: ends of intervals, names of weekdays, ...
    _INTERVAL_END + r"|\(?\b(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\)?[.,]? |(?<= )del? "
    r"|^(?:w/?e|week (?:of|ending|beginning)) |(?:utc|gmt)(?=[+-]\d)"
    r"|(?:(?<=[+-]\d{4})|(?<=[+-]\d\d:\d\d)) ?[(\[]?[a-z /_]+[)\]]?$"
    r"|(?<=\d) ?(?:[.\u6708\u65e5\uc6d4\uc77c]|\*+|\([a-z\d]{1,8}\))$"
)
_CLOCK = (  # 5:30, 18.00.00, 12.00.00 am, 6 pm, 0530, with a zone or without
    r"(?P<H>\d\d?)(?:[:.h]?(?P<M>[0-5]\d)(?:[:.]?(?P<S>[0-5]\d(?:[.,]\d+)?))?)?"
    r"(?: ?(?P<p>[ap])\.? ?m\.?)?"
    r"(?: ?(?P<z>z|[+-]\d\d(?::?\d\d)?|\(?[a-z]{3,8}(?:/[a-z_]{3,20})?\)?))?"
)
_CLOCK_ALONE = rf"(?=\d\d?(?:[:h]|\.[0-5][05]\.00| ?[ap]|\.\d\d.*[ap])){_CLOCK}"
_FORMS = (  # of dates; "-" separates parts, "~" may separate them
    "Y-m-d d-m-Y m-d-Y dNE mDE d-m-y m-d-y y-m-d d~b~Y d~b~y b~d-Y Y~b~d YND yND dNy mDy Y-j Yj "
    "Y-f Y-m m-Y Y-q q-Y YN Y~S b~Y b~y Y~b Y~x~m Y~w~Wu w~W-Y Y-W W-Y YW Y~w~Uu w~U-Y Y-U U-Y YU "
    "Y~Q Q~Y Q-y R~Y Y-R Y"
).split()
_PARTS = {  # with the years and months of Chinese, Japanese and Korean
    "-": "[\\s./,:'\u2019_\u5e74\u6708\ub144\uc6d4-]+",
    "~": r"[\s./,:'\u2019_-]*", "Y": r"(?P<Y>\d{4})", "E": r"(?P<Y>(?:19|20)\d\d)",
    "y": r"(?P<y>\d\d)", "m": r"(?P<m>\d\d?)", "N": r"(?P<m>\d\d)", "x": "mm?",
    "b": rf"(?P<b>{MONTH})[a-z]*", "d": r"(?P<d>\d\d?)(?:st|nd|rd|th)?", "D": r"(?P<d>\d\d)",
    "j": r"(?P<j>\d{3})", "f": r"(?:\d\d)?(?P<f>\d\d)", "q": "0?(?P<q>[1-4])",
    "Q": "(?:kw|q|t|qtr|quarter) ?0?(?P<q>[1-4])",
    "R": r"(?P<q>[1-4])(?:[a-z\xba.]{0,3})[ -]?[qkt][a-z.]*", "S": "[hs](?P<s>[12])",
    "w": "(?:week|wk|v|[ck]?w)",
    "W": r"(?P<W>\d\d?)", "U": r"(?P<U>\d\d?)", "u": "(?:-?(?P<u>[1-7]))?",
}  # fmt: skip
_PATTERNS = {
    form: "".join(map(_PARTS.__getitem__, form))
    + rf"(?:(?:t|[ ,:_@]+|(?<=^\d{{8}})-?){_CLOCK})?" * bool({*form} & {*"dDj"})
    for form in _FORMS
}
_DATE = re.sub(r"\?P<\w>", "?:", "|".join(_PATTERNS.values()))
_PLAIN = r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
_ORDERED = _FORMS[1:8]  # day, month or year may come first
_GROUPS = "YymbqsfdjWUuHMSpz"  # named groups of the patterns of dates
_LETTERS = {  # group of the patterns for a part of the time in a separate column
    "year": "Y", "month": "m", "quarter": "q", "week": "W", "day": "d", "doy": "j",
    "clock": "H", "hour": "H", "minute": "M",
}  # fmt: skip
_MONTHS = {word: i + 1 for i, word in enumerate(MONTH.split("|"))}
_EPIDEMIC = "(?i)epi|mmwr|cdc"  # names of columns with weeks that begin on Sundays
_CENTURY = 1930  # the first year that two digits stand for
_SHORT_YEARS = f"Years of two digits are read as {_CENTURY} to {_CENTURY + 99}."
_EPOCHS = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}  # the present time since 1970


class Reading(SimpleNamespace):
    """Arguments of :func:`read_time_series`, completed from the file, and the notices so far."""

    def __init__(self, **arguments: Any):
        super().__init__(**{"notices": [], "guess": "", **arguments})
        time, missing = arguments["time"], arguments["na_values"]
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        if self.future is not None and not self.covariates:
            raise ValueError("future needs covariates: name them (--covariates), too.")
        self.time: list[str] = [time] if isinstance(time, str) else list(time or ())
        self.where: dict[str, str] = dict(arguments["where"] or {})
        single = isinstance(missing, str) or not isinstance(missing, Iterable)
        self.na_values: list[Any] = [missing] if single else list(missing)

    def changed(self, **arguments: Any) -> Reading:
        """Return a copy with other arguments."""
        return Reading(**vars(self) | arguments)

    def note(self, text: str, is_so: object = True) -> None:
        """Add a notice if its condition holds."""
        self.notices += [text] * bool(is_so)


def quoted(texts: Iterable[object]) -> str:
    """Quote up to twenty strings in full, so that they can be copied."""
    full = list(map(str, texts))
    return ", ".join(map(repr, full[:20])) + (", ..." if len(full) > 20 else "")


def option(name: str, *value: Any) -> str:
    """Write an option for Python and the command: ``sep (--sep)``, ``time='t' (--time=t)``."""
    flag = "--" + name.replace("_", "-")
    if not value:
        return f"{name} ({flag})"
    given = value[0]
    items = [f"{k}={v}" for k, v in given.items()] if isinstance(given, dict) else np.ravel(given)
    words = " ".join(f"{flag}={shlex.quote(str(item))}" for item in items)
    if name == "covariates":
        words = shlex.join([flag, *given])
    if given is None or isinstance(given, bool):
        words = {None: f"{flag}=none", True: flag, False: f"--no-{name}"}[given]
    return f"{name}={given!r} ({words})"


def _drop_advice(bad: pd.Series) -> str:
    """Return advice on cells that are neither values nor known to be missing."""
    cells = list(bad.unique())
    if len(cells) > 10:
        return f"correct the {len(cells)} different cells like this in the file"
    return f"drop such rows by {option('na_values', cells)}"


def _number_parts(cell: str) -> tuple[str, str, float, bool, bool]:
    """Return digits, marks and factor, and whether the number fits a decimal point or comma."""
    match = re.match(_NUMBER, {"true": "1", "false": "0"}.get(cell.lower(), cell))
    if match is None:
        return "", "", 1.0, False, False
    digits = re.sub(r"(?<=\d)[ '](?=\d{3})", "", match["digits"]).strip()
    point, comma = (re.fullmatch(style, digits) is not None for style in _STYLES.values())
    sign = -1.0 if match["sign"] + match["bracket"] + match["end"] in ("()", "-") else 1.0
    factor = sign * 1000.0 ** " kmbt".index(match["unit"].lower() or " ")
    return digits, match["before"] + match["after"], factor, point, comma


def read_numbers(cells: pd.Series, reading: Reading) -> np.ndarray:
    """Convert a column of strings to numbers ``N``.

    The decimal mark is a point if it fits at least as many cells as a comma. The comma of ``1,234``
    separates thousands beside ``123`` or in files with commas, and is ambiguous in others. In files
    with semicolons, point and comma change roles.
    """
    decimal, name, unique = reading.decimal, cells.name, pd.Series(cells.unique(), dtype=object)
    if {*unique.str.lower()} <= _FLAGS.keys():
        reading.note(f"Words of {name!r} are read as 1 (such as yes) and 0 (such as no).")
        return cells.str.lower().map(_FLAGS).to_numpy(float)
    parts = pd.DataFrame(map(_number_parts, unique), columns=["digits", "mark", "factor", ".", ","])
    usual, other = (",", ".") if reading.sep == ";" else (".", ",")
    digits, is_unusual = parts["digits"].astype(object), parts["digits"].str.count(f"[{other}]") > 0
    is_ambiguous = decimal is None and is_unusual.all() and parts["."].equals(parts[","])
    if is_ambiguous and reading.sep != ",":
        raise ValueError(
            f"Numbers such as {unique[0]!r} in the column {name!r} may have a decimal mark or a "
            f"thousands separator: set {option('decimal', '.')} or {option('decimal', ',')}."
        )
    decimal = decimal or (usual if parts[usual].sum() >= parts[other].sum() else other)
    plain = digits.str.replace("." if decimal == "," else ",", "", regex=False)
    values = plain.str.replace(decimal, ".", regex=False).where(parts[decimal]).astype(float)
    marks = parts["mark"].str.replace(r"[<>~*]|[(\[].*", "", regex=True)
    marks = marks.mask((marks == "") & (parts["factor"].abs() > 1), "kMBT")
    is_unit = (marks != "").all() and marks.str.contains(r"[A-Za-z]{2}|[^\x00-\x7f]|\$").any()
    mixed = (marks != marks.mode()[0]) & is_unit  # W and kW, not flags such as p and e
    bad = cells[cells.isin(unique[~np.isfinite(values) | mixed])]
    if len(bad):
        numbers = "write numbers, such as 1 and 0"
        advice = _drop_advice(bad) if len(bad) < len(cells) else numbers
        advice += f", or name another column by {option('target')}"
        like = f" like {unique[~mixed].iloc[0]!r}" if mixed.any() else ""
        if name in reading.covariates:
            advice = f"{numbers}, or leave it out of {option('covariates')}"
        raise ValueError(
            f"Line {bad.index[0]}: the column {name!r} must hold numbers{like}, got "
            f"{quoted(bad.unique())}; {advice}."
        )
    marked = cells[cells.isin(unique[parts["mark"] != ""])]
    mark = "Commas" if decimal == "." else "Points"
    reading.note(f"{mark} in numbers of {name!r} separate thousands.", is_ambiguous)
    is_decimal = decimal == "," and digits.str.contains(",").any()
    reading.note(f"Numbers of {name!r} have decimal commas.", is_decimal)
    text = f"marks such as in {quoted(marked[:1])} are dropped, values are kept."
    reading.note(f"Values of {name!r} with a mark: {len(marked)}; {text}", len(marked))
    return cells.map(dict(zip(unique, values * parts["factor"], strict=True))).to_numpy(float)


def notice_sentinels(values: np.ndarray, name: str, reading: Reading) -> None:
    """Add a notice of values that may stand for missing ones (sentinel values), if any.

    A sentinel is a minimum or maximum that is repeated or begins with 99. Its distance from all
    other values exceeds their range, or it is an integer and the only negative value.
    """
    counts, sentinels = pd.Series(values).value_counts().sort_index(), list[str]()
    while len(counts) > 2:
        v = counts.index.to_numpy()
        low, high = np.diff(v)[[0, -1]]
        end, others = (v[0], v[1:]) if low > high else (v[-1], v[:-1])
        is_far = max(low, high) > np.ptp(others) or (end < 0 <= others[0] and end == round(end))
        if not is_far or (counts[end] == 1 and not f"{abs(end)}".startswith("99")):
            break
        sentinels.append(f"{end:.12g}")
        counts = counts.drop(end)
    if sentinels and 2 * counts.sum() > values.size:
        reading.note(
            f"Values of {name!r} that are far from all others: {values.size - counts.sum()}; if "
            f"they stand for missing values, set {option('na_values', sentinels)}."
        )


@lru_cache(100_000)
def kind(cell: str) -> str:
    """Return the kind of a cell: missing, number, date, clock or text."""
    _, marks, _, *fit = _number_parts(cell)
    if re.fullmatch(MISSING, cell):
        return "missing"
    if any(fit) and not marks:
        return "number"
    if re.fullmatch(_CLOCK_ALONE, re.sub(_INTERVAL_END, "", cell.lower())):
        return "clock"
    plain = re.sub(_IGNORED, "", cell.lower())
    if re.search(r"\d", cell) and re.fullmatch(_DATE, plain) and not (any(fit) and plain.isdigit()):
        return "date"
    return "number" if any(fit) else "text"


def main_kind(cells: pd.Series) -> str:
    """Return the kind of most of the first cells after leading strings, or ``"text"``."""
    kinds = [kind(cell) for cell in cells.head(1000)]
    begin = next((i for i, k in enumerate(kinds) if k in ("number", "date", "clock")), None)
    above, kinds = begin or 0, [k for k in kinds[begin:] if k != "missing"]
    kinds = kinds[kinds[:2] == ["date", "number"] :]  # a date may name a column of numbers
    most = max(set(kinds), key=kinds.count, default="text")
    return most if kinds.count(most) > max(len(kinds) / 2, above / 20) else "text"


def is_compact(cells: pd.Series) -> bool:
    """Return whether all numbers are dates: 30092001, 010930, 2001273, 200109, 2001.1."""
    unique = pd.Series(cells.unique(), dtype=object).str.removesuffix(".0")
    if unique.str.fullmatch(r"\d{4}[.,]\d\d?").all():  # months or quarters
        marks, months = {*unique.str[5:]}, {f"{i:0{n}}" for i in range(1, 13) for n in (1, 2)}
        return marks == {*"1234"} or {"11", "12"} <= marks <= months
    steps = {*np.diff(np.sort(unique.astype(int)))} if unique.str.fullmatch(r"\d{6}").all() else {0}
    is_week = steps in ({1, 48}, {1, 49}, {1, 48, 49}) or "week" in str(cells.name).lower()
    year, month, day = r"(?:1[6-9]|2[01])\d\d", "(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
    date = rf"{year}{month}(?:{day}(?:(?:[01]\d|2[0-4])(?:[0-5]\d){{0,2}})?)?"
    patterns = [date, rf"[01]\d\.{year}", rf"\d\d{month}{day}"]
    patterns += [r"\d{6}"] * is_week
    if re.search("(?i)dat|time|day|doy|^t$", str(cells.name)):  # others are counts and identifiers
        days = rf"(?:(?:{day}|[1-9]){month}|(?:{month}|[1-9]){day})(?:19|20)?\d\d"
        patterns += [r"(?:19|20)\d\d(?:[0-2]\d|3[0-6])\d", days]
    is_date = any(unique.str.fullmatch(pattern).all() for pattern in patterns)
    return is_date and len(unique) > 1 == (unique.str.len() + 1).floordiv(2).nunique()


def joined(frame: pd.DataFrame) -> pd.Series:
    """Join columns of strings, and their names."""
    cells = reduce(lambda left, right: left + " " + right, (frame[name] for name in frame))
    return cells.rename(" ".join(frame))


def read_times(
    frame: pd.DataFrame, parts: Mapping[str, str], reading: Reading
) -> tuple[np.ndarray, str]:
    """Convert columns of the parts of times to numbers or ``datetime64`` ``N``, with their zone.

    All dates have one form; if several fit, the only one that gives few gaps is used. Equal offsets
    are the zone. Dates with offsets that differ by at most an hour, as clocks change, become local
    times without a zone. Dates with other offsets are converted to UTC.
    """
    frame = frame[[*parts.values()]].apply(_completed)
    cells, table, name = joined(frame), frame.set_axis([*parts], axis=1), " ".join(frame)
    if reading.date_format or not parts.keys() <= {"date", *_LETTERS}:
        parts, table = {"date": name}, cells.to_frame("date")
    is_float = all(some.str.fullmatch(_PLAIN).all() for some in (cells.head(9), cells))
    if is_float and not reading.date_format and not is_compact(cells):
        return _numbers(cells, reading), ""
    codes = table.groupby([*table], sort=False).ngroup().to_numpy()
    by_form = _readings(table.drop_duplicates().reset_index(drop=True), parts, reading)
    good = max((r["time"].notna() for r in by_form.values()), key=sum, default=pd.Series([False]))
    if not good.all():
        raise ValueError(_not_a_time(cells, good.to_numpy()[codes % len(good)]) + reading.guess)
    by_form = {form: r for form, r in by_form.items() if r["time"].notna().all()}
    likely = [form for form in by_form if _has_few_gaps(by_form[form]["time"])]
    form = likely[0] if len(likely) == 1 else next(iter(by_form))
    times, offset, zone = by_form[form]["time"], by_form[form]["offset"], ""
    for other in (by_form[form]["time"] for form in _ORDERED if form in by_form):
        i = int((times != other).to_numpy().argmax())
        if times[i] != other[i] and len(likely) != 1 and reading.dayfirst is None:
            raise ValueError(
                f"{cells[codes == i].iloc[0]!r} in the column {name!r} may be {times[i]:%Y-%m-%d} "
                f"or {other[i]:%Y-%m-%d}: set {option('dayfirst', True)} or "
                f"{option('dayfirst', False)}."
            )
    if offset.nunique() == 1:
        zone = str(timezone(timedelta(minutes=offset[0])))
    elif offset.max() - offset.min() > 60:
        times, zone = times - pd.to_timedelta(offset, unit="m"), "UTC"
    letters = {*form, *map(_LETTERS.get, parts)}
    first = {"d": "day", "m": "month", "y": "year"}.get(form[:1], "")
    to_first, is_local = ", and dated to their first month.", not zone and offset.notna().any()
    has_ends = table.head().apply(lambda cells: cells.str.contains(_INTERVAL_END)).any(axis=None)
    note = reading.note
    note(f"Dates are read {first} first.", form in _ORDERED)
    note(_SHORT_YEARS, "y" in letters)
    note(f"Weeks begin on {'Sundays' if 'U' in letters else 'Mondays'}.", letters & {*"WU"})
    note(f"Times are read as quarters{to_first}", letters & {*"qQR"})
    note(f"Times are read as half-years{to_first}", "S" in letters)
    note("Times are converted to UTC.", zone == "UTC" and offset.nunique() > 1)
    note("Times are local: the clock changes, and offsets from UTC are dropped.", is_local)
    note("Intervals are dated to their starts.", has_ends)
    return _coarsest(times, months=not letters & {*"dDjWUHM"})[codes], zone


def _completed(cells: pd.Series) -> pd.Series:
    """Write 2001.1 beside 2001.9 or 2001.11 as 2001.10, because numbers lose their last zero."""
    if not re.fullmatch(r"\d{4}[.,]\d\d?", cells.iloc[0]):
        return cells.str.removesuffix(".0")
    beside = [cells.shift(i).str[5:].isin(["9", "09", "11"]) for i in (-1, 1)]
    return cells.mask(cells.str.fullmatch(r"\d{4}[.,]1") & (beside[0] | beside[1]), cells + "0")


def _numbers(cells: pd.Series, reading: Reading) -> np.ndarray:
    """Convert times that are numbers; seconds, ... since 1970 become dates."""
    values = read_numbers(cells, reading.changed(sep="."))
    if re.fullmatch("(?i)ye?a?r|yy", str(cells.name)) and cells.str.fullmatch(r"\d\d").all():
        reading.note(_SHORT_YEARS)
        return values + 1900 + 100 * (values < _CENTURY - 1900)
    unit = next((unit for unit, now in _EPOCHS.items() if abs(values).max() < 10 * now), "ns")
    if abs(values).min() < 0.3 * _EPOCHS[unit]:
        return values
    reading.note(f"Times are read as {unit} since 1970.")
    return _coarsest(pd.Series(pd.to_datetime(values, unit=unit).round("ms")), months=False)


def _readings(
    table: pd.DataFrame, names: Mapping[str, str], reading: Reading
) -> dict[str, pd.DataFrame]:
    """Read dates in every form that fits some of them; dates that a form does not fit are NaT."""
    others, name = _other_parts(table, names, reading), " ".join(names.values())
    is_week, is_epi = "week" in name.lower(), re.search(_EPIDEMIC, name) is not None
    if "date" not in table:  # weeks begin on Mondays, else on Sundays
        forms = ("U",) if is_epi else ("", "U")
        return {form: _assembled(others.rename(columns={"W": form or "W"})) for form in forms}
    texts, date_format, dayfirst = table["date"], reading.date_format, reading.dayfirst
    iso = r"(?!2[4-9])\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
    if [*table] == ["date"] and not date_format and texts.str.fullmatch(iso).all():
        times = pd.to_datetime(texts, format="ISO8601", errors="coerce")
        if times.notna().all():  # without 24:00
            return {"Y-m-d": pd.DataFrame({"time": times, "offset": np.nan})}
    if date_format is not None:
        utc = "%z" in date_format
        try:
            times = pd.to_datetime(texts, format=date_format, errors="coerce", utc=utc)
        except ValueError as error:
            raise ValueError(f"{option('date_format', date_format)}: {error}") from None
        form = "m" if re.search("%[mbB]|^%Y$", date_format) and "%d" not in date_format else "d"
        offset = 0.0 if utc else np.nan
        return {form: pd.DataFrame({"time": times.dt.tz_localize(None), "offset": offset})}
    if dayfirst is None and texts.head(1000).str.fullmatch(r"\d\d?\.\d\d?\..*").all():
        dayfirst = True
    texts, by_form = texts.str.lower(), {}
    if texts.head(1000).str.contains(_IGNORED).any():
        texts = texts.str.replace(_IGNORED, "", regex=True).str.strip()
    sample = texts.head(1000).to_list()
    years_apart = {re.sub(r"\d{4}", "", text) for text in sample}
    for form in sorted(_FORMS, key=lambda form: is_week and not {*form} & {*"WU"}):
        is_excluded = form in _ORDERED and dayfirst not in (None, form[0] == "d")
        is_excluded |= len(form) == 3 and bool({*others} & {*"mqWU"})  # 2012-13 beside a month
        is_excluded |= (is_epi and "W" in form) or ("q" in form and len(years_apart) != 4)
        if not is_excluded and any(map(re.compile(_PATTERNS[form]).fullmatch, sample)):
            parts = texts.str.extract(f"^(?:{_PATTERNS[form]})$")
            weeks = parts[[*{*form} & {*"WU"}]].astype(float)  # 2001-13 among months is an error
            if is_week or "w" in form or weeks.empty or (weeks > 12).to_numpy().mean() > 0.5:
                by_form[form] = _assembled(
                    parts.drop(columns=[*others], errors="ignore").join(others)
                )
    return by_form


def _other_parts(table: pd.DataFrame, names: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """Read the parts of times in columns of years, months, hours, ..."""
    parts = pd.DataFrame(index=table.index)
    days = table.drop(columns=["clock", "hour", "minute"], errors="ignore")
    for part, cells in table.drop(columns="date", errors="ignore").items():
        texts = cells.str.lower().str.replace(r"\.0$|" + _INTERVAL_END, "", regex=True)
        digits = texts.str.extract(r"(\d+)")[0].astype(float)
        is_number = part == "hour" and not texts.str.contains("[.:]").any()
        if part == "clock" and texts.str.fullmatch(r"\d\d?:00(?::00)?").all():  # 01:00 to 24:00
            is_number = {*digits} == {*range(1, 25)}
        if is_number and digits.notna().all():
            minutes = _minutes(digits, joined(days), names[part], reading)
            parts = parts.assign(H=minutes // 60, M=minutes % 60)
        elif part in ("clock", "hour"):
            parts = parts.join(texts.str.extract(f"^{_CLOCK}$"))
        else:
            parts["y" if part == "year" and digits.max() < 100 else _LETTERS[part]] = digits
        if part == "month":
            parts["b"] = texts.str.extract(f"({MONTH})")[0]
    return parts


def _minutes(n: pd.Series, days: pd.Series, name: str, reading: Reading) -> pd.Series:
    """Convert hours (0 to 23 or 1 to 24), periods (1 to 48) or 1330 to minutes from midnight."""
    if n.max() > 100:
        return n // 100 * 60 + n % 100
    daily = next((p for p in (24, 48) if n.max() <= p + p // 24), 96)
    first = int(n.min() > 0 and (n.max() >= 24 or daily > 24))
    reading.note(f"{name!r} counts from 1, {1440 // daily} minutes each; times are starts.", first)
    if n.groupby(days, sort=False).max().iloc[:-1].nunique() > 1:
        text = "the times count from midnight, also on days of 23 or 25 hours."
        reading.note(f"Days end at different numbers of {name!r}; {text}")
    return (n - first) * (1440 // daily)


def _assembled(parts: pd.DataFrame) -> pd.DataFrame:
    """Assemble times and their offsets from UTC in minutes; impossible times are NaT."""
    n, none = dict.fromkeys(_GROUPS, np.full(len(parts), np.nan)), pd.Series(index=parts.index)
    half, zone = (parts.get(name, none.astype(object)) for name in "pz")
    for name, cells in parts.drop(columns=["p", "z"], errors="ignore").items():
        cells = cells.map(_MONTHS) if name == "b" else cells
        cells = cells.astype(str).str.replace(",", ".") if name == "S" else cells
        n[name] = cells.astype(float).to_numpy()
    year = _first(n["Y"], n["y"] + 1900 + 100 * (n["y"] < _CENTURY - 1900))
    week = _first(n["W"], n["U"])
    month = _first(n["m"], n["b"], 3 * n["q"] - 2, 6 * n["s"] - 5, 1)
    day = np.where(np.isnan(week), _first(n["d"], 1), 4)  # the fourth of January: the first week
    good = ~np.isnan(year) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    first = np.where(good, 12 * (year - 1970) + month - 1, 0).astype(int).astype("datetime64[M]")
    date = first.astype("datetime64[D]") + (np.where(good, day, 1) - 1).astype(int)
    good &= date.astype("datetime64[M]") == first
    back = (date.astype(int) + 3 + ~np.isnan(n["U"])) % 7  # since a Monday or a Sunday
    date += (_first(7 * (week - 1) - back, 0) + _first(n["j"], 1) - 1).astype(int)
    good &= (date + 3 * ~np.isnan(week)).astype("datetime64[Y]").astype(int) + 1970 == year
    good &= np.isnan(n["f"]) | ((n["f"] == (year + 1) % 100) & (len(parts) > 2))
    hour = np.where(half.isna(), n["H"], n["H"] % 12 + 12 * (half == "p"))
    seconds = 3600 * _first(hour, 0) + 60 * _first(n["M"], 0) + _first(n["S"], 0)
    clock = zone.mask(zone.isin(["z", "utc", "gmt"]), "+00").str.extract(r"([+-]\d\d):?(\d\d)?")
    hours, minutes = clock.astype(float).to_numpy().T
    offset = 60 * hours + np.copysign(_first(minutes, 0), hours)
    good &= (seconds <= 90_000) & (np.isnan(offset) == (np.isnan(offset).mean() >= 0.5))
    seconds += 86_400 * (_first(n["u"], 1) - 1)
    times = date.astype("datetime64[us]") + (1e6 * seconds).round().astype(int)
    return pd.DataFrame({"time": pd.Series(times).where(good), "offset": offset})


def _first(*values: np.ndarray | float) -> np.ndarray:
    """Return the first of the values that is not NaN, by entry."""
    arrays = map(np.asarray, values)
    return reduce(lambda one, other: np.where(np.isnan(one), other, one), arrays)


def _has_few_gaps(times: pd.Series) -> bool:
    """Return whether at least half of the equally spaced times in the range occur."""
    ticks = np.unique(times.to_numpy("datetime64[s]"))
    for unit in ("D", "M"):
        coarse = ticks.astype(f"datetime64[{unit}]")
        ticks = coarse if len(np.unique(ticks - coarse)) == 1 else ticks
    steps = np.diff(ticks).astype(int)
    return ticks.size < 2 or bool(2 * ticks.size >= steps.sum() / steps.min() + 1)


def _not_a_time(cells: pd.Series, is_good: np.ndarray) -> str:
    """Return the error message on cells that are not times."""
    bad, example = cells[~is_good], "2001-09-30, 30/09/2001 18:00, 2001Q3 or Sep 2001"
    advice = f"name its format, such as {option('date_format', '%d.%m.%Y %Hh')}"
    if is_good.mean() >= 0.5:
        example, advice = repr(cells[is_good].iloc[0]), _drop_advice(bad)
        if bad.index[-1] < cells.index[is_good][0]:
            advice = f"skip these lines by {option('skiprows', int(bad.index[-1]))}"
    return (
        f"Line {bad.index[0]}: {bad.iloc[0]!r} in the column {cells.name!r} is not a time such as "
        f"{example}; {advice}, or set {option('time', 'rows')}."
    )


def _coarsest(times: pd.Series, *, months: bool) -> np.ndarray:
    """Convert dates to the coarsest of months (if allowed), days, s and ms that represents them."""
    dates = times.to_numpy("datetime64[us]")
    for unit in ("M",) * months + ("D", "s", "ms"):
        coarse = dates.astype(f"datetime64[{unit}]")
        if (coarse == dates).all():
            return coarse
    return dates
