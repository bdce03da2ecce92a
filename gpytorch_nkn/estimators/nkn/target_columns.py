"""Targets of several columns: an independent fit for each column, and the joined predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, check_random_state

from gpytorch_nkn.averaging import MixturePredictions
from gpytorch_nkn.estimators.nkn.table_estimator import TableEstimator
from gpytorch_nkn.estimators.table_input import as_numbers
from gpytorch_nkn.fit import Session, warn_user

__all__ = ["ColumnPredictions", "by_column", "has_columns"]

F = TypeVar("F", bound=Callable[..., Any])

_LEAST = 3  # least number of observed values of a column


def has_columns(y: Any) -> bool:
    """Return whether targets have several columns."""
    shape = getattr(y, "shape", None) or np.asarray(y, dtype=object).shape
    return len(shape) == 2 and shape[1] > 1


def by_column(method: F) -> F:
    """Apply a method to the regressor of each column, if the targets of the fit had several."""

    @wraps(method)
    def applied(self: Any, X: Any, *args: Any, **of_rows: Any) -> Any:
        self._warn_of_order(X, **of_rows)
        if not hasattr(self, "estimators_"):
            return method(self, X, *args, **of_rows)
        parts = [
            method(regressor, X, *args, **_of_column(of_rows, k, self.target_names_))
            for k, regressor in enumerate(self.estimators_)
        ]
        return _joined(parts)

    return cast(F, applied)


class ColumnPredictions(MixturePredictions, RegressorMixin, TableEstimator):
    """Fits and predictions of targets ``N x K``, with a regressor for each column."""

    _candidate_transforms: Callable[..., Any]  # check of the targets
    _has_exposures = False  # whether the fit had exposures
    _fit: Callable[..., Any]  # fit to the observed rows of one column

    predict_quantiles = by_column(MixturePredictions.predict_quantiles)
    predict_interval = by_column(MixturePredictions.predict_interval)

    @wraps(MixturePredictions.log_predictive_density)
    def log_predictive_density(  # type: ignore[override]
        self, X: Any, /, y: Any, **options: Any
    ) -> np.ndarray:
        log_densities = by_column(MixturePredictions.log_predictive_density)
        if not hasattr(self, "estimators_"):
            return log_densities(self, X, y=y, **options)
        self._warn_of_order(X, y=y)
        targets = self._targets_like_fit(y)
        missing = np.isnan(targets)
        logs = log_densities(self, X, y=np.where(missing, 1.0, targets), **options)
        return np.where(missing, np.nan, logs)

    def _incomplete_rows(self, X: ArrayLike) -> np.ndarray:
        if hasattr(self, "estimators_"):
            raise ValueError(
                f"standardised_inputs needs targets of one column, got {len(self.estimators_)} "
                "independent columns: use regressor.estimators_[k]."
            )
        return super()._incomplete_rows(X)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Return the coefficient of determination of targets ``M``, or its mean over columns.

        Args:
            X: Rows ``M x D``.
            y: Targets ``M`` or ``M x K``, with NaN where a target was not observed.
            sample_weight: Weights ``M`` of the rows.
            exposure: As in :meth:`predict`. Without it, ``y`` is compared with rates.
        """
        mean = self.predict(X, exposure=exposure)
        self._warn_of_order(X, y=y, sample_weight=sample_weight)
        if exposure is None and self._has_exposures:
            warn_user("The fit had exposures: without exposure=..., score compares y with rates.")
        if not hasattr(self, "estimators_"):
            return float(r2_score(y, mean, sample_weight=sample_weight))
        y = self._targets_like_fit(y)
        check_consistent_length(mean, y, sample_weight)
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        scores = [
            r2_score(targets[rows], predicted[rows], sample_weight=weights[rows])
            for targets, predicted, rows in zip(y.T, mean.T, ~np.isnan(y.T), strict=True)
            if rows.any()
        ]
        return float(np.mean(scores))

    def _targets_like_fit(self, y: Any) -> np.ndarray:
        """Return targets ``M x K`` in the order of the columns of the fit."""
        targets, number = _targets(_in_order(y, self.target_names_)), len(self.estimators_)
        if targets.shape[1] != number:
            raise ValueError(f"y must have {number} columns, got shape {targets.shape}.")
        return targets

    def _fit_columns(self, X: Any, y: Any, **inputs: ArrayLike | None) -> Any:
        """Fit a clone to the observed rows of each column."""
        values = _targets(y)
        check_consistent_length(X, values)
        number, observed = values.shape[1], ~np.isnan(values)
        names = tuple(_names(y)) or tuple(range(number))
        for name, targets, rows in zip(names, values.T, observed.T, strict=True):
            try:
                if (count := rows.sum()) < _LEAST:
                    raise ValueError(f"At least {_LEAST} are needed, got {count}.")
                targets[~rows] = targets[rows][0]  # any valid target; the row is not used
                self._candidate_transforms(targets)
            except ValueError as error:
                raise ValueError(f"Observed values of column {name!r}: {error}") from error
        self._warn_of_order(X, y=y)
        session, fitted = Session(budget=self.budget), list[Any]()
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=number).tolist()
        for k, seed in enumerate(seeds):
            column_inputs = _of_column(inputs, k, names)
            for name, value in column_inputs.items():
                if np.shape(value) == (len(values),):  # unobserved targets need no valid inputs
                    column_inputs[name] = np.where(observed[:, k], value, 1.0)
            while len(fitted) == k:  # after Ctrl-C without a result of this column, fit it quickly
                budget = 1e-3 if session.interrupted else session.part(1 / (number - k))
                regressor = clone(self).set_params(budget=budget, random_state=seed)
                regressor._has_exposures = self._has_exposures
                with session.interruptible(partial(bool, fitted and not session.interrupted)):
                    regressor._fit(X, values[:, k], observed=observed[:, k], **column_inputs)
                    session.interrupted |= regressor._was_interrupted
                    fitted.append(regressor)
        self.estimators_, self.target_names_ = fitted, names
        for name in {"n_features_in_", "feature_names_in_"} & vars(fitted[0]).keys():
            setattr(self, name, getattr(fitted[0], name))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _targets(y: Any) -> np.ndarray:
    """Return a copy ``N x K`` of targets, with NaN for unobserved cells."""
    options = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "input_name": "y"}
    return check_array(as_numbers("y", y), copy=True, **options)


