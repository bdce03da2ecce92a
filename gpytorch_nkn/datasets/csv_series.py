"""Time series from CSV files."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from gpytorch_nkn.datasets.time_series import TimeSeries

__all__ = ["read_time_series"]

_EMPTY = {"", "NA"}
_YEAR_FIRST = re.compile(r"(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?")


def read_time_series(
    path: str | os.PathLike, *, time: str | None = None, target: str | None = None
) -> TimeSeries:
    """Read a series from a CSV file with a header; nothing is held out.

    Times are numbers (years included) or dates (``2001-09-30``, ``2001-09``, ISO 8601 with a time
    of day). Rows are sorted by time and may be irregular. Rows whose target is empty or NA are
    left out, which the notices say. Commas separate the cells, or semicolons or tabs where the
    header has no comma.

    Args:
        path: The file.
        time: Name of the time column; None means the first one (other than the target).
        target: Name of the target column; None means the only other one with numbers.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no such table; the message says what and where.
    """
    names, rows = _read_table(Path(path))
    time_column, target_column = _choose_columns(names, rows, time, target)
    notices = []
    kept = [(line, cells) for line, cells in rows if cells[target_column] not in _EMPTY]
    if len(kept) < len(rows):
        count = len(rows) - len(kept)
        notices.append(f"{_rows(count)} without a value of {names[target_column]!r} left out.")
    if not kept:
        raise ValueError(f"{path} has no values in the column {names[target_column]!r}.")
    y = np.array([_number(cells[target_column], names[target_column], n) for n, cells in kept])
    x = _parse_times([(line, cells[time_column]) for line, cells in kept], names[time_column])
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    repeated = x.size - np.unique(x).size
    if repeated:
        notices.append(f"{_rows(repeated)} at a time that is there already; all are used.")
    test = np.zeros(x.size, dtype=bool)
    labels = names[time_column] or "time", names[target_column] or "value"
    return TimeSeries(Path(path).stem, x, y, test, *labels, tuple(notices))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _read_table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header, and the line number and the cells of every row that is not blank."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file in UTF-8.") from None
    if "\0" in text:
        raise ValueError(f"{path} is not a text file: it holds zero bytes.")
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = next((s for s in ",;\t" if s in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        table = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    table = [(line, cells) for line, cells in table if any(cells)]
    if not table:
        raise ValueError(f"{path} is empty.")
    names, rows = table[0][1], table[1:]
    if len(names) < 2:
        raise ValueError(f"{path} needs a time and a target column, got only {names[0]!r}.")
    if all(_is_number(name) or _date(name) for name in names):
        raise ValueError(f"{path} needs a header with column names, got {', '.join(names)}.")
    if not rows:
        raise ValueError(f"{path} has a header and no rows.")
    for line, cells in rows:
        if len(cells) > len(names):
            raise ValueError(
                f"{path}, line {line}: expected {len(names)} cells as in the header, "
                f"got {len(cells)}."
            )
        cells += [""] * (len(names) - len(cells))
    return names, rows


def _choose_columns(
    names: Sequence[str],
    rows: Sequence[tuple[int, list[str]]],
    time: str | None,
    target: str | None,
) -> tuple[int, int]:
    listed = ", ".join(repr(name) for name in names)
    for option, name in (("time", time), ("target", target)):
        if name is not None and name not in names:
            raise ValueError(f"There is no {option} column {name!r}; the columns are {listed}.")
    if time is not None and time == target:
        raise ValueError(f"Time and target must be different columns, got {time!r} for both.")
    columns = list(range(len(names)))
    if len(columns) > 2 and not names[0] and _counts_rows([cells[0] for _, cells in rows]):
        columns = columns[1:]  # row numbers, as R and pandas write them
    target_column = None if target is None else names.index(target)
    time_column = (
        next(c for c in columns if c != target_column) if time is None else names.index(time)
    )
    if target_column is None:
        others = [c for c in columns if c != time_column]
        if len(others) > 1:
            numeric = [
                c for c in others if names[c] and any(_is_number(cells[c]) for _, cells in rows)
            ]
            if len(numeric) != 1:
                raise ValueError(f"Which column is the target? The columns are {listed}.")
            others = numeric
        target_column = others[0]
    return time_column, target_column


def _counts_rows(cells: Sequence[str]) -> bool:
    return any(cells == [str(i + start) for i in range(len(cells))] for start in (0, 1))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, name: str, line: int) -> float:
    if not _is_number(cell):
        raise ValueError(f"Line {line}: the column {name!r} must hold numbers, got {cell!r}.")
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(
            f"Line {line}: the column {name!r} must hold finite numbers, got {cell!r}; a row "
            "whose target is empty is left out."
        )
    return value


def _parse_times(cells: Sequence[tuple[int, str]], name: str) -> np.ndarray:
    digits = _calendar_digits([cell for _, cell in cells])
    if digits:
        cells = [(line, "-".join(part)) for (line, _), part in zip(cells, digits, strict=True)]
    elif any(_is_number(cell) for _, cell in cells):
        return np.array([_number(cell, name, line) for line, cell in cells])
    dates = []
    for line, cell in cells:
        date = _date(cell)
        if date is None:
            raise ValueError(
                f"Line {line}: the column {name!r} must hold numbers or dates such as 2001-09-30 "
                f"or 2001-09, got {cell!r}."
            )
        dates.append(date)
    values = np.array(dates, dtype="datetime64[us]")
    for unit in ("M", "D", "s"):  # the coarsest resolution that loses nothing
        coarse = values.astype(f"datetime64[{unit}]")
        only_months = all(re.fullmatch(r"\d{4}[-/]\d{1,2}", cell) for _, cell in cells)
        if (coarse == values).all() and (unit != "M" or only_months):
            return coarse
    return values


def _calendar_digits(cells: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Year and month (and day) of a column such as 201501, 201502 or 20150131, else None."""
    month = r"(1[6-9]\d\d|2[01]\d\d)(0[1-9]|1[0-2])"
    for pattern in (month, month + r"([0-2]\d|3[01])"):
        matches = [re.fullmatch(pattern, cell) for cell in cells]
        if len(cells) > 1 and all(matches):
            return [match.groups() for match in matches if match]
    return None


def _date(cell: str) -> datetime | None:
    match = _YEAR_FIRST.fullmatch(cell)
    try:
        if match:
            return datetime(int(match[1]), int(match[2]), int(match[3] or 1))
        date = datetime.fromisoformat(cell)
    except ValueError:
        return None
    return date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
