"""Evaluation of a program by tiles, with gradients written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gpytorch_nkn.kernels.evaluation.group import Block, Group, Tile, bind_primitives
from gpytorch_nkn.kernels.evaluation.inputs import Inputs
from gpytorch_nkn.kernels.evaluation.layer_formulas import (
    BoundLayer,
    Memory,
    bind_layers,
    layer_values,
    with_ones,
)
from gpytorch_nkn.kernels.evaluation.program import Primitive, Program
from gpytorch_nkn.linalg import Pool, Scratch, TileEvaluator, add_all

__all__ = ["ClosedFormEvaluator", "differentiable_values"]

Gradients = list[Tensor | None]


class ClosedFormEvaluator(TileEvaluator):
    """One element of a batch of networks on inputs ``N x D`` and ``M x D``, the same if symmetric.

    For each tile only sums over its entries are taken; what the gradients have in common for all
    tiles is done once, at the end. Gradients come as ``[x1, x2, theta]``, for a symmetric matrix
    as ``[x1, theta]``; those of the inputs only ``with_inputs``.
    """

    def __init__(self, program: Program, theta: Tensor, x1: Tensor, x2: Tensor, with_inputs: bool):
        super().__init__(x1.size(0), x2.size(0), x1 is x2, x1)
        theta = theta.detach()
        x1, x2 = (x1.detach(),) * 2 if x1 is x2 else (x1.detach(), x2.detach())
        self._theta = theta
        self._inputs = Inputs(x1, x2, with_inputs)
        self._groups: list[Group] = bind_primitives(program.primitives, theta, self._inputs)
        self._layers = bind_layers(program.layers, theta)
        self._parts: list[Group | BoundLayer] = [*self._groups, *self._layers]

    def tile_values(self, rows: slice, columns: slice, scratch: Scratch) -> Tensor:
        """Values of one tile."""
        return self._evaluated(rows, columns, scratch).result

    def zero_gradients(self) -> list[list[Tensor]]:
        """Zeros to which the sums of tiles are added, for each group and each layer."""
        return [part.zeros() for part in self._parts]

    def add_tile_gradients(
        self,
        rows: slice,
        columns: slice,
        weights: Tensor,
        total: list[list[Tensor]],
        scratch: Scratch,
    ) -> None:
        """Add the sums of one tile, whose values are computed anew unless it is the last one."""
        workspace = self._evaluated(rows, columns, scratch)
        workspace.place = None  # overwritten from here on
        num_primitives, skipped = len(workspace.adjoint), None
        adjoint = weights.view(1, -1)
        memories = reversed(workspace.memories)
        for layer, memory, sums in zip(
            reversed(self._layers), memories, reversed(total), strict=False
        ):
            layer.pull_back(memory, adjoint, sums)
            adjoint = memory.adjoint
            if layer.skip:
                adjoint, skipped = adjoint.split([len(adjoint) - num_primitives, num_primitives])
        if not self._layers:
            workspace.adjoint.copy_(adjoint)
        if skipped is not None:
            workspace.adjoint.add_(skipped)
        for group, block, sums in zip(self._groups, workspace.blocks, total, strict=False):
            group.pull_back(workspace.tile, *block, sums)

    def gradients_from(self, totals: Sequence[list[list[Tensor]]]) -> Gradients:
        """The gradients, from the sums over the tiles of each thread."""
        of_theta, inputs = torch.empty_like(self._theta), self._inputs
        sums = [add_all(own) for own in zip(*totals, strict=True)]
        for part, own in zip(self._parts, sums, strict=True):
            part.write_gradient(own, of_theta)
        if not inputs.with_gradients:
            return [None, of_theta] if self.symmetric else [None, None, of_theta]
        of_x1 = torch.zeros_like(inputs.x1)
        of_x2 = of_x1 if self.symmetric else torch.zeros_like(inputs.x2)
        for group, own in zip(self._groups, sums, strict=False):
            group.add_input_gradients(own, of_x1, of_x2)
        return [of_x1, of_theta] if self.symmetric else [of_x1, of_x2, of_theta]

    def _evaluated(self, rows: slice, columns: slice, scratch: Scratch) -> _Workspace:
        """Memory that holds a tile's values and all that lies on the way to them."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        workspace = scratch.arrange(
            shape, lambda pool: _Workspace(self._inputs, self._groups, self._layers, shape, pool)
        )
        if workspace.place == (rows, columns):
            return workspace
        workspace.place = rows, columns
        workspace.tile.move(rows, columns)
        for group, (values, _) in zip(self._groups, workspace.blocks, strict=True):
            group.evaluate(workspace.tile, values)
        for layer, memory in zip(self._layers, workspace.memories, strict=True):
            layer.evaluate(memory)
        return workspace


class _Workspace:
    """Memory for all that is computed for tiles of one size ``m x n``.

    Attributes:
        place: Rows and columns of the tile that it holds.
        tile: What primitives have in common.
        blocks: For each group its values and their adjoint.
        memories: For each layer. The adjoint of all inputs but the primitives takes the place of
            the inputs, which keeps more of a tile in the cache.
        adjoint: Adjoint of the primitives ``P x E``.
        result: The tile's values ``m x n``.
    """

    def __init__(
        self,
        inputs: Inputs,
        groups: Sequence[Group],
        layers: Sequence[BoundLayer],
        shape: tuple[int, int],
        pool: Pool,
    ):
        self.place: tuple[slice, slice] | None = None
        entries = math.prod(shape)
        num_primitives = groups[-1].units.stop
        place = next((number for number, layer in enumerate(layers) if layer.skip), 0)
        num_ahead = layers[place - 1].num_outputs if place else 0
        # What a layer with a skip connection sees: outputs of the one before, primitives and ones.
        seen = with_ones(pool, num_ahead + num_primitives, entries)
        values = seen[num_ahead:]
        self.tile = Tile(inputs, shape, pool, values[num_primitives])
        self.adjoint = adjoint = pool(num_primitives, entries)
        self.blocks = [
            (Block(values[group.units], shape), Block(adjoint[group.units], shape))
            for group in groups
        ]
        self.memories = []
        for number, layer in enumerate(layers, start=1):
            if layer.skip:
                adjoint = pool(num_ahead + num_primitives, entries)
            ahead = place == number  # of the primitives
            results = seen if ahead else with_ones(pool, layer.num_outputs, entries)
            factors = pool(layer.num_factors, entries)
            memory = Memory(values, adjoint, results, layer.num_outputs, factors)
            self.memories.append(memory)
            values, adjoint = results, memory.outputs
        self.result = values[0].view(shape)


def differentiable_values(program: Program, theta: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """The matrix ``N x M`` by operations that can be differentiated twice."""
    values = torch.stack([_primitive_values(p, theta, x1, x2) for p in program.primitives])
    primitives = values
    for layer in program.layers:
        if layer.skip:
            values = torch.cat([values, primitives])
        values = layer_values(layer, theta, values)
    return values[0]


def _primitive_values(primitive: Primitive, theta: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    left = x1[:, list(primitive.dims)]
    right = left if x1 is x2 else x2[:, list(primitive.dims)]
    value = primitive.formula.values(left, right, *primitive.parameters(theta))
    return value if primitive.scale is None else value * primitive.scale.of(theta)
