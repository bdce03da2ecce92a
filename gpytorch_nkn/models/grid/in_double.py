"""Predictions of a float32 model by a float64 copy of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import wraps
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

__all__ = ["in_double"]


def in_double(method: Callable) -> Callable:
    """Let a float32 model run a method of its float64 copy.

    Variances are small differences of large numbers, and noise far below the signal is lost in
    the rounding of float32 matrices. The copy is made anew when parameters or data change.
    The model has a slot ``_double`` for it, and clears that with its other caches.
    """

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = self.get_buffer("_targets").dtype
        if dtype == torch.float64:
            return method(self, *args, **kwargs)
        values = torch.cat([p.detach().reshape(-1) for p in self.parameters()])
        if self._double is None or not torch.equal(self._double[0], values):
            self._double = values, deepcopy(self).double().eval()
        args, kwargs = _cast(args, torch.float64), _cast(kwargs, torch.float64)
        return _cast(method(self._double[1], *args, **kwargs), dtype)

    return wrapped


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, MultivariateNormal):
        covariance = to_linear_operator(value.covariance_matrix.to(dtype))
        return MultivariateNormal(value.loc.to(dtype), covariance)
    if isinstance(value, list | tuple):
        return type(value)(_cast(part, dtype) for part in value)
    if isinstance(value, dict):
        return {key: _cast(part, dtype) for key, part in value.items()}
    return value
