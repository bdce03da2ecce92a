"""Rows of a table, read in chunks if they exceed the memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from gpytorch_nkn.fit import Rows

__all__ = ["ROWS_PER_POINT", "DrawnRows", "RowSource", "TableRows", "row_source"]

ROWS_PER_POINT = 20  # least ratio of rows to inducing points for a model of the residuals

_CHUNK_ROWS = 50_000
_HELD_OUT = 2000  # largest number of held-out rows
_LEARNED = 20_000  # rows of a file from which hyperparameters and inducing points are learned

Chunk = tuple[np.ndarray, np.ndarray]  # inputs c x D and targets c


@dataclass
class RowSource:
    """A table of ``num_rows`` rows on disk."""

    num_rows: int
    read: Callable[[], Iterator[Chunk]]  # returns an iterator over chunks of rows
    columns: list[str] | None = None  # names of the inputs, if any

    def chunks(self) -> Iterator[Chunk]:
        """Read chunks in float64.

        Raises:
            ValueError: A value is NaN, infinite or not a number.
        """
        start = 0
        for chunk in self.read():
            parts = []
            for name, values in zip("Xy", chunk, strict=True):
                try:
                    part = np.asarray(values, dtype=np.float64)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{name} must hold numbers: {error}") from error
                wrong = np.argwhere(~np.isfinite(part))
                if len(wrong):
                    raise ValueError(
                        f"{name} must be finite, got {part[tuple(wrong[0])]} in row "
                        f"{start + wrong[0][0]}."
                    )
                parts.append(part)
            yield parts[0], parts[1]
            start += len(parts[1])

    def rows(self, numbers: np.ndarray) -> Chunk:
        """Read inputs and targets of rows with ascending numbers, in one pass over the table."""
        if not self.num_rows:
            raise ValueError("The table has no rows.")
        inputs, targets, start = [], [], 0
        for x, y in self.chunks():
            own = numbers[(numbers >= start) & (numbers < start + len(y))] - start
            inputs.append(x[own])
            targets.append(y[own])
            start += len(y)
        return np.concatenate(inputs), np.concatenate(targets)

    def named(self, inputs: np.ndarray) -> Any:
        """Return rows ``N x D``, as a data frame if the columns have names."""
        return inputs if self.columns is None else pd.DataFrame(inputs, columns=self.columns)


def row_source(X: Any, y: Any) -> RowSource | None:
    """Return the source of a Parquet file or memory map; ``None`` for other tables.

    Raises:
        ValueError: Shapes do not match.
        TypeError: A path is given without the name of the target.
    """
    several = isinstance(X, Sequence) and not isinstance(X, str) and len(X) > 0
    if all(isinstance(path, str | os.PathLike) for path in (X if several else [X])):
        if not isinstance(y, str):
            raise TypeError(
                f"y must be the name of the target column in the files, got {type(y).__name__}."
            )
        return _parquet_source([os.fspath(path) for path in X] if several else os.fspath(X), y)
    if not isinstance(X, np.memmap):
        return None
    y = np.asarray(y)
    if X.ndim != 2 or y.ndim != 1:
        raise ValueError(f"X must be N x D and y N, got shapes {X.shape} and {y.shape}.")
    if len(X) != len(y):
        raise ValueError(f"X and y must have equally many rows, got {len(X)} and {len(y)}.")
    parts = [slice(start, start + _CHUNK_ROWS) for start in range(0, len(X), _CHUNK_ROWS)]
    return RowSource(len(X), lambda: ((np.asarray(X[rows]), y[rows]) for rows in parts))


def _parquet_source(paths: Any, target: str) -> RowSource:
    """Return the source of Parquet files, in which all columns but the target are inputs."""
    try:
        from pyarrow import dataset, types
    except ImportError as error:
        raise ImportError(
            f"Tables in Parquet need pyarrow: pip install 'gpytorch_nkn[parquet]' ({error})."
        ) from error
    data = dataset.dataset(paths, format="parquet")
    names, tests = data.schema.names, (types.is_floating, types.is_integer, types.is_boolean)
    if target not in names:
        raise ValueError(f"y must name a column, got {target!r}; there are {names}.")
    wrong = [c for c in data.schema if not any(is_number(c.type) for is_number in tests)]
    if wrong:
        found = ", ".join(f"{column.name!r} ({column.type})" for column in wrong)
        raise ValueError(
            f"Every column must hold numbers, got {found}: drop them, or write them as numbers."
        )
    columns = [name for name in names if name != target]
    return RowSource(data.count_rows(), partial(_read_parquet, data, columns, target), columns)


def _read_parquet(data: Any, columns: Sequence[str], target: str) -> Iterator[Chunk]:
    for batch in data.to_batches(batch_size=_CHUNK_ROWS):
        if batch.num_rows:
            table = batch.to_pandas().astype(np.float64)  # missing values are NaN
            yield table[columns].to_numpy(), table[target].to_numpy()


class DrawnRows:
    """Random rows of a source for training, and held-out rows.

    Attributes:
        X, y: Inputs and targets for training.
        held_out: Held-out inputs and targets.
        numbers: Indices of the held-out rows.
    """

    def __init__(self, source: RowSource, seed: int):
        self.source, count = source, source.num_rows
        num_held_out = min(_HELD_OUT, count // 20)
        rng = np.random.default_rng([seed, 2])
        drawn = rng.choice(count, num_held_out + min(_LEARNED, count - num_held_out), replace=False)
        inputs, targets = source.rows(np.sort(drawn))
        self.numbers = np.sort(drawn[:num_held_out])
        own = np.isin(np.sort(drawn), self.numbers)
        self.X, self.y = source.named(inputs[~own]), targets[~own]
        self.held_out = inputs[own], targets[own]


@dataclass
class TableRows:
    """Standardised rows on which predictions are conditioned, and held-out rows."""

    num_rows: int  # without held-out rows
    held_out: Rows | None
    _numbers: np.ndarray  # indices of the held-out rows
    _read: Callable[[], Iterator[Rows]]

    @classmethod
    def in_memory(cls, rows: Rows, num_points: int, seed: int) -> TableRows:
        """Take a table ``N x D``; with 20 rows per inducing point, some rows are held out."""
        count, numbers, held_out = len(rows), np.empty(0, dtype=int), None
        if count >= ROWS_PER_POINT * num_points:
            rng = np.random.default_rng([seed, 1])
            numbers = np.sort(rng.choice(count, min(_HELD_OUT, count // 20), replace=False))
            held_out = rows[torch.from_numpy(numbers).to(rows.y.device)]
        parts = [slice(start, start + _CHUNK_ROWS) for start in range(0, count, _CHUNK_ROWS)]
        return cls(count - len(numbers), held_out, numbers, lambda: (rows[part] for part in parts))

    @classmethod
    def on_disk(
        cls, drawn: DrawnRows, standardised: Callable[[np.ndarray, np.ndarray], Rows]
    ) -> TableRows:
        """Take the rows of a source, standardised in chunks by a function."""
        source, numbers = drawn.source, drawn.numbers
        count, held_out = source.num_rows - len(numbers), standardised(*drawn.held_out)
        return cls(count, held_out, numbers, lambda: (standardised(*c) for c in source.chunks()))

    def chunks(self) -> Iterator[Rows]:
        """Yield the rows without held-out rows."""
        start = 0
        for rows in self._read():
            kept = ~np.isin(np.arange(start, start + len(rows)), self._numbers)
            start += len(rows)
            yield rows[torch.from_numpy(kept).to(rows.y.device)]
