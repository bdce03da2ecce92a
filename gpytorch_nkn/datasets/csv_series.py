"""Time series from text files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpytorch_nkn.datasets.time_series import TimeSeries

__all__ = ["read_time_series"]

_ROWS = "rows"  # in place of a time column


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
    try:
        import pandas as pd

        from gpytorch_nkn.datasets import csv_cells, csv_table
        from gpytorch_nkn.datasets.csv_cells import quoted
    except ImportError as error:
        raise ImportError(
            f"Series from files need pandas: pip install 'gpytorch_nkn[estimators]' ({error})."
        ) from error
    path, where, notices = Path(path), where or {}, list[str]()
    times = [time] if isinstance(time, str) else list(time or ())
    layout = {"header": header, "sep": sep, "encoding": encoding, "skiprows": skiprows}
    frame, found_sep = csv_table.read_table(path, notices, where, na_values, **layout)
    if target is None:
        frame, wide = csv_table.melted(frame, [*times, *covariates], notices)
        if wide:
            times, target = times and [*times, *wide], frame.columns[-1]
    if times == [_ROWS] or (frame.shape[1] == 1 and not times):
        dates = [name for name in frame if csv_cells.main_kind(frame[name]) == "date"][:1]
        times, step, frame[_ROWS] = [_ROWS], 1, np.arange(len(frame)).astype(str).astype(object)
        with suppress(ValueError, IndexError):
            x, _ = csv_cells.read_times(frame[dates[0]], [], decimal, dayfirst, date_format)
            step = -1 if (np.diff(x).astype(int) <= 0).all() else 1
        frame[_ROWS] = frame[_ROWS].to_numpy()[::step]
        first = f"last row, as {quoted(dates)} falls" if step < 0 else "first row"
        notices.append(f"Rows are counted from the {first}.")
    csv_table.check_columns(frame, time=times, target=[target or ""], covariates=covariates)
    parts, target, rest = csv_table.choose(frame, times, target, covariates)
    times = list(parts.values())
    taken = [*times, target, *covariates]
    if len(set(taken)) < len(taken):
        raise ValueError(f"time, target and covariates must be different, got {quoted(taken)}.")
    if future is not None:
        if not covariates:
            raise ValueError("future needs covariates: name them (--covariates), too.")
        more = csv_table.read_table(Path(future), [], {}, na_values, **layout)[0]
        csv_table.check_columns(more, future=[*times, *covariates])
        for name in where.keys() & set(more):
            more = more[more[name] == where[name]]
        frame = pd.concat([frame, more.reindex(columns=frame.columns, fill_value="")])
    if len(times) > 1 and (frame[times[0]] == "").any():  # merged cells
        frame[times[0]] = frame[times[0]].replace("", None).ffill().fillna("")
        notices.append(f"Empty cells of {times[0]!r} take the value above.")
    timed = (frame[times] != "").all(axis=1)
    if date_format is None:  # words below the data
        is_time = frame[times[0]].iloc[-100:].map(csv_cells.kind) != "text"
        timed.iloc[len(frame) - int(is_time[::-1].argmax()) :] = False
    known, missing = frame[target] != "", int((frame[target] == "").sum())
    if len(lost := frame[~timed & known]):
        text = quoted([", ".join(filter(None, lost.iloc[0]))])
        notices.append(f"Rows without a time that are dropped: {len(lost)} (such as {text}).")
    is_future = bool(covariates) and (frame[[*covariates]] != "").all(axis=1)
    frame = frame[timed & (known | is_future)]
    if len(times) > 1 and time is None:
        notices.append(f"Times are read from the columns {quoted(times)}.")
    cells = csv_table.joined(frame, parts, notices)
    is_kept = ~cells.isin([*na_values])  # of several columns, such as 2001-02-30
    frame, cells = frame[is_kept], cells[is_kept]
    known = (frame[target] != "").to_numpy()
    if not known.any():
        raise ValueError(
            f"{path} has no values in the column {target!r} beside times in {quoted(times)}: name "
            "another column (--time or --target)."
        )
    x, zone = csv_cells.read_times(cells, notices, decimal, dayfirst, date_format)
    y = np.full(len(x), np.nan)
    y[known] = csv_cells.read_numbers(frame[target][known], notices, decimal, found_sep)
    csv_cells.notice_sentinels(y[known], target, notices)
    beside = pd.DataFrame(index=range(len(x)))
    for column in covariates:
        words = frame[column][~frame[column].str.contains(r"\d")]
        if len(words):
            raise ValueError(
                f"Line {words.index[0]}: the covariate {column!r} must hold numbers, such as 0 and "
                f"1, in all rows, got {quoted(words.unique())}; fill it in, or leave the column "
                "out of covariates (--covariates)."
            )
        beside[column] = csv_cells.read_numbers(frame[column], [], decimal, found_sep)
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
        f"Columns of numbers that are not used: {quoted(full)}; if they are known for the future, "
        f"name them by covariates (--covariates {shlex.join(full)}).": full,
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