def _names(values: Any) -> list[Any]:
    """Return the names of the columns of a pandas, polars or pyarrow frame."""
    return list(getattr(values, "column_names", getattr(values, "columns", ())))


def _in_order(values: Any, names: tuple[Any, ...]) -> Any:
    """Return the columns of a data frame in the order of the targets, if names are the same."""
    own = _names(values)
    if len(own) == len(names) and set(own) == set(names):
        return values[list(names)] if isinstance(values, pd.DataFrame) else values.select(names)
    if any(isinstance(name, str) for name in set(own) & set(names)):
        raise ValueError(f"Columns must have the names of the targets, {list(names)}, got {own}.")
    return values  # matched by position


def _of_column(given: dict[str, Any], k: int, names: tuple[Any, ...]) -> dict[str, Any]:
    """Return arguments for column ``k`` of the targets."""
    arguments = dict(given)
    for name in {"y", "exposure", "noise_variance"} & given.keys():
        value = np.asarray(_in_order(given[name], names))
        value = value[:, 0] if value.shape[1:] == (1,) else value
        if value.ndim > 1 and value.shape[1] not in (1, len(names)):
            raise ValueError(f"{name} must have {len(names)} columns, got shape {value.shape}.")
        if value.ndim:
            arguments[name] = value[:, k] if value.shape[1:] == (len(names),) else value
    return arguments


def _joined(parts: list[Any]) -> Any:
    """Return arrays with an axis of columns after the rows, or other parts as a list."""
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(values)) for values in zip(*parts, strict=True))
    return np.stack(parts, 1) if isinstance(parts[0], np.ndarray) else parts
