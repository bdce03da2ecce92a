"""Stacked spectral features below a linear map, with gradients written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LOSSES", "FeatureLayer", "Loss", "SpectralNetwork"]

_BLOCK = 2**18  # angles at a time on a CPU, which its second-level cache holds
_DEVICE_BLOCK = 2**26  # and on a device, which it has memory for


# Takes outputs M x K, which it overwrites by the gradient of the sum of the losses, and labels
# M x 1 or targets M x K; returns that sum.
Loss = Callable[[Tensor, Tensor], Tensor]


def _log_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the softmax."""
    logs = torch.log_softmax(outputs, 1)
    total = logs.gather(1, labels).sum().neg_()
    torch.exp(logs, out=outputs)
    outputs.scatter_add_(1, labels, torch.full_like(logs[:, :1], -1.0))
    return total


def _hinge_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Crammer and Singer's: one minus the lead of the right class, clamped at zero."""
    right = outputs.gather(1, labels)
    best, rival = outputs.scatter_(1, labels, -math.inf).max(1, keepdim=True)
    excess = best.sub_(right).add_(1.0)
    active = (excess > 0).to(outputs.dtype)
    outputs.zero_().scatter_(1, rival, active)
    outputs.scatter_(1, labels, active.neg_())
    return excess.clamp_min_(0.0).sum()


