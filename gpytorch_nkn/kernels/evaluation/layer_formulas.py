"""Values and gradients of layers on the entries of a tile, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.program import LayerKind, LayerStep
from gpytorch_nkn.layers import polynomial
from gpytorch_nkn.linalg import Pool

__all__ = ["BoundLayer", "Memory", "bind_layers", "layer_values", "with_ones"]


class Memory:
    """Memory of a layer for tiles of one size, and views of it.

    Args:
        values: Inputs of the layer, and below them ones, ``(C + 1) x E``.
        adjoint: Where the adjoint ``C x E`` of the inputs goes, possibly in their place.
        results: Where the outputs ``O x E`` go, and what stands below them.
        num_outputs: Outputs ``O`` of the layer.
        factors: Memory for what lies between inputs and outputs.
    """

    def __init__(
        self, values: Tensor, adjoint: Tensor, results: Tensor, num_outputs: int, factors: Tensor
    ):
        num_inputs = adjoint.size(0)
        self.values = values
        self.inputs = values[:num_inputs]
        self.inputs_transposed = self.inputs.mT
        self.ones = values[num_inputs]
        self.adjoint = adjoint
        self.outputs = results[:num_outputs]
        self.factors = factors
        self.pairs = self.factors[0::2], self.factors[1::2]


class BoundLayer(Protocol):
    """A layer with the values of its parameters.

    Attributes:
        num_outputs: Outputs ``O``.
        num_factors: Rows of memory that it needs for what lies between inputs and outputs.
        skip: The primitives stand behind what comes in from the layer before.
    """

    num_outputs: int
    num_factors: int
    skip: bool

    def zeros(self) -> list[Tensor]:
        """Zeros to which sums over the entries are added."""

    def evaluate(self, memory: Memory) -> None:
        """Compute the outputs ``O x E`` from the inputs."""

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        """Turn the adjoint ``O x E`` of the outputs into that of the inputs, and add to ``sums``.

        The memory is as :meth:`evaluate` has left it; overwritten.
        """

    def write_gradient(self, sums: list[Tensor], of_theta: Tensor) -> None:
        """Write the gradient of the layer's parameters into that of all parameters."""


def bind_layers(steps: Sequence[LayerStep], theta: Tensor) -> list[BoundLayer]:
    """The layers with their parameters; linear ones include products of pairs that follow."""
    layers: list[BoundLayer] = []
    for step in steps:
        if step.kind is LayerKind.LINEAR:
            layers.append(_Linear(step, theta))
        elif step.kind is LayerKind.PRODUCT:
            before = layers[-1] if layers and not step.skip else None
            if type(before) is _Linear and set(step.groups) == {2}:
                layers[-1] = _LinearPairs(before)
            else:
                layers.append(_Product(step))
        elif step.kind is LayerKind.EXPONENTIAL:
            layers.append(_Exponential(step))
        else:
            layers.append(_Polynomial(step))
    return layers


class _Linear:
    """Weighted sums, biases included: the weights of the ones below the inputs."""

    num_factors = 0

    def __init__(self, step: LayerStep, theta: Tensor):
        assert step.weight is not None
        self.num_outputs = step.out_features
        self.skip = step.skip
        self.slots = step.weight, step.bias
        weight = step.weight.of(theta).view(step.out_features, step.in_features)
        bias = theta.new_zeros(step.out_features) if step.bias is None else step.bias.of(theta)
        self.weight_and_bias = torch.cat([weight, bias.unsqueeze(-1)], -1)
        self.weight = weight
        self._transposed = weight.mT

    def zeros(self) -> list[Tensor]:
        return [torch.zeros_like(self.weight), self.weight.new_zeros(self.num_outputs)]

    def evaluate(self, memory: Memory) -> None:
        torch.mm(self.weight_and_bias, memory.values, out=memory.outputs)

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        # The bias apart from the weights: a ninth column would double the time of this product.
        sums[0].addmm_(adjoint, memory.inputs_transposed)
        if self.slots[1] is not None:
            sums[1].addmv_(adjoint, memory.ones)
        torch.mm(self._transposed, adjoint, out=memory.adjoint)

    def write_gradient(self, sums: list[Tensor], of_theta: Tensor) -> None:
        for slot, total in zip(self.slots, sums, strict=True):
            if slot is not None:
                slot.of(of_theta).copy_(total.flatten())


