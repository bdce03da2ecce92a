"""Time series from text files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
    dropped.

    - Times are numbers or dates of one format (``30/09/2001 18:00``, ``Sep 2001``, ``2001Q3``,
      ``2001-W36``, ``20010930``). Year and month, or date and hour or period of the day, may be in
      several columns. Columns of months or years become rows. Intervals are dated to their starts.
    - Numbers may have decimal commas, thousands separators, units and marks (``12.4*``).
    - Text may be packed, and has any separator. Lines without numbers are dropped.

    Args:
        path: The file.
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

        from gpytorch_nkn.datasets import csv_cells, csv_columns, csv_table, csv_times
        from gpytorch_nkn.datasets.csv_cells import counted, quoted
    except ImportError as error:
        raise ImportError(
            f"Series from files need pandas: pip install 'gpytorch_nkn[estimators]' ({error})."
        ) from error
    path, where, notices = Path(path), where or {}, list[str]()
    times = [time] if isinstance(time, str) else list(time or ())
    layout = (na_values, sep, encoding, header, skiprows)
    frame, found_sep = csv_table.read_table(path, where, *layout, notices)
    reading: dict[str, Any] = {"dayfirst": dayfirst, "date_format": date_format, "decimal": decimal}
    if target is None:
        frame, part = csv_columns.melted(frame, [*times, *covariates], notices)
        if part is not None:
            times, target = [*times, *[part] * bool(times)], frame.columns[-1]
    if frame.shape[1] == 1 and not times:
        times = [_ROWS]
    if times == [_ROWS] and _ROWS not in frame:
        falling = csv_columns.falling_dates(frame, reading)
        numbers = np.arange(len(frame)).astype(str).astype(object)
        frame[_ROWS] = numbers[::-1] if falling else numbers
        counted_from = f"last to the first row, as {falling!r} falls"
        notices.append(
            f"Rows are counted from the {counted_from if falling else 'first to the last row'}."
        )
    csv_table.check_columns(frame, time=times, target=[target or ""], covariates=covariates)
    columns = csv_columns.Columns(frame)
    parts = columns.times(times, target)
    times = list(parts.values())
    target = target or columns.target([*times, *covariates])
    taken = [*times, target, *covariates]
    if len(set(taken)) < len(taken):
        raise ValueError(
            f"time, target and covariates must be different columns, got {quoted(taken)}."
        )
    if future is not None:
        if not covariates:
            raise ValueError("future needs covariates: name them (--covariates), too.")
        more = csv_table.read_table(Path(future), {}, *layout, [])[0]
        csv_table.check_columns(more, future=[*times, *covariates])
        for name in where.keys() & set(more):
            more = more[more[name] == where[name]]
        frame = pd.concat([frame, more.reindex(columns=frame.columns, fill_value="")])
    if len(times) > 1 and (frame[times[0]] == "").any():  # merged cells
        frame[times[0]] = frame[times[0]].replace("", None).ffill().fillna("")
        notices.append(f"Empty cells of {times[0]!r} take the value above.")
    untimed = (frame[times] == "").any(axis=1)
    if date_format is None:  # words below the data
        is_time = frame[times[0]].iloc[-100:].map(csv_times.kind) != "text"
        untimed.iloc[len(frame) - int(is_time[::-1].argmax()) :] = True
    known, missing = frame[target] != "", int((frame[target] == "").sum())
    lost = frame[untimed & known]
    if len(lost):
        text = quoted([", ".join(filter(None, lost.iloc[0]))])
        notices.append(f"{counted(len(lost))} without a time dropped ({text}).")
    is_future = bool(covariates) and (frame[[*covariates]] != "").all(axis=1)
    frame = frame[~untimed & (known | is_future)]
    if (frame[target] == "").all():
        raise ValueError(
            f"{path} has no values in the column {target!r} beside times in {quoted(times)}: name "
            "another column (--time or --target)."
        )
    if len(times) > 1 and time is None:
        notices.append(f"Times are read from the columns {quoted(times)}.")
    cells = csv_columns.joined(frame, parts, notices)
    is_kept = ~cells.isin([*na_values])  # of several columns, such as 2001-02-30
    frame, cells = frame[is_kept], cells[is_kept]
    known = (frame[target] != "").to_numpy()
    x, zone = csv_times.read_times(cells, notices, **reading)
    read_numbers = partial(csv_cells.read_numbers, decimal=decimal, sep=found_sep)
    y = np.full(len(x), np.nan)
    y[known] = read_numbers(frame[target][known], notices)
    csv_cells.notice_sentinels(y[known], target, notices)
    beside = pd.DataFrame(index=range(len(x)))
    for column in covariates:
        empty = frame[column] == ""
        if empty.any():
            raise ValueError(
                f"Line {empty.idxmax()}: the covariate {column!r} has no value; fill it in, or "
                "leave the column out of covariates (--covariates)."
            )
        words = frame[column][~frame[column].str.contains(r"\d")]
        if len(words):
            raise ValueError(
                f"Line {words.index[0]}: the covariate {column!r} must hold numbers, such as 0 and "
                f"1, got {quoted(words.unique())}."
            )
        beside[column] = read_numbers(frame[column], [])
    order = np.argsort(x, kind="stable")
    now, ahead = order[known[order]], order[~known[order]]
    ahead = ahead[x[ahead] > x[now[-1]]]
    if missing > len(ahead):
        rows = counted(missing - len(ahead))
        notices.append(f"{rows} without a value of {target!r} dropped.")
    if (np.diff(now) < 0).any():
        notices.append("Rows are sorted by time.")
    if repeated := len(now) - np.unique(x[now]).size:
        if time is None:
            csv_columns.check_one_series(frame[known], x[known], times, target)
        notices.append(f"{counted(repeated)} at the time of an earlier row; all rows are used.")
    columns.unused(frame[known], taken, notices)
    return TimeSeries(
        name=Path(path.name.removesuffix(".gz").removesuffix(".zip")).stem,
        x=x[now],
        y=y[now],
        test=np.zeros(len(now), dtype=bool),
        x_label=str(cells.name) or "time",
        y_label=target,
        zone=zone,
        notices=tuple(notices),
        covariates=beside.iloc[now].reset_index(drop=True) if covariates else None,
        future_x=x[ahead] if covariates else None,
        future_covariates=beside.iloc[ahead].reset_index(drop=True) if covariates else None,
    )
