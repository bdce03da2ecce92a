"""Base class of the estimators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import indent
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_nkn._devices import OnCPU
from gpytorch_nkn.estimators.table_input import check_numeric
from gpytorch_nkn.fit import Recipe, check_counts, check_number

__all__ = ["Estimator"]


class Estimator(OnCPU, BaseEstimator):
    """Base class with shared documentation, checks of options and the state of a fit.

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
    _private_state: ClassVar[tuple[str, ...]] = ()  # private attributes that a fit sets

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__ is not None:  # python -OO removes docstrings
            # Docstrings are indented up to Python 3.12, and dedented since 3.13.
            cls.__doc__ = re.sub(
                r"^( *)<(shared .+)>$",
                lambda found: indent(cls._shared_text[found[2]].strip(), found[1]),
                cls.__doc__,
                flags=re.MULTILINE,
            )

    def _set_options(self, arguments: dict[str, Any]) -> None:
        """Set the options from ``__init__``'s local variables."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    def _forget(self) -> None:
        """Remove the attributes of a previous fit, so that a failed fit cannot predict."""
        for name in [n for n in vars(self) if n.endswith("_") or n in self._private_state]:
            delattr(self, name)

    @contextmanager
    def _forgetting_failures(self) -> Iterator[None]:
        """Remove the attributes of a fit before it and after its failure."""
        self._forget()
        try:
            yield
        except BaseException:
            self._forget()
            raise

    def _checked_rows(self, X: ArrayLike, name: str = "X") -> np.ndarray:
        """Return checked rows ``M x D`` for predictions."""
        check_is_fitted(self)
        check_numeric(name, X)
        return validate_data(self, X, dtype=np.float64, order="C", reset=False)

    def _check_training_options(self) -> None:
        """Raise an error if a training option is invalid."""
        options = self.get_params(deep=False)
        recipe, budget, n_jobs = options["recipe"], options["budget"], options["n_jobs"]
        if not (recipe is None or isinstance(recipe, Recipe)):
            raise TypeError(f"recipe must be a Recipe or None, got {recipe!r}.")
        if budget is not None:
            check_number("budget", budget, positive=True, infinite=True)
        check_counts(None, n_jobs=n_jobs)
        if n_jobs == 0:
            raise ValueError("n_jobs must be a number of processes, or negative for all, got 0.")
        if options.get("restarts") is not None:
            check_counts(1, restarts=options["restarts"])
