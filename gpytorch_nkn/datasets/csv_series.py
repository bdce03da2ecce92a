"""Time series from CSV files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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

__all__ = ["read_time_series"]

_YEAR = {"year", "yr"}
_WITHIN_YEAR = {"month": "M", "mon": "M", "quarter": "Q", "qtr": "Q", "week": "W"}
_ENOUGH = 1000  # rows that tell what a column holds


def read_time_series(
    path: str | os.PathLike,
    *,
    time: str | Sequence[str] | None = None,
    target: str | None = None,
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
            month; None means year and month or quarter where there are such columns, else the
            first column of dates, else the first of numbers (row numbers without a name excepted).
        target: Name of the target column; None means the only other one with numbers.
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
        OSError: The file cannot be read.
        ValueError: The file is no such table; the message says what and where.
    """
    path = Path(path)
    table = read_table(path, sep=sep, encoding=encoding, has_header=has_header, skiprows=skiprows)
    time_columns, target_column = _choose_columns(table, time, target)
    table = _only(table, where or {})
    target_name = table.names[target_column]
    notices = list(table.notices)
    kept = [row for row in table.rows if not is_missing(row[1][target_column], na_values)]
    if len(kept) < len(table.rows):
        count = len(table.rows) - len(kept)
        notices.append(f"{_rows(count)} without a value of {shown(target_name)} left out.")
    if not kept:
        raise ValueError(f"{path} has no values in the column {shown(target_name)}.")
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
    x, told = read_times(
        _joined(kept, time_columns, time_names),
        " ".join(time_names),
        dayfirst=dayfirst,
        date_format=date_format,
        decimal=decimal,
    )
    notices += told
    order = np.argsort(x, kind="stable")
    if (np.diff(order) < 0).any():
        notices.append("Rows are sorted by time.")
    x, y = x[order], y[order]
    repeated = x.size - np.unique(x).size
    if repeated:
        _check_one_series(table, kept, time_columns, target_column)
        notices.append(f"{_rows(repeated)} at a time that is there already; all are used.")
    test = np.zeros(x.size, dtype=bool)
    stem = Path(path.name.removesuffix(".gz")).stem
    return TimeSeries(stem, x, y, test, x_label, target_name or "value", tuple(notices))


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
    table: CsvTable, time: str | Sequence[str] | None, target: str | None
) -> tuple[list[int], int]:
    columns = list(range(len(table.names)))
    if len(columns) > 2 and _counts_rows(table):
        columns = columns[1:]
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
    year = next((names[name] for name in _YEAR if name in names), None)
    within = next((names[name] for name in _WITHIN_YEAR if name in names), None)
    if year is not None and within is not None:
        return [year, within, *(names[name] for name in ("day",) if name in names)]
    dates, numbers = (
        [c for c in columns if _mostly(table, c, test)]
        for test in (looks_like_date, looks_like_number)
    )
    others = numbers if len(numbers) + has_target > 1 else columns
    return (dates or others)[:1]


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
    joined = []
    for line, cells in rows:
        text = cells[columns[0]]
        for c, name in zip(columns[1:], names[1:], strict=True):
            mark = _WITHIN_YEAR.get(name.casefold(), "-") if len(columns) == 2 else "-"
            text += (mark if cells[c].isdigit() else " ") + cells[c]
        joined.append((line, text))
    return joined


def _check_one_series(
    table: CsvTable, rows: Sequence[Row], time_columns: Sequence[int], target_column: int
) -> None:
    """Refuse a file of several series, of which a column tells which."""
    times = [tuple(cells[c] for c in time_columns) for _, cells in rows]
    if len(set(times)) > 2 * len(times) / 3:
        return
    for c, name in enumerate(table.names):
        cells = [row[1][c] for row in rows]
        different = len(set(cells))
        if c in (*time_columns, target_column) or not 1 < different <= len(cells) / 3:
            continue
        if len(set(zip(times, cells, strict=True))) == len(cells):
            raise ValueError(
                f"The column {name!r} seems to name {different} series: choose one by "
                f"where={{{name!r}: {cells[0]!r}}} (--where {name}={cells[0]})."
            )
