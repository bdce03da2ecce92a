"""Rows of a table, read piece by piece where they are too many for the memory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

__all__ = [
    "ROWS_PER_POINT",
    "DrawnRows",
    "RowSource",
    "SourceRows",
    "TableRows",
    "TensorRows",
    "row_source",
]

# Of rows to inducing points, from which on residuals say what the inducing points cannot.
ROWS_PER_POINT = 20

_CHUNK_ROWS = 50_000
_HELD_OUT = 2000  # rows, at most
_LEARNED = 20_000  # rows of a source that hyperparameters and inducing points are learned from


class RowSource(ABC):
    """A table of ``num_rows`` numbers on disk, with names of ``columns`` if any."""

    num_rows: int
    columns: list[str] | None = None

    @abstractmethod
    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs ``c x D`` and targets ``c`` of one chunk of rows after another."""

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As ``read``, in float64 and checked.

        Raises:
            ValueError: A value is NaN, infinite or no number.
        """
        start = 0
        for inputs, targets in self.read():
            parts = []
            for name, values in (("X", inputs), ("y", targets)):
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

    def rows(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of some rows, by ascending numbers, in one pass over all."""
        inputs, targets, start = [], [], 0
        for x, y in self.chunks():
            own = numbers[(numbers >= start) & (numbers < start + len(y))] - start
            inputs.append(x[own])
            targets.append(y[own])
            start += len(y)
        if not start:
            raise ValueError("The table has no rows.")
        if start != self.num_rows:
            raise ValueError(f"The table was to have {self.num_rows} rows, and {start} came.")
        return np.concatenate(inputs), np.concatenate(targets)

    def named(self, inputs: np.ndarray) -> Any:
        """Rows ``N x D`` as a data frame if the columns have names."""
        return inputs if self.columns is None else pd.DataFrame(inputs, columns=self.columns)


@dataclass
class _ArrayRows(RowSource):
    """Memory maps."""

    inputs: Any
    targets: Any

    def __post_init__(self) -> None:
        if len(self.inputs.shape) != 2 or len(self.targets.shape) != 1:
            raise ValueError(
                f"X must be N x D and y N, got shapes {self.inputs.shape} and {self.targets.shape}."
            )
        self.num_rows = int(self.inputs.shape[0])
        if self.targets.shape[0] != self.num_rows:
            raise ValueError(f"X has {self.num_rows} rows and y {self.targets.shape[0]}.")

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, self.num_rows, _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            yield np.asarray(self.inputs[rows]), self.targets[rows]


@dataclass
class _ParquetRows(RowSource):
    """Files of Parquet; all columns but the target are inputs."""

    paths: Any
    target: str

    def __post_init__(self) -> None:
        data = self._dataset()
        self.num_rows = data.count_rows()
        names = data.schema.names
        if self.target not in names:
            raise ValueError(f"y must name a column, got {self.target!r}; there are {names}.")
        self.columns = [name for name in names if name != self.target]
        other = [f"{one.name!r} ({one.type})" for one in data.schema if not _is_number(one.type)]
        if other:
            raise ValueError(
                f"Every column must hold numbers, got {', '.join(other)}: leave them out, or write "
                "them as numbers."
            )

    def _dataset(self) -> Any:
        try:
            from pyarrow import dataset
        except ImportError as error:
            raise ImportError(
                f"Tables in Parquet need pyarrow: pip install 'gpytorch_nkn[parquet]' ({error})."
            ) from error
        return dataset.dataset(self.paths, format="parquet")

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        assert self.columns is not None
        for batch in self._dataset().to_batches(batch_size=_CHUNK_ROWS):
            if batch.num_rows:
                columns = [_values(batch.column(name)) for name in self.columns]
                yield np.column_stack(columns), _values(batch.column(self.target))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)


def _values(column: Any) -> np.ndarray:
    """Values of a column in float64, missing ones as NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def row_source(X: Any, y: Any) -> RowSource | None:
    """The source of a table that is not in memory; ``None`` for all others.

    Args:
        X: Path or paths of Parquet files, or a memory map.
        y: The name of a column of the files; else targets ``N``.

    Raises:
        ValueError: Shapes do not fit.
        TypeError: Paths came without the name of the target.
    """
    several = isinstance(X, Sequence) and not isinstance(X, str) and len(X) > 0
    if all(isinstance(path, str | os.PathLike) for path in (X if several else [X])):
        if not isinstance(y, str):
            raise TypeError(
                f"y must be the name of the target's column in the files, got {type(y).__name__}."
            )
        paths = [os.fspath(path) for path in X] if several else os.fspath(X)
        return _ParquetRows(paths, y)
    if isinstance(X, np.memmap):
        return _ArrayRows(X, np.asarray(y))
    return None


class DrawnRows:
    """Random rows of a source, read in one pass: some to learn from, others to be held out.

    Attributes:
        X, y: Inputs and targets of the first.
        held_out: Inputs and targets of the others.
        numbers: Row numbers of the others.
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


class TensorRows:
    """Standardised rows in memory that a prediction is conditioned on; some are held out.

    Args:
        inputs: ``N x D``.
        targets: ``N``.
        num_points: Number of inducing points; rows are held out where there are 20 for each.
        seed: Determines which.

    Attributes:
        held_out: Inputs ``H x D`` and targets ``H``, or ``None`` where the rows are too few.
        num_rows: Number of the others.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, num_points: int, seed: int):
        self._inputs, self._targets = inputs, targets
        self._kept = torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        self.held_out: tuple[Tensor, Tensor] | None = None
        if len(targets) >= ROWS_PER_POINT * num_points:
            rng = np.random.default_rng([seed, 1])
            held_out = rng.choice(len(targets), min(_HELD_OUT, len(targets) // 20), replace=False)
            self._kept[torch.from_numpy(held_out).to(targets.device)] = False
            self.held_out = inputs[~self._kept], targets[~self._kept]
        self.num_rows = int(self._kept.sum())

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs ``c x D`` and targets ``c`` of rows that are not held out."""
        parts = (self._inputs, self._targets, self._kept)
        for x, y, kept in zip(*(part.split(_CHUNK_ROWS) for part in parts), strict=True):
            yield x[kept], y[kept]


class SourceRows:
    """The same for rows of a source, standardised as they are read.

    Args:
        drawn: The source, and the rows that are held out.
        standardised: Makes standardised tensors of inputs ``c x D`` and targets ``c``.
    """

    def __init__(
        self,
        drawn: DrawnRows,
        standardised: Callable[[np.ndarray, np.ndarray], tuple[Tensor, Tensor]],
    ):
        self.held_out: tuple[Tensor, Tensor] | None = standardised(*drawn.held_out)
        self._source, self._numbers = drawn.source, drawn.numbers
        self.num_rows = self._source.num_rows - len(self._numbers)
        self._standardised = standardised

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs ``c x D`` and targets ``c`` of rows that are not held out."""
        start = 0
        for x, y in self._source.chunks():
            kept = ~np.isin(np.arange(start, start + len(y)), self._numbers)
            start += len(y)
            yield self._standardised(x[kept], y[kept])


TableRows = TensorRows | SourceRows
