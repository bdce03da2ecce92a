"""What estimators on tables share: columns, missing cells, standardisation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.nkn.table_categories import Categories
from gpytorch_nkn.estimators.nkn.table_gaps import Gaps
from gpytorch_nkn.estimators.nkn.table_models import check_structures
from gpytorch_nkn.estimators.nkn.table_times import Times
from gpytorch_nkn.estimators.table_input import (
    Standardisation,
    check_numeric,
    check_unique_names,
    missing_as_nan,
)
from gpytorch_nkn.fit import Recipe, check_counts

__all__ = ["TableEstimator"]


class TableEstimator(OnCPU, BaseEstimator):
    """Base of estimators that learn networks from the columns of a table."""

    structure: Any
    recipe: Recipe | None
    budget: float | None
    n_jobs: int
    device: str | None
    model_: Any

    def _check_parameters(self) -> list[str | Kernel]:
        structures = check_structures(self.structure)
        if self.recipe is not None and not isinstance(self.recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe or None, got {self.recipe!r}.")
        if self.budget is not None and not isinstance(self.budget, Real):
            raise TypeError(f"budget must be a number of seconds or None, got {self.budget!r}.")
        check_counts(None, n_jobs=self.n_jobs)
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be at least 1, got 0.")
        return structures

    def _coded(self, X: Any, *, in_memory: bool = True) -> tuple[Any, np.ndarray]:
        """The table in numbers, and the mask ``D`` (or empty) of columns of codes."""
        check_unique_names(X)
        self._times = Times.of(X)
        X = self._times(X)
        self._categories = Categories.of(X if in_memory else None)
        self._categories.warn_of_other_kinds(X)
        self.categories_ = {
            str(column): tuple(map(str, known)) for column, known in self._categories.known.items()
        }
        codes = self._categories.mask(X)
        X = missing_as_nan(self._categories(X))
        check_numeric("X", X, categories=True)
        return X, codes

    def _standardise(
        self, table: np.ndarray, codes: np.ndarray, structures: Sequence[str | Kernel], seed: int
    ) -> tuple[np.ndarray, tuple[int, ...]]:
        """Learn standardisation and gaps; the rows ``N x d`` and the columns of codes of them."""
        own = any(isinstance(structure, Kernel) for structure in structures)
        self.standardisation_ = Standardisation.of(table, keep_constant=own, codes=codes)
        self.x_offset_, self.x_scale_ = self.standardisation_.offset, self.standardisation_.scale
        used = self.standardisation_.used
        plain = ["x"] if len(used) == 1 else [f"x{number}" for number in range(len(used))]
        names = np.asarray(getattr(self, "feature_names_in_", plain))
        self.columns_ = tuple(str(name) for name in names[used])
        used = codes[used] if codes.size else codes
        cat_dims = self._cat_dims = tuple(np.flatnonzero(used).tolist())
        rows = self.standardisation_(table)
        self.missing_shares_ = np.isnan(table).mean(0)
        self._gaps = Gaps(rows, cat_dims, seed)
        return rows, cat_dims

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def standardised_inputs(self, X: ArrayLike) -> np.ndarray:
        """Rows as ``model_`` takes them.

        Args:
            X: Rows ``M x D``, with the columns of :meth:`fit`.

        Returns:
            Rows ``M x d`` of the columns in use, standardised, with expected values in place of
            missing ones.
        """
        return self._gaps.expected(self._incomplete_rows(X))

    def _incomplete_rows(self, X: ArrayLike) -> np.ndarray:
        """Standardised rows ``M x d`` with codes of categories and NaN for missing numbers."""
        check_is_fitted(self, "results_")
        check_unique_names(X)
        X = missing_as_nan(self._categories(self._times(X)))
        check_numeric("X", X, fitted=True)
        checks: dict[str, Any] = {"dtype": np.float64, "order": "C", "reset": False}
        return self.standardisation_(
            validate_data(self, X, ensure_all_finite="allow-nan", **checks)
        )

    def _drawn(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Standardised rows ``S x M x d``, one draw of missing values each; mask ``M`` of gaps.

        Draws of different rows are independent. Without gaps there is one.
        """
        rows = self._incomplete_rows(X)
        gaps = np.isnan(rows).any(1)
        return self._gaps.draw(rows) if gaps.any() else rows[None], gaps

    def _tensor(self, values: np.ndarray) -> Tensor:
        device: Any = self.device
        if hasattr(self, "results_"):  # where the models are
            device = self.model_.train_targets.device
        return torch.as_tensor(values, dtype=torch.float64, device=device)
