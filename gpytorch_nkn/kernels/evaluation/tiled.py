"""Evaluation of a program by PyTorch with autograd, in tiles or as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.parameter_vector import Slot
from gpytorch_nkn.kernels.evaluation.program import LayerKind, LayerStep, Primitive, Program
from gpytorch_nkn.kernels.formula import Formula
from gpytorch_nkn.layers import polynomial
from gpytorch_nkn.linalg import TileEvaluator, add_all

__all__ = ["TiledEvaluator", "differentiable_values"]

Gradients = list[Tensor | None]


class _Group(NamedTuple):
    """Primitives with the same formula, evaluated together, or one product.

    ``columns`` is ``G x d``. ``indices`` are the positions of each parameter in theta, ``G x 1`` or
    ``G x d``; ``scale`` has the positions ``G`` of the output scales.
    """

    formula: Formula
    columns: Tensor
    indices: tuple[Tensor, ...]
    scale: Tensor | None
    factors: tuple[_Group, ...] = ()


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # autograd needs ordinary tensors in the cache
def _grouped(program: Program) -> tuple[list[_Group], Tensor | None]:
    """Return groups of similar primitives, and the permutation that restores the order."""
    members: dict[tuple, list[int]] = {}
    for number, primitive in enumerate(program.primitives):
        sizes = tuple(slot.stop - slot.start for slot in primitive.slots)
        key = primitive.formula, len(primitive.dims), sizes, primitive.scale is None
        members.setdefault((number,) if primitive.factors else key, []).append(number)
    groups = [_group([program.primitives[n] for n in numbers]) for numbers in members.values()]
    order = [number for numbers in members.values() for number in numbers]
    return groups, None if order == sorted(order) else torch.tensor(order, device="cpu").argsort()


def _group(primitives: Sequence[Primitive]) -> _Group:
    first = primitives[0]
    factors = tuple(_group([factor]) for factor in first.factors)
    indices = [
        torch.tensor([list(range(*p.slots[k])) for p in primitives], device="cpu")
        for k in range(0 if factors else len(first.slots))
    ]
    scales = [p.scale.start for p in primitives if p.scale is not None]
    columns = torch.tensor([p.dims for p in primitives], device="cpu")
    scale = torch.tensor(scales, device="cpu") if scales else None
    return _Group(first.formula, columns, tuple(indices), scale, factors)


class _Parameters:
    """Parameters by group and layer; with ``leaves``, as leaves of the autograd graph."""

    def __init__(self, program: Program, theta: Tensor, leaves: bool):
        self.program = program
        self.groups, self.order = _grouped(program)
        self._theta, self._leaves = theta, leaves
        self.leaves: list[tuple[Tensor | Slot, Tensor]] = []  # (indices in theta, leaf)
        self._of_groups = [self._bind(group) for group in self.groups]
        self._of_layers = [
            [None if slot is None else self._take(slot) for slot in (layer.weight, layer.bias)]
            for layer in program.layers
        ]

    def _take(self, index: Tensor | Slot) -> Tensor:
        value = index.of(self._theta) if isinstance(index, Slot) else self._theta[index]
        if self._leaves:
            value = value.detach().requires_grad_(True)
            self.leaves.append((index, value))
        return value

    def _bind(self, group: _Group) -> tuple[list[Tensor], Tensor | None, list]:
        return (
            [self._take(index).unsqueeze(-2) for index in group.indices],  # G x 1 x d
            None if group.scale is None else self._take(group.scale)[:, None, None],
            [self._bind(factor) for factor in group.factors],
        )

    def values(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return values ``m x n`` at inputs ``m x D`` and ``n x D``."""
        parts = [
            _group_values(group, tensors, x1, x2).flatten(1)
            for group, tensors in zip(self.groups, self._of_groups, strict=True)
        ]
        primitives = torch.cat(parts) if len(parts) > 1 else parts[0]
        if self.order is not None:
            primitives = primitives[self.order]
        values = primitives
        for layer, (weight, bias) in zip(self.program.layers, self._of_layers, strict=True):
            if layer.skip:
                values = torch.cat([values, primitives])
            values = _layer_values(layer, weight, bias, values)
        return values.view(x1.size(0), x2.size(0))


def _group_values(group: _Group, tensors: tuple, x1: Tensor, x2: Tensor) -> Tensor:
    """Return values ``G x m x n``."""
    parameters, scale, of_factors = tensors
    if group.factors:
        parts = zip(group.factors, of_factors, strict=True)
        values = reduce(mul, [_group_values(*part, x1, x2) for part in parts])
    else:
        left = _columns(x1, group.columns)
        right = left if x1 is x2 else _columns(x2, group.columns)
        values = group.formula.values(left, right, *parameters)
    return values if scale is None else values * scale


