"""Relative changes of 1e-12 at the start of trainings, as from other arithmetic.

Assertions that do not depend on rounding also hold with these changes. The changes depend only on
the numbers, so that repeated calls agree.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import torch
from sklearn.base import is_classifier

__all__ = ["changed", "perturb_trainings"]

SIZE = 1e-12
SINGLE = 1e-7  # where single precision is trained in

_WILD = 1e4  # what is taken of numbers as a direction


def perturb_trainings() -> None:
    """Change what enters trainings, from now on and for good.

    Starting points of SciPy's and PyTorch's optimisers and of models on grids, gradients of exact
    Gaussian processes, and the data that estimators are given.
    """
    from gpytorch_nkn import estimators
    from gpytorch_nkn.fit.minimize import FlatParameters

    scipy.optimize.minimize = _from_near_by(scipy.optimize.minimize)
    FlatParameters.evaluate = _then_changed(FlatParameters.evaluate, "gradients")
    _change_start_of_adam()
    for name in estimators.__all__:
        estimator = getattr(estimators, name)
        if inspect.isclass(estimator) and "fit" in dir(estimator):
            size = SINGLE if name.startswith("ASKL") else SIZE
            estimator.fit = _with_changed_data(estimator.fit, size)


def changed(values: Any, size: float = SIZE) -> Any:
    """An array or tensor of floating point numbers with relative changes; else what it is.

    Equal numbers are changed alike, so that what is constant or a copy stays so, powers of two
    times a number as the number is, and those that no rounding made (whole ones, halves, eighths)
    not at all.
    """
    if isinstance(values, pd.DataFrame):
        return values.apply(changed, size=size)
    if isinstance(values, pd.Series):
        return pd.Series(changed(values.to_numpy(), size), values.index, name=values.name)
    if isinstance(values, torch.Tensor) and values.is_floating_point():
        exact = ~values.isfinite() | (8 * values == torch.round(8 * values))
        near = values * (1 + size * torch.cos(_WILD * torch.frexp(values.double())[0])).to(values)
        return torch.where(exact, values, near)
    if type(values) is np.ndarray and values.dtype == np.float64:  # no masked one
        exact = ~np.isfinite(values) | (8 * values == np.rint(8 * values))
        factors = 1 + size * np.cos(_WILD * np.frexp(np.where(exact, 0.0, values))[0])
        return np.where(exact, values, values * factors)
    return values


def _from_near_by(minimize: Any) -> Any:
    @functools.wraps(minimize)
    def wrapped(fun: Any, x0: Any, *args: Any, **options: Any) -> Any:
        return minimize(fun, changed(np.asarray(x0, dtype=float)), *args, **options)

    return wrapped


def _then_changed(method: Any, attribute: str) -> Any:
    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        result = method(self, *args, **options)
        tensor = getattr(self, attribute)
        tensor.copy_(changed(tensor))
        return result

    return wrapped


def _change_start_of_adam() -> None:
    begin = torch.optim.Adam.__init__

    @functools.wraps(begin)
    def wrapped(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(changed(parameter))

    torch.optim.Adam.__init__ = wrapped  # type: ignore[method-assign]


def _with_changed_data(fit: Any, size: float) -> Any:
    """Inputs of classifiers, else targets: a grid of inputs stays one."""

    @functools.wraps(fit)
    def wrapped(self: Any, x: Any, y: Any = None, *args: Any, **options: Any) -> Any:
        if is_classifier(self) or isinstance(x, pd.Series) and y is None:
            x = changed(x, size)
        else:
            y = changed(y, size)
        return fit(self, x, y, *args, **options)

    return wrapped
