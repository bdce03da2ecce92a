"""A check of tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["check_tensors"]


def check_tensors(**values: Any) -> None:
    """Raise a TypeError that names the first argument that is no floating-point tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of floating-point numbers, got {got}.")
