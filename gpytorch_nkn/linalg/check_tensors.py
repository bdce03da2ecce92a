"""Checks of tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["check_finite", "check_tensors"]


def check_finite(**values: Tensor) -> None:
    """Raise a ValueError for the first argument with NaN or infinite values."""
    for name, value in values.items():
        if not bool(value.isfinite().all()):
            wrong = int((~value.isfinite()).sum())
            raise ValueError(f"{name} must be finite, got {wrong} values that are NaN or infinite.")


def check_tensors(**values: Any) -> None:
    """Raise a TypeError for the first argument that is not a floating-point tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of floating-point numbers, got {got}.")