def _squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared distance, summed over the outputs."""
    outputs.sub_(targets)
    total = outputs.square().sum()
    outputs.mul_(2.0)
    return total


LOSSES: dict[str, Loss] = {
    "hinge": _hinge_loss,
    "log_loss": _log_loss,
    "squared_error": _squared_loss,
}


class FeatureLayer(NamedTuple):
    """A feature map, ``D`` features of ``d`` inputs by ``T`` frequencies each, 1 or 2.

    Attributes:
        matrix: Frequencies above phases, ``(d + 1) x TD``: the first ``D`` columns are those of
            Omega, the others of Omega', with the same phases.
        window: Where the matrix is in the vector of parameters.
    """

    matrix: Tensor
    window: slice

    @property
    def frequencies(self) -> Tensor:
        """Frequencies alone, ``d x TD``."""
        return self.matrix[:-1]

    @property
    def phases(self) -> Tensor:
        """Phases ``TD``."""
        return self.matrix[-1]


class _Room(NamedTuple):
    """Memory for a number of rows: angles, cosines, sums of cosines, and outputs."""

    angles: list[Tensor]
    cosines: list[Tensor]
    features: list[Tensor]
    outputs: Tensor


class SpectralNetwork:
    r"""Outputs :math:`W^\top \phi(x) + c` of float32 features, and their gradients.

    .. math::
        \phi(x) = \sqrt{1/2D}\,[\cos(\Omega^\top x + b) + \cos(\Omega'^\top x + b)]
        \quad\text{or}\quad \sqrt{2/D}\,\cos(\Omega^\top x + b)

    Further layers take the features of the one below as inputs. All parameters are views of one
    vector, blocks of rows are small enough for the cache, and inputs have a last column of ones,
    which the phases multiply: what counts here is time per step.

    Args:
        frequencies: Of each layer, ``T x D x d``.
        phases: Of each layer, ``D``.
        num_outputs: ``K``.
        learned: Whether frequencies have gradients.
        intercept: Whether ``c`` has.
        device: Torch device.

    Attributes:
        values: The parameters, ``W``, ``c``, then frequencies and phases layer by layer.
        gradient: Gradient of the learned ones, which come first; that of phases is zero.
        weight: ``W`` transposed, ``K x D``.
        intercept: ``c``, ``K``.
    """

    def __init__(
        self,
        frequencies: Sequence[Tensor],
        phases: Sequence[Tensor],
        num_outputs: int,
        *,
        learned: bool,
        intercept: bool,
        device: torch.device,
    ):
        terms, num_features, _ = frequencies[-1].shape
        self.terms, self.num_features, self.num_outputs = terms, num_features, num_outputs
        self.learned, self.has_intercept = learned, intercept
        self._input_dims = [part.size(-1) for part in frequencies]
        parts = [torch.zeros((num_features + 1) * num_outputs, dtype=torch.float32)]
        for part, phase in zip(frequencies, phases, strict=True):
            rows = torch.cat([part.permute(2, 0, 1).flatten(1), phase.repeat(terms)[None]])
            parts.append(rows.to(torch.float32).reshape(-1))
        self._set(torch.cat(parts).to(device))

    def _set(self, values: Tensor) -> None:
        """Take a vector of parameters, and make views of it."""
        size, start = self.num_features * self.num_outputs, 0
        self.values = values
        self.weight = values[:size].view(self.num_outputs, self.num_features)
        self.intercept = values[size : size + self.num_outputs]
        start = size + self.num_outputs
        self.head = slice(0, start)
        self.layers = []
        for dim in self._input_dims:
            window = slice(start, start + (dim + 1) * self.terms * self.num_features)
            self.layers.append(FeatureLayer(values[window].view(dim + 1, -1), window))
            start = window.stop
        self.scale = math.sqrt((1 if self.terms == 2 else 4) / (2 * self.num_features))
        limit = _BLOCK if values.device.type == "cpu" else _DEVICE_BLOCK
        self.block_rows = max(1, limit // (self.terms * self.num_features))
        self.gradient = values.new_empty(0)
        self._rooms: dict[int, _Room] = {}

    def __getstate__(self) -> dict:
        """Parameters only, on the host."""
        kept = ("terms", "num_features", "num_outputs", "learned", "has_intercept", "_input_dims")
        return {n: self.__dict__[n] for n in kept} | {"values": self.values.cpu().clone()}

    def __setstate__(self, state: dict) -> None:
        values = state.pop("values")
        self.__dict__.update(state)
        self._set(values)

    @property
    def windows(self) -> list[slice]:
        """Where learned parameters are in the vector: outputs, then layer by layer."""
        return [self.head, *(layer.window for layer in self.layers if self.learned)]

    def stacked_frequencies(self) -> list[Tensor]:
        """Frequencies of each layer, ``T x D x d``."""
        return [
            layer.frequencies.view(len(layer.frequencies), self.terms, -1).permute(1, 2, 0)
            for layer in self.layers
        ]

    def prepare(self) -> None:
        """Make room for gradients."""
        self.gradient = self.values.new_zeros(self.windows[-1].stop)

    def release(self) -> None:
        """Give back the room that training takes."""
        self.gradient = self.values.new_empty(0)
        self._rooms.clear()

    def add_gradient(
        self, x: Tensor, targets: Tensor, loss: Loss, *, feature_penalty: float = 0.0
    ) -> Tensor:
        """Write the gradient of mean loss and feature norm of a batch into :attr:`gradient`.

        Args:
            x: Rows ``M x (d + 1)``, ones in the last column.
            targets: What the loss compares with, ``M`` rows.
            loss: One of ``LOSSES``.
            feature_penalty: Factor of the mean squared norm of the last layer's features.

        Returns:
            Sum of the losses.
        """
        pieces = -(-len(x) // self.block_rows)
        bounds = [len(x) * k // pieces for k in range(pieces + 1)]
        penalty = 2 * feature_penalty * self.scale / len(x)
        total = self.values.new_zeros(())
        for first, last in zip(bounds, bounds[1:], strict=False):
            room = self._room(last - first)
            rows = x[first:last]
            self._forward(rows, room)
            total += loss(room.outputs, targets[first:last])
            room.outputs.mul_(1 / len(x))
            self._backward(rows, room, penalty, beta=float(first > 0))
        return total

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs ``M x K`` of rows ``M x (d + 1)``, in float32."""
        result = x.new_empty(len(x), self.num_outputs)
        for rows, out in zip(x.split(self.block_rows), result.split(self.block_rows), strict=True):
            room = self._room(len(rows), keep=len(rows) == self.block_rows)
            self._forward(rows, room)
            out.copy_(room.outputs)
        return result

    def features_in_double(self, x: Tensor, depth: int | None = None) -> Iterator[Tensor]:
        """Features of blocks of rows, in float64.

        Args:
            x: Float64 rows ``M x d``, without the ones.
            depth: Number of layers; ``None`` for all.
        """
        maps = [(layer.frequencies.double(), layer.phases.double()) for layer in self.layers]
        for rows in x.split(self.block_rows):
            for frequencies, phases in maps[:depth]:
                cosines = torch.addmm(phases, rows, frequencies).cos_()
                rows = cosines.view(len(rows), self.terms, -1).sum(1).mul_(self.scale)
            yield rows

    def _room(self, rows: int, *, keep: bool = True) -> _Room:
        if rows in self._rooms:
            return self._rooms[rows]
        width = self.terms * self.num_features
        angles = [self.values.new_empty(rows, width) for _ in self.layers]
        cosines = [torch.empty_like(part) for part in angles]
        features = [part[:, : self.num_features] for part in cosines]
        room = _Room(angles, cosines, features, self.values.new_empty(rows, self.num_outputs))
        if keep:
            self._rooms[rows] = room
        return room

    def _forward(self, x: Tensor, room: _Room) -> None:
        """Angles, features (without their scale) and outputs."""
        below: Tensor | None = None
        for layer, angles, cosines, features in zip(self.layers, *room[:3], strict=True):
            if below is None:
                torch.mm(x, layer.matrix, out=angles)
            else:
                matrix = layer.frequencies
                torch.addmm(layer.phases, below, matrix, alpha=self.scale, out=angles)
            torch.cos(angles, out=cosines)
            if self.terms == 2:
                features.add_(cosines[:, self.num_features :])
            below = features
        top = room.features[-1]
        torch.addmm(self.intercept, top, self.weight.mT, alpha=self.scale, out=room.outputs)

    def _backward(self, x: Tensor, room: _Room, penalty: float, beta: float) -> None:
        """Gradient from that by the outputs, which ``room.outputs`` holds; added if beta is 1."""
        errors, top = room.outputs, room.features[-1]
        weight = self.gradient[: self.weight.numel()].view_as(self.weight)
        torch.addmm(weight, errors.mT, top, beta=beta, alpha=self.scale, out=weight)
        if self.has_intercept:
            intercept = self.gradient[self.weight.numel() : self.head.stop]
            torch.add(errors.sum(0), intercept, alpha=beta, out=intercept)
        if not self.learned:
            return
        torch.addmm(top, errors, self.weight, beta=penalty, out=top)  # gradient by the features
        for depth in reversed(range(len(self.layers))):
            layer, angles, upper = self.layers[depth], room.angles[depth], room.features[depth]
            angles.sin_().view(len(x), self.terms, -1).mul_(upper.unsqueeze(1))
            own = self.gradient[layer.window].view_as(layer.matrix)
            if depth == 0:
                torch.addmm(own, x.mT, angles, beta=beta, alpha=-self.scale, out=own)
                own[-1].zero_()
                return
            below, own = room.features[depth - 1], own[:-1]
            torch.addmm(own, below.mT, angles, beta=beta, alpha=-(self.scale**2), out=own)
            matrix = layer.frequencies.mT
            torch.addmm(below, angles, matrix, beta=0, alpha=-self.scale, out=below)
