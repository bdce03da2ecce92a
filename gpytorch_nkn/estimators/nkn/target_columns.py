"""Targets of several columns: an independent fit for each column, and the joined predictions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, clone
from sklearn.utils import check_array, check_consistent_length, check_random_state

from gpytorch_nkn.averaging import MixturePredictions
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.table_input import as_numbers
from gpytorch_nkn.fit import Session

__all__ = ["ColumnPredictions", "by_column", "has_columns"]

F = TypeVar("F", bound=Callable[..., Any])

_LEAST = 3  # least number of observed values of a column
_OF_ROWS = {"y", "exposure", "noise_variance", "sample_weight"}  # arguments with a value per row


def has_columns(y: Any) -> bool:
    """Return whether targets have several columns."""
    shape = getattr(y, "shape", None) or np.asarray(y, dtype=object).shape
    return len(shape) == 2 and shape[1] > 1


def by_column(method: F) -> F:
    """Apply a method to the regressor of each column, if the targets of the fit had several."""
    described = signature(method)

    @wraps(method)
    def applied(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "estimators_"):
            return method(self, *args, **kwargs)
        call = described.bind(self, *args, **kwargs)
        call.apply_defaults()
        _, X, *_ = call.args
        given = dict(list(call.arguments.items())[2:])
        given |= given.pop("inputs", {})
        number, observed = len(self.estimators_), None
        if given.get("return_cov") or method.__name__ == "standardised_inputs":
            raise ValueError(
                "return_cov and standardised_inputs need targets of one column, got "
                f"{number} independent columns: use regressor.estimators_[k]."
            )
        if "random_state" in given:
            given["random_state"] = _seeds(given["random_state"], number)
        if "y" in given:
            given["y"] = _targets(_in_order(given["y"], self.target_names_))
            if given["y"].shape[1] != number:
                raise ValueError(f"y must have {number} columns, got shape {given['y'].shape}.")
            observed = ~np.isnan(given["y"])
        parts = []
        for k, own in enumerate(self.estimators_):
            rows = None if observed is None else observed[:, k]
            with _numbered(rows):
                part = method(own, _rows(X, rows), **_of_column(given, k, self.target_names_, rows))
            if observed is not None and isinstance(part, np.ndarray):
                values, part = part, np.full(len(observed), np.nan)
                part[rows] = values
            parts.append(part)
        return _joined(parts)

    return cast(F, applied)


class ColumnPredictions(MixturePredictions, RegressorMixin, TableEstimator):
    """Fits and predictions of targets ``N x K``, with a regressor for each column."""

    _candidate_transforms: Callable[..., Any]  # check of the targets

    predict_quantiles = by_column(MixturePredictions.predict_quantiles)
    predict_interval = by_column(MixturePredictions.predict_interval)
    log_predictive_density = by_column(MixturePredictions.log_predictive_density)
    standardised_inputs = by_column(TableEstimator.standardised_inputs)

    @by_column
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination of targets ``M``, or its mean over columns.

        Args:
            X: Rows ``M x D``.
            y: Targets ``M`` or ``M x K``, with NaN where a target was not observed.
            sample_weight: Weights ``M`` of the rows.
        """
        return super().score(X, y, sample_weight)

    def _fit_columns(self, X: Any, y: Any, **inputs: ArrayLike | None) -> Any:
        """Fit a clone to the observed rows of each column."""
        values = _targets(y)
        number, observed = values.shape[1], ~np.isnan(values)
        names = tuple(y.columns if isinstance(y, pd.DataFrame) else range(number))
        for k, name in enumerate(names):
            try:
                if (count := observed[:, k].sum()) < _LEAST:
                    raise ValueError(f"At least {_LEAST} are needed, got {count}.")
                with _numbered(observed[:, k]):
                    self._candidate_transforms(values[observed[:, k], k])
            except ValueError as error:
                raise ValueError(f"Observed values of column {name!r}: {error}") from error
        self._warn_of_order(X, y=y)
        session, fitted = Session(budget=self.budget), []
        for k, seed in enumerate(_seeds(self.random_state, number)):
            budget = 1e-3 if session.interrupted else session.part(1 / (number - k))
            own = clone(self).set_params(budget=budget, random_state=seed)
            rows = observed[:, k]
            with _numbered(rows):
                own.fit(_rows(X, rows), values[rows, k], **_of_column(inputs, k, names, rows))
            session.interrupted |= any(result.interrupted for result in own.results_.values())
            fitted.append(own)
        self.estimators_, self.target_names_ = fitted, names
        for name in {"n_features_in_", "feature_names_in_"} & vars(fitted[0]).keys():
            setattr(self, name, getattr(fitted[0], name))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _targets(y: Any) -> np.ndarray:
    """Return targets ``N x K``, with NaN for unobserved cells."""
    y = as_numbers("y", y)
    return check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")


def _seeds(random_state: Any, number: int) -> list[int]:
    return check_random_state(random_state).randint(2**31 - 1, size=number).tolist()


@contextmanager
def _numbered(rows: Any) -> Iterator[None]:
    """Convert row numbers in errors from the rows in a mask to all rows, unless it is None."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if rows is not None and len(error.args) == 1:
            numbers = np.flatnonzero(rows).tolist()
            text = re.sub(r"(?<=in row )\d+", lambda row: f"{numbers[int(row[0])]}", str(error))
            error.args = (text,)
        raise


def _rows(table: Any, rows: Any) -> Any:
    """Return the rows of a table in a mask; all if the mask is full, or None."""
    check_consistent_length(table, rows)
    if rows is None or rows.all():
        return table
    return (table if hasattr(table, "shape") else np.asarray(table))[rows]


def _in_order(values: Any, names: tuple[Any, ...]) -> Any:
    """Return the columns of a data frame in the order of the targets, if it has their names."""
    named = isinstance(values, pd.DataFrame) and values.columns.is_unique
    return values[list(names)] if named and set(values.columns) == set(names) else values


def _of_column(given: dict[str, Any], k: int, names: tuple[Any, ...], rows: Any) -> dict[str, Any]:
    """Return arguments for column ``k`` of the targets, at the rows in a mask."""
    found = dict(given)
    for name in ({"random_state"} | _OF_ROWS) & given.keys():
        value = np.asarray(_in_order(given[name], names))
        if name == "random_state":
            found[name] = given[name][k]  # a seed for each column
        elif value.ndim:
            found[name] = _rows(value[:, k] if value.shape[1:] == (len(names),) else value, rows)
    return found


def _joined(parts: list[Any]) -> Any:
    """Return the mean of scores, arrays with an axis of columns after the rows, or other parts."""
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(own)) for own in zip(*parts, strict=True))
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, 1)
    return float(np.mean(parts)) if isinstance(parts[0], float) else parts
