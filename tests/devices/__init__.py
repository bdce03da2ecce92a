"""The device of the contract tests: ``pytest --device NAME``, by default the CPU.

With another one than the CPU those tests run that take the fixture ``device``, each in three ways
(``WAYS``): tensors of two devices must not meet, whatever PyTorch's default device is. ``second``
is a stand-in without a GPU (second.cpp), on which tensors of two devices do not meet either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

__all__ = ["WAYS", "check", "made_on", "rng_state"]

TESTS = str(Path(__file__).parents[1])

# Whether data of the test modules are on the device, and whether it is PyTorch's default device.
WAYS = {"data": (True, False), "data and default": (True, True), "default": (False, True)}


def check(name: str) -> torch.device:
    """Return a device by name; a ``ValueError`` states why it cannot be used."""
    if name == "second":
        from tests.devices import second

        second.load()
    try:
        there = torch.zeros(1, device=name)
        there.item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the device {name!r} cannot be used here: {reason}") from error
    return there.device


@contextmanager
def made_on(device: torch.device, way: str = "data") -> Iterator[torch.device]:
    """Tensors that test modules make without a ``device`` are made on the device of the data.

    Draws of a generator of the CPU are the CPU's numbers. ``way`` is one of ``WAYS``.
    """
    has_data, is_default = WAYS[way]
    data = device if has_data else torch.device("cpu")
    if device.type == "cpu":
        yield data
        return
    with torch.device(device) if is_default else nullcontext(), _MadeByTests(data):
        yield data


def rng_state(device: torch.device) -> bytes:
    """Return the state of the device's default generator."""
    if device.type == "cpu":
        return b""
    return torch.get_device_module(device).get_rng_state(device).numpy().tobytes()


class _MadeByTests(TorchFunctionMode):
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.constructors = _device_constructors()

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self.constructors or kwargs.get("device") is not None:
            return func(*args, **kwargs)
        if not sys._getframe(1).f_code.co_filename.startswith(TESTS):
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            return func(*args, **{**kwargs, "device": "cpu"}).to(self.device)
        return func(*args, **kwargs, device=self.device)