class _LinearPairs:
    """Products of pairs of weighted sums.

    A factor times the adjoint of the product is the adjoint of the *other* factor. Computed in
    the place of the factors, these adjoints are in the wrong order within each pair; the weights
    are put into that order instead.
    """

    def __init__(self, linear: _Linear):
        self.num_outputs = linear.num_outputs // 2
        self.num_factors = linear.num_outputs
        self.skip = linear.skip
        self._linear = linear
        self._swapped = _swap_pairs(linear.weight).mT

    def zeros(self) -> list[Tensor]:
        weight = self._linear.weight
        return [torch.zeros_like(weight), weight.new_zeros(self.num_factors)]

    def evaluate(self, memory: Memory) -> None:
        torch.mm(self._linear.weight_and_bias, memory.values, out=memory.factors)
        torch.mul(*memory.pairs, out=memory.outputs)

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        for factor in memory.pairs:
            factor.mul_(adjoint)
        sums[0].addmm_(memory.factors, memory.inputs_transposed)
        sums[1].addmv_(memory.factors, memory.ones)
        torch.mm(self._swapped, memory.factors, out=memory.adjoint)

    def write_gradient(self, sums: list[Tensor], of_theta: Tensor) -> None:
        self._linear.write_gradient([_swap_pairs(total) for total in sums], of_theta)


def _swap_pairs(rows: Tensor) -> Tensor:
    return rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


class _WithoutParameters:
    """A layer without parameters, whose inputs stay while their adjoint is computed."""

    def __init__(self, step: LayerStep):
        self.num_outputs = step.out_features
        self.num_factors = step.in_features
        self.skip = step.skip
        self._coefficients = step.coefficients

    def zeros(self) -> list[Tensor]:
        return []

    def write_gradient(self, sums: list[Tensor], of_theta: Tensor) -> None:
        pass


class _Product(_WithoutParameters):
    def __init__(self, step: LayerStep):
        super().__init__(step)
        self._places = _places_of_factors(step.groups)

    def evaluate(self, memory: Memory) -> None:
        memory.factors.copy_(memory.inputs)
        for units, (first, *others) in self._places:
            product = memory.factors[first]
            for rows in others:
                product = product * memory.factors[rows]
            memory.outputs[units] = product

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        # Products of all the other factors, from both ends: right where factors are zero, too.
        for units, places in self._places:
            factors = [memory.factors[rows] for rows in places]
            before = adjoint[units]
            after = torch.ones_like(before)
            targets = []
            for factor in factors:
                targets.append(before)
                before = before * factor
            for rows, factor, target in zip(
                reversed(places), reversed(factors), reversed(targets), strict=True
            ):
                memory.adjoint[rows] = target * after
                after.mul_(factor)


def _places_of_factors(groups: Sequence[int]) -> list[tuple[slice | Tensor, list]]:
    """By size of the groups: their units, and the rows of their first, second, ... factors."""
    if len(set(groups)) == 1:
        size = groups[0]
        return [(slice(None), [slice(place, None, size) for place in range(size)])]
    sizes = torch.tensor(groups)
    starts = sizes.cumsum(0) - sizes
    by_size = ((size, (sizes == size).nonzero().flatten()) for size in sorted(set(groups)))
    return [(units, [starts[units] + place for place in range(size)]) for size, units in by_size]


class _Exponential(_WithoutParameters):
    def evaluate(self, memory: Memory) -> None:
        torch.exp(memory.inputs, out=memory.factors)
        memory.outputs.copy_(memory.factors)

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        torch.mul(adjoint, memory.factors, out=memory.adjoint)


class _Polynomial(_WithoutParameters):
    def evaluate(self, memory: Memory) -> None:
        memory.outputs.copy_(polynomial(self._coefficients, memory.inputs))

    def pull_back(self, memory: Memory, adjoint: Tensor, sums: list[Tensor]) -> None:
        slopes = [power * factor for power, factor in enumerate(self._coefficients)][1:]
        slope = polynomial(slopes or [0.0], memory.inputs)
        torch.mul(adjoint, slope, out=memory.adjoint)


def layer_values(step: LayerStep, theta: Tensor, values: Tensor) -> Tensor:
    """Outputs ``O x N x M`` of a layer for ``C x N x M``, by ordinary operations."""
    if step.kind is LayerKind.LINEAR:
        assert step.weight is not None
        weight = step.weight.of(theta).view(step.out_features, step.in_features)
        result = torch.einsum("oc,cnm->onm", weight, values)
        return result if step.bias is None else result + step.bias.of(theta)[:, None, None]
    if step.kind is LayerKind.PRODUCT:
        return torch.stack([factors.prod(0) for factors in values.split(step.groups)])
    if step.kind is LayerKind.EXPONENTIAL:
        return values.exp()
    return polynomial(step.coefficients, values)


def with_ones(pool: Pool, num_units: int, num_entries: int) -> Tensor:
    """Memory for the values of units, and below them ones, by which biases are multiplied."""
    values = pool(num_units + 1, num_entries)
    values[num_units] = 1.0
    return values