def _columns(x: Tensor, columns: Tensor) -> Tensor:
    """Return columns ``G x d`` of inputs ``n x D`` as ``G x n x d``."""
    return x.mT[columns].mT


def _layer_values(
    layer: LayerStep, weight: Tensor | None, bias: Tensor | None, values: Tensor
) -> Tensor:
    """Return the outputs ``O x E`` of a layer for inputs ``C x E``."""
    if layer.kind is LayerKind.LINEAR:
        assert weight is not None
        matrix = weight.view(layer.out_features, layer.in_features)
        return matrix @ values if bias is None else torch.addmm(bias[:, None], matrix, values)
    if layer.kind is LayerKind.PRODUCT:
        if len(set(layer.groups)) == 1:
            return reduce(mul, values.unflatten(0, (-1, layer.groups[0])).unbind(1))
        return torch.stack([reduce(mul, group.unbind(0)) for group in values.split(layer.groups)])
    if layer.kind is LayerKind.EXPONENTIAL:
        return values.exp()
    return polynomial(layer.coefficients, values)


def differentiable_values(program: Program, theta: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """Return the twice differentiable matrix ``N x M``."""
    return _Parameters(program, theta, leaves=False).values(x1, x2)


class TiledEvaluator(TileEvaluator):
    """Evaluates one network on inputs ``N x D`` and ``M x D``.

    Gradients are in the order ``[x1, x2, theta]``, or ``[x1, theta]`` for a symmetric matrix; None
    for inputs unless ``with_inputs``. The backward pass recomputes tiles that were not cached.
    """

    def __init__(self, program: Program, theta: Tensor, x1: Tensor, x2: Tensor, with_inputs: bool):
        super().__init__(x1.size(0), x2.size(0), x1 is x2, x1)
        self._theta = theta.detach()
        self._x1, self._x2 = x1.detach(), x2.detach()
        self._with_inputs = with_inputs
        with torch.enable_grad():
            self._parameters = _Parameters(program, self._theta, leaves=True)
        self._tiles: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = {}

    def tile_values(self, rows: slice, columns: slice, keep: bool) -> Tensor:
        """Return the values of one tile; with ``keep``, store its graph for the backward pass."""
        if not keep or torch.is_inference_mode_enabled():
            with torch.no_grad():
                return self._tile(rows, columns)[0]
        with torch.enable_grad():
            tile = self._tiles[rows.start, columns.start] = self._tile(rows, columns)
        return tile[0].detach()

    def zero_gradients(self) -> list[Tensor]:
        """Return zeros, to which the gradients of the tiles are added."""
        zeros = [torch.zeros_like(leaf) for _, leaf in self._parameters.leaves]
        return [*zeros, *map(torch.zeros_like, self._inputs())]

    def add_tile_gradients(
        self, rows: slice, columns: slice, weights: Tensor, total: list[Tensor]
    ) -> None:
        """Add the gradients of one tile to the totals."""
        tile = self._tiles.pop((rows.start, columns.start), None)
        with torch.enable_grad():
            values, x1, x2 = tile or self._tile(rows, columns)
        sources = [leaf for _, leaf in self._parameters.leaves]
        targets = total[: len(sources)]
        if self._with_inputs:
            grad_x1, grad_x2 = total[len(sources)], total[-1]
            sources, targets = [*sources, x1], [*targets, grad_x1[rows]]
            if x1 is not x2:
                sources, targets = [*sources, x2], [*targets, grad_x2[columns]]
        gradients = torch.autograd.grad(values, sources, weights, allow_unused=True)
        for target, gradient in zip(targets, gradients, strict=True):
            if gradient is not None:
                target += gradient

    def gradients_from(self, totals: Sequence[list[Tensor]]) -> Gradients:
        """Return the gradients, given the totals of each thread."""
        total = add_all(totals)
        grad_theta = torch.zeros_like(self._theta)
        for (index, _), gradient in zip(self._parameters.leaves, total, strict=False):
            if isinstance(index, Slot):
                index.of(grad_theta).copy_(gradient)
            else:
                grad_theta[index] = gradient
        if not self._with_inputs:
            return [None, grad_theta] if self.symmetric else [None, None, grad_theta]
        return [*total[len(self._parameters.leaves) :], grad_theta]

    def _inputs(self) -> Iterator[Tensor]:
        if self._with_inputs:
            yield self._x1
            if not self.symmetric:
                yield self._x2

    def _tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values and the inputs of a tile."""
        x1 = self._x1[rows].detach().requires_grad_(self._with_inputs)
        x2 = x1
        if not self.symmetric or rows != columns:
            x2 = self._x2[columns].detach().requires_grad_(self._with_inputs)
        return self._parameters.values(x1, x2), x1, x2
