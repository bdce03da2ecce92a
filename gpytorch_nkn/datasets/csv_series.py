"""Time series from text files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gpytorch_nkn._optional import needs
from gpytorch_nkn.datasets.time_series import TimeSeries

__all__ = ["read_time_series"]


def read_time_series(
    path: str | os.PathLike,
    *,
    time: str | Sequence[str] | None = None,
    target: str | None = None,
    covariates: Sequence[str] = (),
    future: str | os.PathLike | None = None,
    where: Mapping[str, str] | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    header: int | str | None = "infer",
    skiprows: int = 0,
    decimal: str | None = None,
    na_values: Sequence[str] = (),
    dayfirst: bool | None = None,
    date_format: str | None = None,
) -> TimeSeries:
    """Read a series from a text file; nothing is held out.

    Options that are not given are inferred from the file, and notices state the result. If a choice
    is ambiguous, the error names the option. Rows are sorted by time; rows without a value are
    dropped. Columns of months or years become rows. Intervals are dated to their starts.

    Args:
        path: The file, which gzip may have compressed.
        time: Name of the time column, or names of the columns of its parts, such as year and month;
            ``"rows"`` for row numbers; None for a column of dates, or of numbers that rise.
        target: Name of the target column; None for the only other column of numbers.
        covariates: Names of columns of numbers that are also known for the future. Rows without a
            target after the last one with a target are the future.
        future: A second file with future rows: times and covariates, in columns of the same names.
        where: Columns and their values in the rows to read, for files of several series.
        sep: Separator of cells, a character or a regular expression.
        encoding: Encoding of the text.
        header: Index of the line with names of columns, after ``skiprows``; None for no names.
        skiprows: Lines to skip at the top.
        decimal: Decimal mark, "." or ",".
        na_values: Further strings or numbers that stand for missing values or times.
        dayfirst: Whether ``01/02/2001`` is in February.
        date_format: Format of times as in :func:`pandas.to_datetime`.

    Raises:
        ImportError: pandas is not installed.
        OSError: The file cannot be read.
        ValueError: The file holds no such series; the message names the line and the option.
    """
    with needs("read_time_series"):
        from gpytorch_nkn.datasets import csv_cells, csv_table
    path, where, notices = Path(path), where or {}, list[str]()
    times = [time] if isinstance(time, str) else list(time or ())
    layout = {"header": header, "sep": sep, "encoding": encoding, "skiprows": skiprows}
    read_times = partial(
        csv_cells.read_times, decimal=decimal, dayfirst=dayfirst, date_format=date_format
    )
    frame, found_sep = csv_table.read_table(path, notices, where, na_values, **layout)
    if target is None:
        frame, wide = csv_table.melted(frame, [*times, *covariates], notices)
        if wide:
            times = times and [*times, *wide] if times != [csv_table.ROWS] else times
            target = frame.columns[-1]
    if times == [csv_table.ROWS] or (frame.shape[1] == 1 and not times):
        times = [csv_table.ROWS]
        csv_table.count_rows(frame, read_times, notices)
    csv_table.check_columns(frame, time=times, target=[target or ""], covariates=covariates)
    parts, target, rest = csv_table.choose(frame, times, target, covariates)
    times = list(parts.values())
    taken = csv_cells.quoted([*times, target, *covariates])
    if len({*times, target, *covariates}) < len(times) + 1 + len(covariates):
        raise ValueError(f"time, target and covariates must be different, got {taken}.")
    if future is not None:
        if not covariates:
            raise ValueError("future needs covariates: name them (--covariates), too.")
        more = csv_table.read_table(Path(future), [], {}, na_values, **layout)[0]
        frame = csv_table.with_future(frame, more, [*times, *covariates], where)
    missing = int((frame[target] == "").sum())
    frame = csv_table.rows_with_time(frame, times, target, covariates, date_format, notices)
    if len(times) > 1 and time is None:
        notices.append(f"Times are read from the columns {csv_cells.quoted(times)}.")
    cells = csv_table.joined(frame, parts, notices)
    is_kept = ~cells.isin([*na_values])  # of several columns, such as 2001-02-30
    frame, cells = frame[is_kept], cells[is_kept]
    known = (frame[target] != "").to_numpy()
    if not known.any():
        raise ValueError(
            f"{path} has no values in the column {target!r} beside times in "
            f"{csv_cells.quoted(times)}: name another column (--time or --target)."
        )
    x, zone = read_times(cells, notices)
    y = np.full(len(x), np.nan)
    y[known] = csv_cells.read_numbers(frame[target][known], notices, decimal, found_sep)
    csv_cells.notice_sentinels(y[known], target, notices)
    beside = csv_cells.read_covariates(frame[[*covariates]], decimal, found_sep)
    order = np.argsort(x, kind="stable")
    now, ahead = order[known[order]], order[~known[order]]
    ahead = ahead[x[ahead] > x[now[-1]]]
    repeated = len(now) - np.unique(x[now]).size
    if repeated and time is None:
        csv_table.check_one_series(frame[known], x[known], times, target)
    full = [c for c in rest if (frame[c][known] != "").all() and frame[c][known].nunique() > 1]
    gaps = missing - len(ahead)
    found = {
        f"Rows without a value of {target!r} that are dropped: {gaps}.": gaps > 0,
        "Rows are sorted by time.": (np.diff(now) < 0).any(),
        f"Rows at the time of an earlier row: {repeated}; all rows are used.": repeated,
        f"Columns of numbers that are not used: {csv_cells.quoted(full)}; if they are known for "
        f"the future, name them by covariates (--covariates {shlex.join(full)}).": full,
    }
    return TimeSeries(
        name=Path(path.name.removesuffix(".gz")).stem,
        x=x[now],
        y=y[now],
        test=np.zeros(len(now), dtype=bool),
        x_label=str(cells.name) or "time",
        y_label=target,
        zone=zone,
        notices=(*notices, *(notice for notice, is_so in found.items() if is_so)),
        covariates=beside.iloc[now].reset_index(drop=True) if covariates else None,
        future_x=x[ahead] if covariates else None,
        future_covariates=beside.iloc[ahead].reset_index(drop=True) if covariates else None,
    )
