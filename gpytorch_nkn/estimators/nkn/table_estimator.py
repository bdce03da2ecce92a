"""Base class of the estimators that learn networks of kernels from tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_nkn.estimators.estimator import Estimator
from gpytorch_nkn.estimators.nkn.table_columns import TableColumns
from gpytorch_nkn.estimators.nkn.table_gaps import Gaps
from gpytorch_nkn.estimators.nkn.table_models import check_structures, train_structures
from gpytorch_nkn.estimators.table_input import Standardisation
from gpytorch_nkn.fit import FitResult, Recipe, Rows

__all__ = ["TableEstimator"]


class TableEstimator(Estimator):
    """Reads tables: conversion of columns, missing cells, standardisation."""

    _shared_text: ClassVar[dict[str, str]] = Estimator._shared_text | {
        "shared training": """
recipe: Optimiser settings of a start; ``None`` for 120 iterations of L-BFGS.
n_jobs: Number of processes for the starts, used from 500 rows on.
""",
        "shared attributes": """
results_: Training records, :class:`gpytorch_nkn.fit.FitResult`, by name of the network.
members_: Members of the mixture, as pairs of the name of a network and the number of its start.
x_offset_, x_scale_: Standardisation of the columns in use.
categories_: Categories by column.
first_dates_: First dates by column, for columns of dates, in the time zone of the column.
missing_fractions_: Fractions of missing values in the columns ``D`` of the fit.
columns_: Names of the columns in use: without constant columns, unless ``structure`` contains a
    kernel, which needs all columns.
""",
    }

    _advice = {"categories": True}
    structure: Any
    restarts: int
    recipe: Recipe | None
    n_jobs: int
    model_: Any

    def _check_parameters(self) -> list[str | Kernel]:
        self._check_training_options()
        return check_structures(self.structure)

    def _read(
        self,
        X: Any,
        y: Any,
        structures: Sequence[str | Kernel],
        observed: np.ndarray | None = None,
        **checks: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return standardised rows ``N x d`` with NaN for missing values, and targets.

        Learns the standardisation and the distribution of missing values. All rows are checked; if
        ``observed`` is a mask of rows, only these are learned from and returned.
        """
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._columns = TableColumns.of(X)
        self.categories_ = {
            str(column): tuple(map(str, categories))
            for column, categories in self._columns.categories.items()
        }
        self.first_dates_ = self._columns.first_dates
        checks |= {"ensure_min_samples": 3, "ensure_all_finite": "allow-nan"}
        table, target = self._checked_table(self._columns(X), y, **checks)
        table = table if observed is None else table[observed]
        codes = self._columns.mask(X, table.shape[1])
        has_kernel = any(isinstance(structure, Kernel) for structure in structures)
        self.standardisation_ = Standardisation.of(table, keep_constant=has_kernel, codes=codes)
        self.x_offset_, self.x_scale_ = self.standardisation_.offset, self.standardisation_.scale
        used = self.standardisation_.used
        names = ["x"] if len(used) == 1 else [f"x{number}" for number in range(len(used))]
        named = getattr(self, "feature_names_in_", self._names)  # strings, also of polars
        names = names if named is None else list(map(str, named))
        self.columns_ = tuple(compress(names, used))
        self._cat_dims = tuple(np.flatnonzero(codes[used]).tolist())
        rows = self.standardisation_(table)
        self.missing_fractions_ = np.isnan(table).mean(0)
        self._gaps = Gaps(rows, self._cat_dims, self._seed)
        return rows, target

    def _train(
        self, structures: Mapping[str, str | Kernel], rows: Rows, **options: Any
    ) -> dict[str, FitResult]:
        """Train a model of each structure, with further options of ``train_structures``."""
        settings = {
            name: getattr(self, name) for name in ("restarts", "recipe", "n_jobs", "progress")
        }
        options |= settings | {"seed": self._seed, "cat_dims": self._cat_dims}
        return train_structures(structures, rows, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def standardised_inputs(self, X: ArrayLike) -> np.ndarray:
        """Convert rows ``M x D`` to inputs ``M x d`` of ``model_``: used columns, standardised.

        Expected values replace missing cells.
        """
        rows = self._incomplete_rows(X)
        return self._gaps.expected(rows)

    def _incomplete_rows(self, X: ArrayLike) -> np.ndarray:
        """Return standardised rows ``M x d``, with category codes, and NaN for missing numbers."""
        check_is_fitted(self, "results_")
        rows = self._checked_rows(self._columns(X), ensure_all_finite="allow-nan")
        return self.standardisation_(rows)

    def _drawn(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return rows ``U x d`` without gaps, and their indices ``S x M`` for draws of ``M`` rows.

        Draws differ only in rows with missing values, independently for each row. ``S`` is 1
        without missing values.
        """
        rows = self._incomplete_rows(X)
        gaps, indices = np.isnan(rows).any(1), np.arange(len(rows))
        if not gaps.any():
            return rows, indices[None]
        draws = self._gaps.draw(rows)
        numbers = np.arange(len(draws) * len(rows)).reshape(len(draws), -1)
        used, indices = np.unique(np.where(gaps, numbers, indices), return_inverse=True)
        return draws.reshape(-1, rows.shape[1])[used], indices.reshape(numbers.shape)

    def _tensor(self, values: np.ndarray) -> Tensor:
        device: Any = self.device
        if hasattr(self, "results_"):  # the device of the models
            device = self.model_.train_targets.device
        return torch.as_tensor(values, dtype=torch.float64, device=device)
