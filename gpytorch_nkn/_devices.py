"""Random numbers and computations on the CPU, independent of PyTorch's default device.

The default device (``torch.set_default_device``, ``with torch.device(...)``) may be another one.
CPU generators cannot draw on it, and its tensors cannot be combined with NumPy arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["OnCPU", "normal", "on_cpu", "permutation", "uniform"]


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw float64 numbers of a shape, uniform in [0, 1), on the CPU."""
    return torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device="cpu")


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw standard normal float64 numbers of a shape on the CPU."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64, device="cpu")


def permutation(count: int, generator: torch.Generator) -> Tensor:
    """Draw a permutation of the integers below ``count`` on the CPU."""
    return torch.randperm(count, generator=generator, device="cpu")


@contextmanager
def on_cpu() -> Iterator[None]:
    """Create tensors on the CPU by default, in a context or in a decorated function."""
    if torch.get_default_device().type == "cpu":  # entering a device mode slows down every call
        yield
        return
    with torch.device("cpu"):
        yield


class OnCPU:
    """Mixin that wraps the public methods of classes with NumPy interfaces in ``on_cpu``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in list(vars(cls).items()):
            if inspect.isfunction(value) and not name.startswith("_"):
                setattr(cls, name, on_cpu()(value))
