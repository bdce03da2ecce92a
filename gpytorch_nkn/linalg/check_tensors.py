"""Refusal of what is no tensor of real numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["check_tensors"]


def check_tensors(**values: Any) -> None:
    """Refuse arguments that are no floating-point tensors, by name.

    Raises:
        TypeError: A value is none.
    """
    for name, value in values.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of floating-point numbers, got {got}.")
