"""Time series from CSV files."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpytorch_nkn.datasets.csv_table import CsvTable, Row, is_year, read_table
from gpytorch_nkn.datasets.time_series import TimeSeries
from gpytorch_nkn.datasets.written_numbers import (
    Cells,
    is_missing,
    listed,
    looks_like_number,
    read_numbers,
    shown,
)
from gpytorch_nkn.datasets.written_times import looks_like_date, read_times

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_time_series"]

_YEAR = {"year", "yr", "jahr", "ann\u00e9e", "annee", "a\u00f1o", "anno"}
_MONTH = {"month", "mon", "monat", "mois", "mes", "mese"}
_QUARTER = {"quarter", "qtr", "quartal", "trimestre"}
_WEEK = {"week", "woche", "semaine", "semana", "settimana"}
_DAY, _HOUR = {"day", "tag", "jour", "dia", "giorno"}, {"hour", "hr", "stunde", "heure", "hora"}
_WITHIN_YEAR = dict.fromkeys(_MONTH, "M") | dict.fromkeys(_QUARTER, "Q") | dict.fromkeys(_WEEK, "W")
_TIMES = {*_YEAR, *_WITHIN_YEAR, *_DAY, *_HOUR, "t", "x", "time", "times", "timestamp", "when"}
_TIMES |= {"date", "datetime", "datum", "ds", "zeit", "index", "step", "period", "minute", "second"}
_ROWS = "rows"  # in place of a time column
_ENOUGH = 1000  # rows that tell what a column holds
_REPEATED = 0.1  # of the rows at times that are there already, that ask which series they are of
_PARTS = [{f"{mark}{number}" for number in range(1, 5)} for mark in ("", "q")]
_PARTS += [{str(number) for number in range(1, 13)}, {f"m{number:02}" for number in range(1, 13)}]
_UNTOLD = 0.2  # of these, that may come twice in one series
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")


def read_time_series(
    path: str | os.PathLike,
    *,
    time: str | Sequence[str] | None = None,
    target: str | None = None,
    covariates: Sequence[str] = (),
    future: str | os.PathLike | None = None,
    where: Mapping[str, str] | None = None,
    dayfirst: bool | None = None,
    date_format: str | None = None,
    decimal: str | None = None,
    na_values: Sequence[str] = (),
    sep: str | None = None,
    encoding: str | None = None,
    has_header: bool | None = None,
    skiprows: int = 0,
) -> TimeSeries:
    """Read a series from a CSV file as it is; nothing is held out.

    What the file does not make clear is refused, and the message names the argument that tells
    it; what was understood is in the notices. Rows are sorted by time and may be irregular. Rows
    without a value (empty, NA, NaN, null, -, ., ?, #N/A) are left out.

    - Times are numbers (years included) or dates of one format: ``2001-09-30``, ``30/09/2001``,
      ``30 Sep 2001``, with a time of day or without; ``2001-09``, ``2001M09``, ``Sep 2001``,
      ``Sep-01``; ``2001Q3``, ``Q3 2001``; ``2001-W36``. Day or month comes first as all dates
      together tell: by a number over 12, or if one reading alone has no more gaps than dates.
      Years of two digits are 1930 to 2029. Months and quarters are dated to their first month,
      weeks to their Monday.
    - Numbers may have decimal commas, marks between thousands (``1,234.5``, ``1.234,5``,
      ``1 234,5``) and one unit (``$``, ``%``). ``1,234`` is a thousand where other numbers of
      the column have no comma.
    - Cells are separated by commas, semicolons, tabs, bars or spaces. Lines before the header and
      lines that begin with ``#`` are left out. Text is in UTF-8, or UTF-16 with its mark, or in
      an encoding that is given; it may be packed by gzip.

    Args:
        path: The file.
        time: Name of the time column, or of several that tell it together, such as year and
            month, or date and hour; ``"rows"`` counts the rows. None means year and month or
            quarter where there are such columns, else the first column of dates (with one of
            clocks where dates repeat), else a column of numbers that is called as a time or rises
            from row to row (row numbers without a name excepted); of a file of one column, rows
            are counted.
        target: Name of the target column; None means the only other one with numbers.
        covariates: Names of columns of numbers that are known for the future, too. Rows without a
            target that come after the last one with a target are the future.
        future: A second file with rows of the future: times and covariates, in columns of the same
            names.
        where: Columns and what stands there in the rows to read, for files of several series.
        dayfirst: Whether ``01/02/2001`` is in February.
        date_format: Format of the times as in :func:`pandas.to_datetime`, or "excel" for Excel's
            serial dates or "unix" for seconds or milliseconds since 1970.
        decimal: Decimal mark, "." or ",".
        na_values: More texts or numbers that stand for missing values.
        sep: What separates cells: a character, "tab" or "space".
        encoding: Of the text.
        has_header: Whether there are names of columns; without them they are "column 1", ...
        skiprows: Lines to leave out at the beginning.

    Raises:
        ImportError: pandas is not installed.
        OSError: The file cannot be read.
        ValueError: The file is no such table; the message says what and where.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"Series from files need pandas: pip install 'gpytorch_nkn[estimators]' ({error})."
        ) from error
    path = Path(path)
    table = read_table(path, sep=sep, encoding=encoding, has_header=has_header, skiprows=skiprows)
    numbered = len(table.names) > 2 and _counts_rows(table)
    table = _only(table, where or {})
    notices = list(table.notices)
    if time is None and len(table.names) == 1:
        time = _ROWS
        notices.append("Rows are counted, as there is no column of times.")
    if _ROWS in (time, *(time or [])) and _ROWS not in table.names:
        rows = [(line, [*cells, str(i)]) for i, (line, cells) in enumerate(table.rows)]
        table = replace(table, names=[*table.names, _ROWS], rows=rows)
    time_columns, target_column = _choose_columns(table, time, target, numbered)
    covariate_columns = [_column(table, name, "covariates") for name in covariates]
    taken = {*time_columns, target_column}
    if len({*covariate_columns} - taken) < len(covariates):
        raise ValueError(
            f"covariates must be different columns beside time and target, got {listed(covariates)}"
            f" beside {listed([table.names[c] for c in sorted(taken)])}."
        )
    target_name = table.names[target_column]
    kept = [row for row in table.rows if not is_missing(row[1][target_column], na_values)]
    if not kept:
        raise ValueError(f"{path} has no values in the column {shown(target_name)}.")
    later = [row for row in table.rows if is_missing(row[1][target_column], na_values)]
    without = len(later)
    known = [*time_columns, *covariate_columns]
    later = [row for row in later if not any(is_missing(row[1][c], na_values) for c in known)]
    later = later if covariates else []
    own = len(later)
    if future is not None:
        if not covariates:
            raise ValueError("future has values of covariates: name them (--covariates), too.")
        more = read_table(
            Path(future), sep=sep, encoding=encoding, has_header=has_header, skiprows=skiprows
        )
        later += _like(table, more, Path(future), known, where or {})
    place = len(notices)
    y, told = read_numbers(
        [(line, cells[target_column]) for line, cells in kept],
        target_name,
        decimal=decimal,
        sep=table.sep,
    )
    notices += [*told, *_stand_ins(y, target_name)]
    time_names = [table.names[c] for c in time_columns]
    if len(time_columns) > 1 and time is None:
        notices.append(f"Times are read from the columns {' and '.join(map(repr, time_names))}.")
    x_label = " ".join(time_names) or "time"
    texts = _joined([*kept, *later], time_columns, time_names)
    x, told = read_times(
        texts, " ".join(time_names), dayfirst=dayfirst, date_format=date_format, decimal=decimal
    )
    notices += told
    values = []
    for column in covariate_columns:
        cells = [(line, cells[column]) for line, cells in [*kept, *later]]
        values.append(_covariate(cells, table.names[column], na_values, decimal, table.sep))
    beside = pd.DataFrame(dict(zip(covariates, values, strict=True)), index=range(len(x)))
    later_x, x = x[len(kept) :], x[: len(kept)]
    order = np.argsort(x, kind="stable")
    if (np.diff(order) < 0).any():
        notices.append("Rows are sorted by time.")
    ahead = np.argsort(later_x, kind="stable")
    ahead = ahead[later_x[ahead] > x.max()]
    without -= int((ahead < own).sum())
    if without:
        notices.insert(place, f"{_rows(without)} without a value of {shown(target_name)} left out.")
    repeated = x.size - np.unique(x).size
    if repeated:
        times = [text for _, text in texts[: len(kept)]]
        _check_one_series(table, kept, times, time_columns, target_column)
        if time is None:
            _check_whole_times(times, time_names)
        notices.append(f"{_rows(repeated)} at a time that is there already; all are used.")
    notices += _blocks(table, kept, taken)
    x, y = x[order], y[order]
    stem = Path(path.name.removesuffix(".gz")).stem
    return TimeSeries(
        name=stem,
        x=x,
        y=y,
        test=np.zeros(x.size, dtype=bool),
        x_label=x_label,
        y_label=target_name or "value",
        notices=tuple(notices),
        covariates=_taken(beside, order) if covariates else None,
        future_x=later_x[ahead] if covariates else None,
        future_covariates=_taken(beside, len(kept) + ahead) if covariates else None,
    )


