"""Missing numbers of a table, by draws given what is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from gpytorch_nkn.estimators.table_input import is_constant

__all__ = ["KINDS_OF_GAPS", "LACKS_CATEGORY", "Gaps", "kinds_of_rows", "learned_rows"]

_LACKS_NUMBER, LACKS_CATEGORY = 1, 2
# Their sum stands for rows that lack both. Rows are added in this order: those that only lack a
# category come first, so that the effect of a missing category is known for the last.
KINDS_OF_GAPS = (LACKS_CATEGORY, _LACKS_NUMBER, _LACKS_NUMBER + LACKS_CATEGORY)

_MAX_ROWS = 2000  # by which columns and their correlations are described
_STEPS = 30  # of expectation maximisation, at most
_CHANGE = 1e-3  # of a correlation, below which they have converged
_DRAWS = 8
# Least complete rows for training without the others: a fraction of all, or rows per column.
_MOSTLY_COMPLETE, _ROWS_PER_COLUMN = 0.5, 10


@dataclass(frozen=True, eq=False)
class Gaps:
    """A Gaussian copula of columns: ranks as normal scores, with their correlations.

    What is missing in a row is Gaussian given what is there, on the scale of scores; values are
    the quantiles of the column that these stand for. So no value lies outside those that were
    seen, and columns of whole numbers stay such.

    Attributes:
        columns: Sorted values of each column, of some rows where these are many; none of columns
            that are all gaps, or codes.
        correlations: Of the scores of all columns.
        seed: Of the draws.

    Reference: Hoff (2007), Extending the rank likelihood for semiparametric copula estimation.
    """

    columns: tuple[np.ndarray, ...]
    correlations: np.ndarray
    seed: int

    @classmethod
    def of(cls, table: np.ndarray, codes: np.ndarray, seed: int) -> Gaps:
        """That of a table ``N x D`` in which NaN are missing values.

        Columns ``D`` of codes, if there are some, are left out: they have no order.
        Correlations maximise the likelihood of what is there (expectation maximisation), which is
        right if what is missing depends on values that are there only.
        """
        if len(table) > _MAX_ROWS:
            rows = np.random.default_rng(seed).choice(len(table), _MAX_ROWS, replace=False)
            table = table[rows]
        if codes.size:
            table = np.where(codes, np.nan, table)
        columns = tuple(np.sort(column[~np.isnan(column)]) for column in table.T)
        dim = table.shape[1]
        gaps = cls(columns, np.eye(dim), seed)
        scores = gaps._scores(table)
        missing = np.isnan(scores).any()
        for _ in range(_STEPS if missing else 1):
            second = dim * np.eye(dim)  # of a prior of independent columns, worth D rows
            for rows, mean, covariance in gaps._conditionals(scores):
                second += mean.T @ mean + len(rows) * covariance
            scale = np.sqrt(np.diag(second))
            before, correlations = gaps.correlations, second / np.outer(scale, scale)
            gaps = cls(columns, correlations, seed)
            if np.abs(correlations - before).max() < _CHANGE:
                break
        return gaps

    def expected(self, table: np.ndarray) -> np.ndarray:
        """The table ``N x D`` with expected values of what is missing."""
        return self.draw(table).mean(0) if np.isnan(table).any() else table

    def draw(self, table: np.ndarray) -> np.ndarray:
        """Tables ``S x N x D`` with draws of what is missing.

        Every row has the same draws, in an order of its own: a row does not depend on its
        neighbours in the table, and draws of different rows are independent.
        """
        rng = np.random.default_rng(self.seed)
        even = ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS)  # a Latin hypercube: even in each column
        points = rng.permuted(np.tile(even / even.std(), (table.shape[1], 1)), axis=1).T
        orders = rng.random((_DRAWS, len(table))).argsort(0)
        filled = np.repeat(table[None], _DRAWS, 0)
        for rows, mean, covariance in self._conditionals(self._scores(table)):
            missing = np.isnan(table[rows])
            gaps = np.flatnonzero(missing.any(0))
            if not gaps.size:
                continue
            root = np.linalg.cholesky(covariance[np.ix_(gaps, gaps)])
            scores = mean[:, gaps] + (points[:, gaps] @ root.T)[orders[:, rows]]
            for place, column in enumerate(gaps.tolist()):
                values = self._values(scores[..., place], column)
                filled[:, rows, column] = np.where(missing[:, column], values, table[rows, column])
        return filled

    def _conditionals(
        self, scores: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows that lack the same columns, means ``n x D`` and covariance ``D x D`` of scores."""
        patterns, which = np.unique(np.isnan(scores), axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(which.ravel(), minlength=len(patterns)))
        for lacks, rows in zip(patterns, np.split(order, ends[:-1]), strict=True):
            mean, covariance = scores[rows], np.zeros_like(self.correlations)
            if lacks.any():
                there = self.correlations[np.ix_(~lacks, ~lacks)]
                between = self.correlations[np.ix_(~lacks, lacks)]
                weights = np.linalg.solve(there, between)
                mean[:, lacks] = mean[:, ~lacks] @ weights
                own = self.correlations[np.ix_(lacks, lacks)] - between.T @ weights
                covariance[np.ix_(lacks, lacks)] = own
            yield rows, mean, covariance

    def _scores(self, table: np.ndarray) -> np.ndarray:
        """Normal scores ``N x D``; NaN stay."""
        scores = np.full(table.shape, np.nan)
        for number, (values, known) in enumerate(zip(table.T, self.columns, strict=True)):
            there = ~np.isnan(values)
            if not len(known):  # a column of gaps says nothing
                continue
            sides = [np.searchsorted(known, values[there], side) for side in ("left", "right")]
            edge = 0.5 / len(known)
            scores[there, number] = ndtri(np.clip(sum(sides) * edge, edge, 1 - edge))
        return scores

    def _values(self, scores: np.ndarray, column: int) -> np.ndarray:
        """The quantiles of a column that scores of any shape stand for."""
        known = self.columns[column]
        if not len(known):
            return np.zeros_like(scores)
        return np.interp(ndtr(scores), (np.arange(len(known)) + 0.5) / len(known), known)


def kinds_of_rows(lack_numbers: np.ndarray, lack_categories: np.ndarray) -> np.ndarray:
    """What rows lack, by masks ``N``: 0 for nothing, else one of :data:`KINDS_OF_GAPS`."""
    return _LACKS_NUMBER * lack_numbers + LACKS_CATEGORY * lack_categories


def learned_rows(table: np.ndarray, targets: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """Mask ``N`` of the rows of a table that networks learn from: complete ones, or all.

    Targets of rows with imputed values are noisier, but networks have one noise for all rows. They
    learn from complete rows alone if these are many and every column that varies also varies there.
    """
    many = min(_MOSTLY_COMPLETE * len(table), _ROWS_PER_COLUMN * (table.shape[1] + 1))
    if complete.sum() >= max(3, many) and not is_constant(targets[complete]):
        every, some = table, table[complete]
        varies = np.fmax.reduce(every) > np.fmin.reduce(every)
        if (varies <= (np.fmax.reduce(some) > np.fmin.reduce(some))).all():
            return complete
    return np.ones(len(table), dtype=bool)
