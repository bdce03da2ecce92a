"""Base class of all estimators."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from textwrap import indent
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.table_input import as_numbers, check_complete_targets, check_size
from gpytorch_nkn.fit import Recipe, check_counts, check_flags, check_number, warn_user

__all__ = ["Estimator", "forgets_failures"]

F = TypeVar("F", bound=Callable[..., Any])


def forgets_failures(fit: F) -> F:
    """Remove fitted attributes before a fit, and if it fails.

    A fit does not depend on the caller's gradient mode and handling of underflow.
    """

    @wraps(fit)
    @np.errstate(under="ignore")
    def attempted(self: Estimator, *args: Any, **kwargs: Any) -> Any:
        self._forget()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                return fit(self, *args, **kwargs)
        except BaseException:
            self._forget()
            raise

    return cast(F, attempted)


class Estimator(OnCPU, BaseEstimator):
    """Base class with shared documentation, checks of options, and removal of fitted state.

    A line ``<name>`` in a subclass's docstring is replaced by ``_shared_text[name]``.
    """

    _shared_text: ClassVar[dict[str, str]] = {
        "shared computation": """
device: Torch device of the computation, such as ``"cuda"``; ``None`` for the CPU, independent of
    PyTorch's default device.
random_state: Seed or NumPy random state; an integer makes fits reproducible.
progress: Show a progress bar on a terminal.
"""
    }
    _advice: ClassVar[dict[str, bool]] = {}  # options of as_numbers that determine its messages
    _names: pd.Index | None  # names of the columns in the fit
    budget: float | None
    device: str | None
    random_state: Any
    progress: bool
    _private_state: ClassVar[tuple[str, ...]] = ()  # private attributes that a fit sets

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__ is not None:  # python -OO removes docstrings
            # Docstrings are indented up to Python 3.12, and dedented since 3.13.
            cls.__doc__ = re.sub(
                r"^( *)<(shared .+)>$",
                lambda match: indent(cls._shared_text[match[2]].strip(), match[1]),
                cls.__doc__,
                flags=re.MULTILINE,
            )

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Set the options from the local variables of ``__init__``."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    def _forget(self) -> None:
        """Remove the attributes of a fit, so that a failed fit cannot predict."""
        for name in [n for n in vars(self) if n.endswith("_") or n in self._private_state]:
            delattr(self, name)

    def _checked_table(self, X: Any, y: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return checked rows ``N x D`` and targets ``N`` or ``N x K`` for a fit."""
        self._check_names(X, reset=True)
        check_complete_targets(y)
        self._warn_of_order(X, y=y)
        shape = tuple(getattr(y, "shape", ()))
        if not checks.get("multi_output") and len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y must have one column, got shape {shape}: for independent columns, use "
                "MultiOutputRegressor or MultiOutputClassifier of sklearn.multioutput."
            )
        if checks.get("y_numeric"):
            y = as_numbers("y", y)
        checks = {"dtype": np.float64, "order": "C", "ensure_min_samples": 2} | checks
        table, target = validate_data(self, as_numbers("X", X, **self._advice), y, **checks)
        check_size("X", table)
        return table, target

    def _warn_of_order(self, X: Any, **of_rows: Any) -> None:
        """Warn if data of the rows have other labels than ``X``, or the same in another order.

        The default labels 0, 1, ... identify rows only if both objects have them.
        """
        of_pandas = pd.DataFrame | pd.Series
        for name, values in of_rows.items():
            if isinstance(X, of_pandas) and isinstance(values, of_pandas):
                one, two = X.index, values.index
                default = pd.RangeIndex(len(one))
                named = not (one.equals(default) or two.equals(default)) and len(one) == len(two)
                if not one.equals(two) and (named or set(one) == set(two)):
                    warn_user(
                        f"X and {name} have different indices, but rows are matched by position: "
                        f'if this is wrong, call X, {name} = X.align({name}, join="inner", axis=0).'
                    )

    def _checked_rows(self, X: Any, name: str = "X", **checks: Any) -> np.ndarray:
        """Return checked rows ``M x D`` for predictions."""
        check_is_fitted(self)
        self._check_names(X, reset=False)
        checks = {"dtype": np.float64, "order": "C", "reset": False} | checks
        table = validate_data(self, as_numbers(name, X, fitted=True), **checks)
        check_size(name, table)
        return table

    def _check_names(self, X: Any, *, reset: bool) -> None:
        """Raise a ``ValueError`` if column names repeat, or differ from the names in ``fit``."""
        names = X.columns if isinstance(X, pd.DataFrame) else None
        if names is not None and not names.is_unique:
            repeated = names[names.duplicated()].unique().tolist()
            raise ValueError(
                f"Every column of X must have a unique name, got {repeated} more than once: rename "
                "these columns by X.columns = [...]."
            )
        if reset:
            self._names = names
        elif names is not None and hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)
        elif names is not None and self._names is not None:
            if not names.equals(self._names):
                raise ValueError(
                    f"The columns of X must be {self._names.tolist()} as in fit, got "
                    f"{names.tolist()}: select them by X[columns], or rename them."
                )

    def _check_training_options(self) -> None:
        """Raise an error if a training option is invalid."""
        options = self.get_params(deep=False)
        recipe, budget, n_jobs = options.get("recipe"), options["budget"], options.get("n_jobs", 1)
        flags = {"progress", "early_stopping"} & options.keys()
        check_flags(**{name: options[name] for name in flags})
        if not (recipe is None or isinstance(recipe, Recipe)):
            raise TypeError(f"recipe must be a Recipe or None, got {recipe!r}.")
        if budget is not None:
            check_number("budget", budget, positive=True, infinite=True)
        check_counts(None, n_jobs=n_jobs)
        if n_jobs == 0:
            raise ValueError("n_jobs must be a number of processes, negative as in joblib, got 0.")
        if options.get("restarts") is not None:
            check_counts(1, restarts=options["restarts"])
