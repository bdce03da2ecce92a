"""Predictions that only rise, or only fall, with some columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

__all__ = ["Monotone"]

_NODES = {1: 65, 2: 21, 3: 11}  # of each column, by the number of columns
_AT_ONCE = 20_000  # rows


@dataclass(frozen=True)
class Monotone:
    """Rearranges functions of rows so that they are monotone in some columns.

    A function is evaluated where these columns have the values of a grid and all others those of
    the row; its values are sorted along each of the columns, and interpolated linearly. Sorted
    functions are no further from any monotone one than they were before, and monotone ones do not
    change but by the interpolation: Chernozhukov, Fernandez-Val and Galichon (2009), Improving
    point and interval estimators of monotone functions by rearrangement. Beyond the grid
    they are constant.

    Attributes:
        columns: Numbers of the columns, at most 3.
        signs: 1 for functions that rise with it, -1 for those that fall.
        grids: Values of each column, in order.
    """

    columns: tuple[int, ...]
    signs: tuple[int, ...]
    grids: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        wanted: Any,
        names: Sequence[Any],
        is_code: np.ndarray,
        used: np.ndarray,
        rows: np.ndarray,
    ) -> Monotone | None:
        """What is asked for, in the words of scikit-learn's boosting.

        Args:
            wanted: ``monotonic_cst``: a number for each of ``D`` columns, or a mapping of names;
                1 for rising, -1 for falling, 0 for neither.
            names: Of the columns.
            is_code: Which of them hold categories, a mask ``D`` or empty.
            used: Which of them are among those of ``rows``, a mask ``D``.
            rows: ``N x d``, for the values of the grid.

        Returns:
            ``None`` where nothing is asked for.

        Raises:
            ValueError: Numbers are none of these or not as many as columns, a name is unknown,
                a column holds categories, or there are more than 3.
        """
        if isinstance(wanted, Mapping):
            unknown = [name for name in wanted if name not in names]
            if unknown:
                raise ValueError(
                    f"monotonic_cst names {unknown}, and the columns are {list(names)}."
                )
            wanted = [wanted.get(name, 0) for name in names]
        signs = np.asarray(wanted)
        if signs.shape != (len(names),) or not np.isin(signs, (-1, 0, 1)).all():
            raise ValueError(
                f"monotonic_cst must have one of -1, 0 and 1 for each of {len(names)} columns, got "
                f"{wanted!r}."
            )
        columns = np.flatnonzero(signs).tolist()
        wrong = [names[column] for column in columns if is_code.size and is_code[column]]
        if wrong:
            raise ValueError(f"Columns of categories have no order to be monotone in: {wrong}.")
        columns = [column for column in columns if used[column]]  # others are constant
        if not columns:
            return None
        if len(columns) > max(_NODES):
            raise ValueError(
                f"Predictions can be monotone in {max(_NODES)} columns at most, got {len(columns)}."
            )
        places = (np.cumsum(used) - 1)[columns]
        shares, grids = np.linspace(0, 1, _NODES[len(columns)]), []
        for values in rows[:, places].T:  # half-way between even steps and even shares of the rows
            even = values.min() + shares * np.ptp(values)
            grids.append((even + np.quantile(values, shares)) / 2)
        return cls(tuple(places.tolist()), tuple(signs[columns].tolist()), tuple(grids))

    def __call__(
        self, rows: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Values ``R x M`` at rows ``M x D`` of functions that are monotone.

        Args:
            rows: Where they are wanted.
            function: Values ``R x M`` of the functions at rows.
        """
        nodes = np.array(list(product(*self.grids)))  # G x p
        step = max(_AT_ONCE // len(nodes), 1)
        parts = [
            self._of_some(rows[begin : begin + step], nodes, function)
            for begin in range(0, max(len(rows), 1), step)
        ]
        return np.concatenate(parts, axis=1)

    def _of_some(
        self, rows: np.ndarray, nodes: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        many = np.repeat(rows, len(nodes), axis=0)
        many[:, self.columns] = np.tile(nodes, (len(rows), 1))
        sizes = tuple(len(grid) for grid in self.grids)
        values = function(many).reshape(-1, len(rows), *sizes)
        for axis, sign in enumerate(self.signs, start=2):
            values = sign * np.sort(sign * values, axis=axis)
        for column, grid in zip(self.columns, self.grids, strict=True):
            place = np.clip(rows[:, column], grid[0], grid[-1])
            below = np.clip(np.searchsorted(grid, place, side="right") - 1, 0, len(grid) - 2)
            width = grid[below + 1] - grid[below]
            share = np.where(width > 0, (place - grid[below]) / np.where(width > 0, width, 1), 0.0)
            each = np.arange(len(rows))
            ends = [values[:, each, below + more] for more in (0, 1)]
            share = share.reshape(-1, *(1,) * (ends[0].ndim - 2))
            values = (1 - share) * ends[0] + share * ends[1]
        return values
