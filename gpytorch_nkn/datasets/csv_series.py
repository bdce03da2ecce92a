"""Time series from text files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
        time: Name of the time column, or names of several columns, such as year and month.
            ``"rows"`` counts the rows. None finds a column of dates or of increasing numbers.
        target: Name of the target column; None for the only other numeric column.
        covariates: Names of numeric columns that are also known for the future. The rows after the
            last target are the future.
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
        TypeError: ``dayfirst`` is not a boolean or None.
        ValueError: No series can be read; the message names the line and the option.
    """
    arguments = locals()
    with needs("read_time_series"):
        import pandas as pd

        from gpytorch_nkn.datasets import csv_cells, csv_table
    if dayfirst not in (None, True, False):
        raise TypeError(f"dayfirst must be True, False or None, got {dayfirst!r}.")
    reading, quoted = csv_cells.Reading(**arguments), csv_cells.quoted
    note, path = reading.note, Path(path)
    frame, parts, unused = csv_table.read_columns(path, reading)
    times, target = list(parts.values()), reading.target
    used = [*times, target, *covariates]
    if len({*used}) < len(used):
        raise ValueError(f"time, target and covariates must be different, got {quoted(used)}.")
    missing = int((frame[target] == "").sum())
    frame = csv_table.rows_with_time(frame, times, reading)
    note(f"Times are read from the columns {quoted(times)}.", len(times) > 1 and time is None)
    known = (frame[target] != "").to_numpy()
    if not known.any():
        raise ValueError(
            f"{path} has no values in the column {target!r} beside times in {quoted(times)}: name "
            "another column (--time or --target)."
        )
    x, zone = csv_cells.read_times(frame, parts, reading)
    y = np.full(len(x), np.nan)
    y[known] = csv_cells.read_numbers(frame[target][known], reading)
    csv_cells.notice_sentinels(y[known], target, reading)
    quiet = reading.changed(notices=[])
    beside = pd.DataFrame({name: csv_cells.read_numbers(frame[name], quiet) for name in covariates})
    order = np.argsort(x, kind="stable")
    now, ahead = order[known[order]], order[~known[order]]
    ahead = ahead[x[ahead] > x[now[-1]]]
    gaps, repeated = missing - len(ahead), len(now) - np.unique(x[now]).size
    if repeated and time is None:
        csv_table.check_one_series(frame[known], x[known], times, target)
    lacking = repr(target) + (f" or, in the future, of {quoted(covariates)}" if covariates else "")
    note(f"Dropped rows without a value of {lacking}: {gaps}.", gaps > 0)
    note("Rows are sorted by time.", (np.diff(now) < 0).any())
    note(f"Rows that repeat an earlier time: {repeated}; all rows are used.", repeated)
    full = [c for c in unused if (frame[c][known] != "").all() and frame[c][known].nunique() > 1]
    text = f"Unused numeric columns: {quoted(full)}; if they are known for the future, name them by"
    note(f"{text} {csv_cells.option('covariates', full)}.", full)
    return TimeSeries(
        name=Path(path.name.removesuffix(".gz")).stem,
        x=x[now],
        y=y[now],
        test=np.zeros(len(now), dtype=bool),
        x_label=" ".join(times),
        y_label=target,
        zone=zone,
        notices=tuple(reading.notices),
        covariates=beside.iloc[now].reset_index(drop=True) if covariates else None,
        future_x=x[ahead] if covariates else None,
        future_covariates=beside.iloc[ahead].reset_index(drop=True) if covariates else None,
    )
