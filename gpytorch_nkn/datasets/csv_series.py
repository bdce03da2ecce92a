"""Time series from text files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
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

    The options have pandas' names. What is not given is inferred from all rows and said in the
    notices; what is ambiguous raises an error that names the option. Rows are sorted by time;
    rows without a value are left out.

    - Times are numbers or dates of one format (``30/09/2001 18:00``, ``Sep 2001``, ``2001Q3``,
      ``2001-W36``, ``20010930``), of intervals the starts, in one column or in several (year and
      month, date and hour or period of the day). Months, years, days or hours as columns become
      rows. Names of months may be German, French, Spanish or Italian. Where hours of a day are
      counted, days of clock changes have an hour twice or not at all.
    - Numbers may have decimal commas, thousands separators, units and marks (``12.4*``); K, M and B
      beside plain numbers are thousands, millions and billions, and ``<3`` is read as 3.
    - Text is in UTF-8, UTF-16 or cp1252, may be packed by gzip or zip, and is split at tabs,
      semicolons, bars, commas or spaces. Lines that are no data are left out.

    Args:
        path: The file.
        time: Name of the time column, or of several that tell it together; ``"rows"`` counts the
            rows.
        target: Name of the target column; None means the only other one with numbers.
        covariates: Names of columns of numbers that are known for the future, too. Rows without a
            target after the last one with a target are the future.
        future: A second file with rows of the future: times and covariates, in columns of the same
            names.
        where: Columns and their values in the rows to read, for files of several series.
        sep: Separator of cells, a character or a regular expression.
        encoding: Encoding of the text.
        header: Index of the line with names of columns, after ``skiprows``; None for no names.
        skiprows: Lines to leave out at the top.
        decimal: Decimal mark, "." or ",".
        na_values: More strings or numbers that stand for missing values; rows without a time are
            left out.
        dayfirst: Whether ``01/02/2001`` is in February.
        date_format: Format of times as in :func:`pandas.to_datetime`, or "excel" for Excel's
            serial dates or "unix" for time since 1970.

    Raises:
        ImportError: pandas is not installed.
        OSError: The file cannot be read.
        ValueError: The file holds no such series; the message names the line and the option.
    """
    try:
        import pandas as pd

        from gpytorch_nkn.datasets import csv_columns, written_cells
        from gpytorch_nkn.datasets.csv_table import read_table
    except ImportError as error:
        raise ImportError(
            f"Series from files need pandas: pip install 'gpytorch_nkn[estimators]' ({error})."
        ) from error
    path = Path(path)
    layout = partial(read_table, sep=sep, encoding=encoding, header=header, skiprows=skiprows)
    frame, sep, notices = layout(path)
    frame = csv_columns.selected(frame, where or {})
    times = [time] if isinstance(time, str) else list(time or ())
    part = None
    if target is None:
        frame, part, told = csv_columns.turned(frame)
        notices += told
        if part is not None:
            times += [part] if times else []
            target = frame.columns[-1]
    if frame.shape[1] == 1 and not times:
        times = [_ROWS]
    if times == [_ROWS] and _ROWS not in frame:
        frame, notice = csv_columns.with_rows(frame, _ROWS)
        notices.append(notice)
    named = {"time": times, "target": [target] if target else [], "covariates": covariates}
    for option, names in named.items():
        for name in names:
            csv_columns.check_column(frame, name, option)
    columns = csv_columns.find_times(frame, times, target)
    if part == "day" and part not in columns:
        raise ValueError(
            "Columns look like days of a month, and no other ones tell month and year: write these "
            "into one column such as 2001-09, or name a column by target (--target)."
        )
    times = list(columns.values())
    target = csv_columns.find_target(frame, times) if target is None else target
    if len({*times, target, *covariates}) < len(times) + 1 + len(covariates):
        raise ValueError(
            f"time, target and covariates must be different columns, got "
            f"{written_cells.listed([*times, target, *covariates])}."
        )
    if future is not None:
        if not covariates:
            raise ValueError("future has values of covariates: name them (--covariates), too.")
        more = layout(Path(future))[0]
        for column in (*times, *covariates):
            csv_columns.check_column(more, column, "future")
        more = csv_columns.selected(more, {c: v for c, v in (where or {}).items() if c in more})
        frame = pd.concat([frame, more.reindex(columns=frame.columns, fill_value="")])
    gaps = frame[[*times, target, *covariates]].apply(written_cells.is_missing, na_values=na_values)
    if gaps[target].all():
        raise ValueError(f"{path} has no values in the column {target!r}.")
    if len(times) > 1 and gaps[times[0]].any():  # merged cells
        frame[times[0]] = frame[times[0]].mask(gaps[times[0]]).ffill().fillna("")
        gaps[times[0]] = frame[times[0]] == ""
        notices.append(f"Empty cells of {times[0]!r} take the value above.")
    kinds = [written_cells.kind(cell) for cell in frame[times[0]].iloc[-100:]]
    below = next((i for i, kind in enumerate(kinds[::-1]) if kind != "text"), 0)
    untimed = gaps[times].any(axis=1)
    untimed |= (np.arange(len(frame)) >= len(frame) - below) & (date_format is None)
    lost = frame[untimed & ~gaps[target]]
    if len(lost):
        text = written_cells.listed([", ".join(filter(None, lost.iloc[0]))])
        notices.append(f"{written_cells.counted(len(lost))} without a time left out ({text}).")
    missing, known = int(gaps[target].sum()), ~gaps[target] & ~untimed
    later = ~known & ~untimed & ~gaps[list(covariates)].any(axis=1) & bool(covariates)
    frame, known = frame[known | later], known[known | later].to_numpy()
    cells, time_notices = csv_columns.joined(frame, columns, dayfirst)
    is_kept = ~cells.isin(list(na_values))  # of several columns, such as 2001-02-30
    frame, cells, known = frame[is_kept], cells[is_kept], known[is_kept.to_numpy()]
    if len(times) > 1 and time is None:
        names = written_cells.listed(times)
        time_notices.insert(0, f"Times are read from the columns {names}.")
    x, zone, read_notices = written_cells.read_times(
        cells, dayfirst=dayfirst, date_format=date_format, decimal=decimal
    )
    time_notices += read_notices
    y, y_notices = written_cells.read_numbers(frame[target][known], decimal=decimal, sep=sep)
    values = {}
    for column in covariates:
        empty = written_cells.is_missing(frame[column], na_values)
        if empty.any():
            raise ValueError(
                f"Line {empty.idxmax()}: the covariate {column!r} has no value; fill it in, or "
                "leave the column out of covariates (--covariates)."
            )
        values[column] = written_cells.read_numbers(frame[column], decimal=decimal, sep=sep)[0]
    beside = pd.DataFrame(values, index=range(len(x)))
    order = np.argsort(x, kind="stable")
    now, ahead = order[known[order]], order[~known[order]]
    ahead = ahead[x[ahead] > x[now[-1]]]
    if missing > len(ahead):
        rows = written_cells.counted(missing - len(ahead))
        notices.append(f"{rows} without a value of {target!r} left out.")
    notices += [*y_notices, *written_cells.find_sentinels(y, target), *time_notices]
    if (np.diff(now) < 0).any():
        notices.append("Rows are sorted by time.")
    if repeated := len(now) - np.unique(x[now]).size:
        csv_columns.check_one_series(frame[known], x[known], times, target, named=time is not None)
        rows = written_cells.counted(repeated)
        notices.append(f"{rows} at the time of an earlier row; all rows are used.")
    notices += csv_columns.unused(frame[known], [*times, target, *covariates])
    position = np.cumsum(known) - 1  # in y
    return TimeSeries(
        name=Path(path.name.removesuffix(".gz").removesuffix(".zip")).stem,
        x=x[now],
        y=y[position[now]],
        test=np.zeros(len(now), dtype=bool),
        x_label=str(cells.name) or "time",
        y_label=target or "value",
        zone=zone,
        notices=tuple(notices),
        covariates=beside.iloc[now].reset_index(drop=True) if covariates else None,
        future_x=x[ahead] if covariates else None,
        future_covariates=beside.iloc[ahead].reset_index(drop=True) if covariates else None,
    )