def _taken(frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    return frame.iloc[rows].reset_index(drop=True)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _stand_ins(y: np.ndarray, name: str) -> list[str]:
    """What there is to tell of -99 and the like among values that are not negative else."""
    lowest, count = y.min(), int((y == y.min()).sum())
    if not re.fullmatch(r"-9{2,}(\.9+)?", f"{lowest:.12g}") or count < (y < 0).sum():
        return []
    return [
        f"{_rows(count)} of {shown(name)} with {lowest:g}; if that stands for missing values, say "
        f"na_values=['{lowest:g}'] (--na-values={lowest:g})."
    ]


def _only(table: CsvTable, where: Mapping[str, str]) -> CsvTable:
    """The rows in which columns hold what is asked for."""
    rows = table.rows
    for name, value in where.items():
        column = _column(table, name, "where")
        rows = [row for row in rows if row[1][column] == value]
        if not rows:
            known = listed(list(dict.fromkeys(row[1][column] for row in table.rows)))
            raise ValueError(f"There is no row with {value!r} in the column {name!r}, but {known}.")
    return replace(table, rows=rows)


def _column(table: CsvTable, name: str, option: str) -> int:
    if name not in table.names:
        raise ValueError(
            f"There is no {option} column {name!r}; the columns are {listed(table.names)}."
        )
    return table.names.index(name)


def _choose_columns(
    table: CsvTable, time: str | Sequence[str] | None, target: str | None, numbered: bool
) -> tuple[list[int], int]:
    columns = list(range(len(table.names)))[int(numbered) :]
    chosen = None if target is None else _column(table, target, "target")
    if time is None:
        times = _time_columns(table, [c for c in columns if c != chosen], chosen is not None)
    else:
        times = [_column(table, t, "time") for t in ([time] if isinstance(time, str) else time)]
    if chosen in times:
        raise ValueError(f"Time and target must be different columns, got {target!r} for both.")
    others = [c for c in columns if c not in times] if chosen is None else [chosen]
    if len(others) != 1:
        named = [c for c in others if table.names[c]]
        others = [c for c in named if _mostly(table, c, looks_like_number)]
        counts = [c for c in others if table.names[c].casefold() not in _TIMES]
        others = counts if len(counts) == 1 else others  # a year beside dates is no target
    wide = sum(map(_is_time_name, table.names)) > 1
    if wide and time is None and (len(others) != 1 or _is_time_name(table.names[times[0]])):
        raise ValueError(
            f"There must be one row for each time, got times as columns: {listed(table.names)}; "
            "turn the table first, such as by pandas.melt."
        )
    if len(others) != 1:
        raise ValueError(
            f"Which column is the target? The columns are {listed(table.names)}; name it by "
            "target (--target)."
        )
    return times, others[0]


def _time_columns(table: CsvTable, columns: list[int], has_target: bool) -> list[int]:
    names = {table.names[c].casefold(): c for c in reversed(columns)}

    def called(words: Collection[str]) -> list[int]:
        return [c for name, c in names.items() if name in words][-1:]

    dates, numbers = (
        [c for c in columns if _mostly(table, c, test)]
        for test in (looks_like_date, looks_like_number)
    )
    year, day, hour = called(_YEAR), called(_DAY), called(_HOUR)
    within = called(_WITHIN_YEAR) or _parts_of_years(table, year, columns, has_target)
    if year and within:
        if within[0] in dates:  # such as 2005Q1
            return within
        return [*year, *within, *day, *(hour if day else [])]
    if dates:
        clocks = [
            c for c in columns if _mostly(table, c, lambda text: bool(_CLOCK.fullmatch(text)))
        ]
        beside = (clocks or hour)[:1]
        cells = [row[1][dates[0]] for row in table.rows]
        return dates[:1] + (beside if len(set(cells)) < len(cells) else [])
    if len(numbers) + has_target > 1:
        return [_rising(table, numbers)]
    named = [c for c in columns if table.names[c].casefold() in _TIMES]
    return (named or [c for c in columns if c not in numbers] or columns)[:1]


def _parts_of_years(
    table: CsvTable, year: list[int], columns: list[int], has_target: bool
) -> list[int]:
    """The column that tells quarters or months beside one of years, whatever it is called."""
    found = []
    for c in columns if year else ():
        pairs = [(row[1][year[0]], row[1][c]) for row in table.rows]
        parts = {cell.casefold() for _, cell in pairs}
        unique = len(set(pairs)) == len(pairs) > len({y for y, _ in pairs})
        if unique and any(parts == kind for kind in _PARTS):
            found.append(c)
    return found[:1] if len(columns) + has_target > 2 else []


def _rising(table: CsvTable, numbers: list[int]) -> int:
    """The column of numbers that tells the time: by its name, or since it rises (or falls)."""

    def steps(c: int) -> np.ndarray:
        cells = [(line, cells[c]) for line, cells in table.rows if not is_missing(cells[c])]
        try:
            return np.diff(read_numbers(cells, table.names[c], grouped=False)[0])
        except ValueError:
            return np.zeros(1)

    def rank(c: int) -> tuple[bool, ...]:
        gaps = steps(c)
        monotone = bool((gaps > 0).all() or (gaps < 0).all())
        named = table.names[c].casefold() in _TIMES
        equal = monotone and bool(np.ptp(gaps) < 1e-6 * abs(gaps).max()) if gaps.size else True
        return named or monotone, named and monotone, named, equal

    ranks = {c: rank(c) for c in numbers}
    best = max(numbers, key=lambda c: ranks[c])  # the first of these
    if not ranks[best][0]:
        names = listed([table.names[c] for c in numbers])
        raise ValueError(
            f"Which column tells the time? None holds dates, and none of {names} rises from row to "
            "row: name it by time (--time), or say time='rows' (--time rows) to count the rows."
        )
    return best


def _is_clock(cell: str) -> bool:
    return bool(_CLOCK.fullmatch(cell))


def _is_time_name(name: str) -> bool:
    """Whether a column is called as a time: 2001, 2001-09, Sep, Q3."""
    within_year = not name.isdigit() and looks_like_date(f"{name} 2001")
    return within_year or is_year(name) or looks_like_date(name)


def _mostly(table: CsvTable, column: int, test: Callable[[str], bool]) -> bool:
    cells = [row[1][column] for row in table.rows[:_ENOUGH]]
    known = [cell for cell in cells if not is_missing(cell)]
    return 2 * sum(map(test, known)) > len(known)


def _counts_rows(table: CsvTable) -> bool:
    """Whether the first column holds row numbers, as R and pandas write them."""
    cells = [row[1][0] for row in table.rows]
    return table.names[0] in ("", "Unnamed: 0") and any(
        cells == [str(i + start) for i in range(len(cells))] for start in (0, 1)
    )


def _joined(rows: Sequence[Row], columns: Sequence[int], names: Sequence[str]) -> Cells:
    """Cells of the time, put together where several columns tell it: 2001-9, 2001Q3, 2001 Sep."""
    marks = ["-"] * len(columns)
    if len(columns) == 2:
        quarters = {cells[columns[1]] for _, cells in rows} == {"1", "2", "3", "4"}
        marks[1] = _WITHIN_YEAR.get(names[1].casefold(), "Q" if quarters else "-")
    joined = []
    for line, cells in rows:
        text = cells[columns[0]]
        for c, name, mark in zip(columns[1:], names[1:], marks[1:], strict=True):
            if name.casefold() in _HOUR and cells[c].isdigit():
                text += f" {cells[c]}:00"
            else:
                text += (mark if cells[c].isdigit() else " ") + cells[c]
        joined.append((line, text))
    return joined


def _check_one_series(
    table: CsvTable,
    rows: Sequence[Row],
    times: Sequence[str],
    time_columns: Sequence[int],
    target_column: int,
) -> None:
    """Refuse a file of several series, of which a column, or two of them, tell which."""
    repeated = len(times) - len(set(times))
    if repeated < _REPEATED * len(times):
        return
    columns = [c for c in range(len(table.names)) if c not in (*time_columns, target_column)]
    columns = [c for c in columns if 1 < len({cells[c] for _, cells in rows}) <= len(rows) / 3]
    for group in chain(combinations(columns, 1), combinations(columns, 2)):
        keys = [tuple(cells[c] for c in group) for _, cells in rows]
        if len(times) - len(set(zip(times, keys, strict=True))) <= _UNTOLD * repeated:
            names = [table.names[c] for c in group]
            which = "column" if len(group) == 1 else "columns"
            verb = "seems" if len(group) == 1 else "seem"
            where = dict(zip(names, keys[0], strict=True))
            options = " ".join(
                f"--where {shlex.quote(f'{name}={value}')}" for name, value in where.items()
            )
            part = ""
            if len(group) == 1 and all(looks_like_number(key) for (key,) in keys[:_ENOUGH]):
                again = [table.names[c] for c in (*time_columns, *group)]
                part = "; if it tells the time, too, say " + " ".join(
                    f"--time {shlex.quote(name)}" for name in again
                )
            raise ValueError(
                f"The {which} {' and '.join(map(repr, names))} {verb} to name {len(set(keys))} "
                f"series: choose one by where={where} ({options}){part}."
            )


def _check_whole_times(times: Sequence[str], names: Sequence[str]) -> None:
    """Refuse years and dates that mostly repeat, unless they were named as the time."""
    count = Counter(times)
    if 2 * len(count) > len(times) or not all(is_year(t) or looks_like_date(t) for t in count):
        return
    text, most = count.most_common(1)[0]
    columns = " and ".join(map(repr, names))
    again = " ".join(f"--time {shlex.quote(name)}" for name in names)
    raise ValueError(
        f"{most} rows have the time {shown(text)}: name all columns that tell the time (such as "
        f"{again} --time COL), choose the rows of one series by where (--where COL=VALUE), or name "
        f"{columns} by time ({again}) to use all rows."
    )


def _blocks(table: CsvTable, rows: Sequence[Row], taken: Collection[int]) -> list[str]:
    """What there is to tell of a column of texts that come in blocks, as names of series do."""
    for c, name in enumerate(table.names):
        cells = [row[1][c] for row in rows]
        different = len(set(cells))
        changes = sum(one != other for one, other in zip(cells, cells[1:], strict=False))
        is_text = not any(map(looks_like_number, cells[:_ENOUGH]))
        if c not in taken and is_text and 1 < different == changes + 1 <= len(cells) / 3:
            return [
                f"All rows are one series, though {shown(name)} has {different} values; "
                f"--where {shlex.quote(f'{name}={cells[0]}')} reads those of one."
            ]
    return []


def _covariate(
    cells: Cells, name: str, na_values: Sequence[str], decimal: str | None, sep: str
) -> np.ndarray:
    for line, cell in cells:
        if is_missing(cell, na_values):
            raise ValueError(
                f"Line {line}: the covariate {shown(name)} has no value; fill it in, or leave the "
                "column out of covariates (--covariates)."
            )
    return read_numbers(cells, name, decimal=decimal, sep=sep)[0]


def _like(
    table: CsvTable, more: CsvTable, path: Path, needed: Sequence[int], where: Mapping[str, str]
) -> list[Row]:
    """Rows of another table, in the columns of this one."""
    for name in (table.names[c] for c in needed):
        if name not in more.names:
            raise ValueError(
                f"{path} must have the columns {listed([table.names[c] for c in needed])}, got "
                f"{listed(more.names)}."
            )
    more = _only(more, {name: value for name, value in where.items() if name in more.names})
    places = [more.names.index(name) if name in more.names else None for name in table.names]
    return [
        (line, ["" if place is None else cells[place] for place in places])
        for line, cells in more.rows
    ]
