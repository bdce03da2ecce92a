"""Concatenation of a network's parameters into one vector."""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch import Module
from gpytorch.constraints import Interval, Positive
from torch import Tensor
from torch.nn.functional import softplus

from gpytorch_nkn.layers import Linear

__all__ = ["ParameterVector", "Slot", "has_softplus"]


class Slot(NamedTuple):
    """Range of indices of a parameter in the vector of all parameters."""

    start: int
    stop: int

    def of(self, theta: Tensor) -> Tensor:
        """Return the entries of the parameter as a view of ``theta``."""
        return theta[self.start : self.stop]


class ParameterVector:
    """Vector of a network's parameters, with one softplus call for each run of raw values.

    Attributes:
        batch_shape, size: Batch shape of the network, and length of the vector per batch element.
        parts: Parts in order: a module and the name of its parameter, or a tensor of derived
            values.
        slots: Ranges of indices of the parts.
    """

    def __init__(self, batch_shape: torch.Size):
        self.batch_shape = batch_shape
        self.size = 0
        self.parts: list[tuple[Module, str] | Tensor] = []
        self.slots: list[Slot] = []
        self._event_dims: list[int] = []  # by part: number of dimensions after the batch

    def add(self, module: Module, name: str, count: int, event_dims: int = 2) -> Slot:
        """Append a parameter with ``count`` entries per batch element."""
        return self._add((module, name), count, event_dims)

    def add_derived(self, value: Tensor) -> Slot:
        """Append one derived value per batch element."""
        return self._add(value.unsqueeze(-1), 1, 1)

    def values(self) -> Tensor | None:
        """Return the differentiable vector ``... x T``; None if a parameter has a wrong size."""
        pieces: list[Tensor | None] = []  # None stands for a run of adjacent raw values
        raw: list[Tensor] = []
        runs: list[int] = []  # lengths of the runs
        fractions: dict[int, Tensor] = {}
        for part, slot, event_dims in zip(self.parts, self.slots, self._event_dims, strict=True):
            value, is_raw = _value(part, fractions)
            count = slot.stop - slot.start
            flat = self._flat(value, event_dims, count)
            if flat is None:
                return None
            if not is_raw:
                pieces.append(flat)
                continue
            raw.append(flat)
            if pieces and pieces[-1] is None:
                runs[-1] += count
            else:
                pieces.append(None)
                runs.append(count)
        if len({flat.dtype for flat in (*raw, *pieces) if flat is not None}) > 1:
            return None  # plain evaluation raises an error
        if raw:
            transformed = softplus(_concatenate(raw))
            parts = iter(transformed.split(runs, -1) if len(runs) > 1 else (transformed,))
            pieces = [next(parts) if piece is None else piece for piece in pieces]
        return _concatenate(pieces)  # type: ignore[arg-type]

    def _add(self, part: tuple[Module, str] | Tensor, count: int, event_dims: int) -> Slot:
        self.parts.append(part)
        self._event_dims.append(event_dims)
        self.slots.append(Slot(self.size, self.size + count))
        self.size += count
        return self.slots[-1]

    def _flat(self, value: Tensor, event_dims: int, count: int) -> Tensor | None:
        """Return the value as ``... x count``; None if its size is wrong."""
        if not self.batch_shape:
            # the value may have leading dimensions of size one
            right = value.numel() == count
            if value.dim() != event_dims:
                right = right and value.shape[value.dim() - event_dims :].numel() == count
            return value.reshape(-1) if right else None
        event = value.shape[value.dim() - event_dims :]
        if event.numel() != count:
            return None
        return value.expand(*self.batch_shape, *event).reshape(*self.batch_shape, -1)


def _value(part: tuple[Module, str] | Tensor, fractions: dict[int, Tensor]) -> tuple[Tensor, bool]:
    """Return the value of a part, and whether softplus remains to be applied.

    ``fractions`` caches the softmax of each layer, from which weights and biases are taken.
    """
    if isinstance(part, Tensor):
        return part, False
    module, name = part
    if type(module) is Linear and module.is_simplex:
        if id(module) not in fractions:
            fractions[id(module)] = module.fractions
        both, width = fractions[id(module)], module.in_features
        return (both[..., :width] if name == "weight" else both[..., width]), False
    raw = module._parameters.get(f"raw_{name}")
    if raw is not None:
        constraint = module._constraints.get(f"raw_{name}_constraint")
        if type(constraint) is Positive and has_softplus(constraint):
            return raw, True
    return getattr(module, name), False


def has_softplus(constraint: Interval) -> bool:
    """Return whether a constraint's transform is PyTorch's softplus with default settings."""
    transform = constraint._transform
    if type(transform) is torch.nn.Softplus:
        return transform.beta == 1 and transform.threshold == 20
    return transform is softplus


def _concatenate(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)
