"""Checks of arguments: tensors, numbers, counts and flags."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["check_counts", "check_finite", "check_flags", "check_number", "check_tensors"]


def check_finite(**values: Tensor) -> None:
    """Raise a ValueError for the first argument with NaN or infinite values.

    Inside :mod:`torch.func` transforms, values are not checked, because ``vmap`` does not allow it.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return
    for name, value in values.items():
        if not bool(value.isfinite().all()):
            wrong = int((~value.isfinite()).sum())
            raise ValueError(f"{name} must be finite, got NaN or infinite values: {wrong}.")


def check_tensors(**values: Any) -> None:
    """Check that arguments are tensors of float32 or float64 numbers on a CPU or GPU.

    Raises:
        TypeError: An argument is not such a tensor. PyTorch has no Cholesky decomposition in half
            precision.
        NotImplementedError: An argument or the default device is on the meta device.
    """
    for name, value in values.items():
        if not isinstance(value, Tensor) or value.dtype not in (torch.float32, torch.float64):
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of float32 or float64 numbers, got {got}.")
        if "meta" in (value.device.type, torch.get_default_device().type):
            raise NotImplementedError(
                f"{name} and the default device must be on a CPU or GPU, got the meta device. "
                "Construct models from their data on a CPU or GPU."
            )


def check_counts(least: int | None, words: Sequence[str] = (), **counts: Any) -> None:
    """Check that options are integers of at least ``least`` (``None``: any) or one of ``words``."""
    alternatives = "".join(f" or {word!r}" for word in words)
    for name, value in counts.items():
        if isinstance(value, str) and value in words:
            continue
        try:
            number = operator.index(value)  # accepts NumPy integers
        except TypeError:
            number = None
        if number is None or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer{alternatives}, got {value!r}.")
        if least is not None and number < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_flags(**flags: Any) -> None:
    """Check that options are booleans: any other object, such as ``"no"``, would count as True."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {value!r}.")


def check_number(
    name: str,
    value: Any,
    *,
    positive: bool,
    infinite: bool = False,
    most: float = math.inf,
    words: Sequence[str] = (),
) -> None:
    """Check that an option is one of ``words``, or a number from 0 to ``most``."""
    expected = f"{', '.join(map(repr, words))} or a number" if words else "a number"
    if isinstance(value, str) and words:
        if value not in words:
            raise ValueError(f"{name} must be {expected}, got {value!r}.")
        return
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be {expected}, got {value!r}.")
    number = float(value)
    if math.isnan(number) or (math.isinf(number) and not infinite):
        raise ValueError(f"{name} must be finite, got {value}.")
    if number < 0 or (positive and number == 0):
        raise ValueError(
            f"{name} must be {'positive' if positive else 'not negative'}, got {value}."
        )
    if most < number < math.inf:
        raise ValueError(f"{name} must be at most {most:g}, got {value}.")
