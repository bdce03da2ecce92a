"""Draws of the missing values of a table given the observed values."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.special import ndtri
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (makes the next import work)
from sklearn.impute import IterativeImputer

from gpytorch_nkn.estimators.table_input import is_constant

__all__ = ["Gaps", "learned_rows"]

_MAX_ROWS = 2000  # largest number of rows for the imputer
_ROUNDS = 10  # largest number of rounds of chained equations
_DRAWS = 8
# Least number of complete rows for training on them alone: fraction of all, rows per column.
_MOSTLY_COMPLETE, _ROWS_PER_COLUMN = 0.5, 3


class Gaps:
    """Draws of missing values, from the regressions of scikit-learn's ``IterativeImputer``.

    Rows ``N x D`` are standardised, with NaN for missing values. Missing codes are drawn with the
    frequencies of the observed codes.

    Reference: van Buuren and Groothuis-Oudshoorn (2011), mice: Multivariate imputation by chained
    equations in R.
    """

    def __init__(self, rows: np.ndarray, cat_dims: tuple[int, ...], seed: int):
        self._seed = seed
        self._numbers = np.setdiff1d(np.arange(rows.shape[1]), cat_dims)
        seen = {dim: np.sort(rows[~np.isnan(rows[:, dim]), dim]) for dim in cat_dims}
        self._codes = {dim: codes if codes.size else np.zeros(1) for dim, codes in seen.items()}
        ends = np.fmin.reduce(rows), np.fmax.reduce(rows)
        self._lowest, self._highest = map(np.nan_to_num, ends)
        if len(rows) > _MAX_ROWS:
            rows = rows[np.random.default_rng(seed).choice(len(rows), _MAX_ROWS, replace=False)]
        self._rows = self._with_intercept(rows)

    @cached_property
    def _imputer(self) -> IterativeImputer:
        """The imputer, fitted when a value is first missing."""
        return IterativeImputer(
            max_iter=_ROUNDS if np.isnan(self._rows).any() else 1,  # one suffices without gaps
            sample_posterior=True,
            keep_empty_features=True,
            random_state=self._seed,
        ).fit(self._rows)

    def expected(self, rows: np.ndarray) -> np.ndarray:
        """Replace missing values in rows ``N x D`` by their means, and codes by their medians."""
        if not np.isnan(rows).any():
            return rows
        draws = self.draw(rows)
        expected, codes = draws.mean(0), list(self._codes)
        expected[:, codes] = np.sort(draws[..., codes], axis=0)[_DRAWS // 2]
        return expected

    def draw(self, rows: np.ndarray) -> np.ndarray:
        """Draw the missing values of rows ``N x D``, within the range of the fit: ``S x N x D``.

        Every row has the same normal scores, in a random order of its own. Draws of a row do not
        depend on the values of other rows.
        """
        rng = np.random.default_rng(self._seed)
        quantiles = (np.arange(_DRAWS) + 0.5) / _DRAWS
        even = ndtri(quantiles)  # a Latin hypercube
        steps = self._imputer.imputation_sequence_
        points = rng.permuted(np.tile(even / even.std(), (len(steps), 1)), axis=1)
        levels = {
            dim: rng.permuted(seen[(quantiles * len(seen)).astype(int)])
            for dim, seen in self._codes.items()
        }
        orders = rng.random((_DRAWS, len(rows))).argsort(0)  # last, as it depends on the rows
        known = self._with_intercept(rows)
        missing = np.isnan(known)
        filled = np.repeat(self._imputer.initial_imputer_.transform(known)[None], _DRAWS, 0)
        for step, point in zip(steps, points, strict=True):
            gaps = missing[:, step.feat_idx]
            if gaps.any():
                others = filled[:, gaps][..., step.neighbor_feat_idx]
                flat = others.reshape(-1, others.shape[-1])
                mean, std = step.estimator.predict(flat, return_std=True)
                drawn = mean + std * point[orders[:, gaps]].ravel()
                filled[:, gaps, step.feat_idx] = drawn.reshape(_DRAWS, -1)
        draws = np.repeat(rows[None], _DRAWS, 0)
        draws[..., self._numbers] = filled[..., 1:]
        for dim, values in levels.items():
            gaps = np.isnan(rows[:, dim])
            draws[:, gaps, dim] = values[orders[:, gaps]]
        return np.where(np.isnan(rows), np.clip(draws, self._lowest, self._highest), rows)

    def _with_intercept(self, rows: np.ndarray) -> np.ndarray:
        """Return a column of zeros and the numeric columns: the imputer needs two columns."""
        return np.column_stack([np.zeros(len(rows)), rows[:, self._numbers]])


def learned_rows(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the mask ``N`` of rows for the training: the complete rows, or all rows.

    Imputation adds noise, but networks assume equal noise in all rows. Complete rows are used alone
    if there are enough of them and they vary in every column that varies.
    """
    complete = ~np.isnan(rows).any(1)
    many = min(_MOSTLY_COMPLETE * len(rows), _ROWS_PER_COLUMN * (rows.shape[1] + 1))
    if complete.sum() >= max(3, many) and not is_constant(targets[complete]):
        varies = np.fmax.reduce(rows) > np.fmin.reduce(rows)
        if (varies <= (np.ptp(rows[complete], axis=0) > 0)).all():
            return complete
    return np.ones(len(rows), dtype=bool)
