"""All parameters of a network in one vector."""

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
    """Where a parameter lies in the vector of all of them."""

    start: int
    stop: int

    def of(self, theta: Tensor) -> Tensor:
        """The parameter, flat."""
        return theta[self.start : self.stop]


class ParameterVector:
    """Collects parameters into one vector, transforming many of them at once where that is exact.

    Attributes:
        batch_shape: Of the network.
        size: Numbers so far per element of the batch.
        parts: What stands in the vector, in order: modules and names of parameters, or tensors
            of derived numbers. The values of a parameter are those of the module's attribute;
            the weights of a simplex and its bias depend on the raw values of both.
    """

    def __init__(self, batch_shape: torch.Size):
        self.batch_shape = batch_shape
        self.size = 0
        self.parts: list[tuple[Module, str] | Tensor] = []
        self._counts: list[int] = []
        self._event_dims: list[int] = []  # trailing dimensions that do not belong to the batch

    def add(self, module: Module, name: str, count: int, event_dims: int = 2) -> Slot:
        """Reserve the place of a parameter of ``count`` numbers per element of the batch."""
        return self._add((module, name), count, event_dims)

    def add_derived(self, value: Tensor) -> Slot:
        """Reserve the place of a number, one per element of the batch, that is no parameter."""
        return self._add(value.unsqueeze(-1), 1, 1)

    def values(self) -> Tensor | None:
        """The vector ``... x T``, differentiable; None if a parameter is not of its size."""
        pieces: list[Tensor | None] = []  # in order; None for parts whose raw values follow here:
        raw: list[Tensor] = []
        runs: list[int] = []  # how many numbers each None stands for
        fractions: dict[int, Tensor] = {}
        for part, count, event_dims in zip(self.parts, self._counts, self._event_dims, strict=True):
            value, is_raw = _value(part, fractions)
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
            return None  # plain evaluation tells what is wrong
        if raw:
            transformed = softplus(_joined(raw))
            parts = iter(transformed.split(runs, -1) if len(runs) > 1 else (transformed,))
            pieces = [next(parts) if piece is None else piece for piece in pieces]
        return _joined(pieces)  # type: ignore[arg-type]

    def _add(self, part: tuple[Module, str] | Tensor, count: int, event_dims: int) -> Slot:
        self.parts.append(part)
        self._counts.append(count)
        self._event_dims.append(event_dims)
        self.size += count
        return Slot(self.size - count, self.size)

    def _flat(self, value: Tensor, event_dims: int, count: int) -> Tensor | None:
        """The value ``... x count``, None if it is of another size."""
        if not self.batch_shape:
            # Further dimensions, of size one: a batch without a shape.
            right = value.numel() == count
            if value.dim() != event_dims:
                right = right and value.shape[value.dim() - event_dims :].numel() == count
            return value.reshape(-1) if right else None
        event = value.shape[value.dim() - event_dims :]
        if event.numel() != count:
            return None
        return value.expand(*self.batch_shape, *event).reshape(*self.batch_shape, -1)


def _value(part: tuple[Module, str] | Tensor, fractions: dict[int, Tensor]) -> tuple[Tensor, bool]:
    """Value of a part, and whether softplus has yet to be applied.

    ``fractions`` collects the softmax of each layer, which its weights and its bias have in common.
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
    """Whether a constraint's transform is the softplus of PyTorch with its usual settings."""
    transform = constraint._transform
    if type(transform) is torch.nn.Softplus:
        return transform.beta == 1 and transform.threshold == 20
    return transform is softplus


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)
